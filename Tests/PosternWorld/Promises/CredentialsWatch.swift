import PosternCore
import PosternDelivery
import PosternScenarios
import PosternTestKit
import PosternUpstream

@testable import PosternGateway
@testable import PosternHTTP

/// Credentials are verified before a message needs them, and whenever an operator requests it. The result names what is
/// wrong with their upstream, if anything is.
final class CredentialsWatch {
    /// A token is fetched at once. An idle loop may take that long to notice that it was resumed.
    private static let settled = Duration.seconds(900)
    private unowned let world: World
    /// Since when each upstream has been sending in this run: it is not paused, and the store takes its results.
    private var sending: [String: MonotonicInstant] = [:]
    private var stoodStillAt: MonotonicInstant?

    init(_ world: World) { self.world = world }

    // MARK: Verification at the start

    func started(_ run: World.Run) {
        sending = Dictionary(uniqueKeysWithValues: run.workers.map { ($0.type.name, world.time.instant) })
    }

    /// A worker begins with what another one has left.
    func began(_ name: String) { sending[name] = world.time.instant }

    /// Called whenever what the gateway shows of an upstream has changed.
    func look(at snapshot: UpstreamSnapshot, of name: String) {
        if snapshot.isPaused { sending[name] = world.time.instant }
    }

    /// Called after the machine stood still: what is due is fetched once it goes on.
    func stoodStill() { stoodStillAt = world.time.instant }

    func look() {
        guard !world.weather.isExcuse, !world.isDamaged else { return }
        for (type, worker, _) in world.run?.workers ?? [] where worker.snapshot.token != nil {
            let snapshot = worker.snapshot
            guard let service = world.service(type.name), let since = sending[type.name], !snapshot.isPaused,
                world.time.instant - max(since, stoodStillAt ?? since) > Self.settled
            else { continue }
            check(snapshot, of: service, since: since)
        }
    }

    private func check(_ snapshot: UpstreamSnapshot, of service: Service, since: MonotonicInstant) {
        switch service.condition(from: since, to: world.time.instant) {
        case .works:
            guard world.run?.network.tokens[service.name]?.wasFetched != true else { return }
            world.promises.fail(
                "credentials are verified before the first message", "no token of \(service.name) was ever fetched")
        case .fails(.unauthorized) where snapshot.health != .unauthorized,
            // What was rejected before an outage is still shown during it.
            .fails(.outage) where snapshot.health != .down && snapshot.hold == nil:
            world.promises.fail(
                "credentials are verified before the first message",
                "\(service.name) is \(snapshot.health.rawValue), and has been failing since the start")
        case .fails, .changes: break
        }
    }

    // MARK: Probes

    func probe(_ name: String) {
        guard let service = world.service(name), let run = world.run else { return }
        let begin = world.time.instant
        let (network, tokens) = (run.network, run.network.tokens[name])
        let connects = network.connects[name]
        tokens?.probeBegins()
        Operator.post("/v1/upstreams/\(name)/probe", in: world) { [world] response, text in
            tokens?.probeEnds()
            guard response.status == 200, let outcome = ProbeReport.Outcome.allCases.first(where: text.reports) else {
                // It may be left out of the configuration.
                if ![404, 409].contains(response.status) || !world.removed.contains(name) {
                    world.promises.fail("a probe is answered", "that of \(name) with \(response.status): \(text)")
                }
                return
            }
            world.promises.coverage.visit("probe: \(outcome.rawValue)")
            let condition = service.condition(from: begin, to: world.time.instant)
            // A connection shows neither credentials nor paths.
            let onlyConnects = network.connects[name] != connects
            let isRight =
                switch (condition, outcome) {
                case (.changes, _): true
                case (.works, _) where onlyConnects: outcome == .ok
                case (.fails(.unauthorized), _) where onlyConnects: outcome == .ok
                case (.fails(.wrongURL), _) where onlyConnects: outcome == .ok
                case (.works, _): outcome == .ok || service.type.traits.contains(.signedWithTime) && world.wasClockSet
                case (.fails(.unauthorized), _): outcome == .unauthorized
                case (.fails(.outage), _): outcome == .unreachable
                case (.fails(.wrongURL), _): outcome == .misconfigured
                case (.fails, _): outcome != .misconfigured
                }
            if !isRight { world.promises.fail("a probe tells what is wrong", "\(name), \(condition): \(text)") }
        }
    }
}

extension String {
    fileprivate func reports(_ outcome: ProbeReport.Outcome) -> Bool { contains(#""outcome":"\#(outcome.rawValue)""#) }
}

extension Service {
    /// The faults of an upstream during a period.
    enum Condition {
        case works
        /// One fault, during all of it.
        case fails(FaultPlan.Kind)
        case changes
    }

    func condition(from begin: MonotonicInstant, to end: MonotonicInstant) -> Condition {
        let faults = faults(from: begin, to: end)
        guard let only = faults.first else { return .works }
        guard faults.count == 1, only.isWhole else { return .changes }
        return .fails(only.kind)
    }
}
