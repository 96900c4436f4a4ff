import PosternCore
import PosternDelivery
import PosternScenarios
import PosternTestKit

@testable import PosternGateway
@testable import PosternHTTP

/// An endpoint that does not exist keeps no message from the others, although its message comes first, and nothing has
/// shown yet that the others work.
final class EndpointWatch {
    /// Of time in which nothing else is wrong: a token is fetched, and what had been queued before is sent.
    /// Where lanes are admitted later, a message that was there before may be the first probe, and one of the others the
    /// next, a minute later.
    private var patience: Duration { .seconds(world.plan.settings.admitsLanesAfter.map { 120 + $0 } ?? 60) }
    /// No wait of an earlier fault is longer.
    private static let calm = Duration.seconds(3600)
    private unowned let world: World
    private var trials: [Trial] = []

    private struct Trial {
        let service: Service
        let run: World.Run
        /// What goes to the other endpoints.
        let entries: [Expectations.Entry]
        let since: MonotonicInstant
        let endsAt: MonotonicInstant
    }

    init(_ world: World) { self.world = world }

    /// An operator does something, which may be the reason for a wait.
    func disturbed() { trials = [] }

    /// Posts a message for the endpoint that does not exist, and behind it some for the others, in one request.
    func post(to type: any TypeScenarios, _ random: SeededRandom) {
        guard let run = world.run, let service = world.service(type.name),
            let wrong = service.activeFaults(at: world.time.instant).lazy.compactMap(\.wrongEndpoint?.endpoint).first
        else { return }
        let right = type.endpoints.filter { $0.kind != wrong.kind }
        let chosen = [wrong] + (0..<random.from(2...12)).map { _ in random.pick(right) }
        let entries = chosen.map { _ in world.expectations.begin(type.name, lane: nil, isExempt: true) }
        let lines = zip(chosen, entries).map { endpoint, entry in
            let payload = endpoint.payload(entry.mark)
            (entry.payload, entry.isPending) = (payload, true)
            return #"{"upstream":"\#(type.name)","kind":"\#(endpoint.kind)","payload":\#(payload)}"#
        }
        world.post(lines, entries, to: "/v1/messages") { [weak self] in
            guard let self else { return }
            let now = world.time.instant
            trials.append(
                Trial(
                    service: service, run: run, entries: Array(entries.dropFirst()), since: now,
                    endsAt: now + patience))
        }
    }

    /// Returns when this has to be called again.
    func look() -> MonotonicInstant {
        let now = world.time.instant
        for trial in trials where trial.endsAt <= now { judge(trial, at: now) }
        trials.removeAll { $0.endsAt <= now }
        return trials.map(\.endsAt).min() ?? .distantFuture
    }

    private func judge(_ trial: Trial, at now: MonotonicInstant) {
        guard world.run === trial.run, !world.weather.isExcuse,
            world.snapshot(of: trial.service.name)?.isPaused == false,
            trial.service.faults(from: trial.since + (.zero - Self.calm), to: now)
                .allSatisfy({ $0.kind == .wrongEndpoint })
        else { return }
        world.promises.coverage.visit("a wrong endpoint comes first")
        guard let late = trial.entries.first(where: { $0.arrivals == 0 && !$0.isWaived }) else { return }
        world.promises.fail(
            "a wrong endpoint holds up no other",
            "\(late.mark), of \(trial.service.name), waits \(now - trial.since) for another endpoint")
    }
}
