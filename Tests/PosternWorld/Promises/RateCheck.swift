import PosternCore
import PosternDelivery
import PosternStore
import PosternScenarios
import PosternTestKit

@testable import PosternGateway

/// What the gateway may not send, or not yet: anything to an upstream that is paused or has asked for time, more at a time
/// than is allowed, a message before its time, or one that was cancelled.
final class RateCheck {
    /// A request may have been recorded before the response to another one asked for time, and leave after it.
    private static let grace = Duration.seconds(30)
    /// A change this old is on disk, unless the disk fails.
    private static let certain = Duration.seconds(600)
    /// Requests that are spaced evenly take this long for those of a second, if the first of them was late by as much as is
    /// caught up with.
    private static let second = Duration.milliseconds(990)

    private struct Known {
        /// Since when it is paused.
        var pausedSince: MonotonicInstant?
        /// Whether it is paused and nothing is under way.
        var rests = false
        /// Since when, and until when, it wants no request.
        var asked: (from: MonotonicInstant, until: MonotonicInstant)?
        /// When requests were sent in the last second, and how many messages each carried.
        var sent: [(at: MonotonicInstant, messages: Int)] = []
        /// When requests of each kind were sent in the last second.
        var sentOfKind: [String: [MonotonicInstant]] = [:]
    }
    private unowned let world: World
    private var known: [String: Known] = [:]

    init(_ world: World) { self.world = world }

    // MARK: What happens

    /// Called whenever what the gateway shows of an upstream has changed, and from time to time.
    func look(at snapshot: UpstreamSnapshot, of name: String) {
        var now = known[name] ?? Known()
        if !snapshot.isPaused {
            now.pausedSince = nil
        } else if now.pausedSince == nil, !world.weather.isExcuse {
            now.pausedSince = world.time.instant
        }
        now.rests = snapshot.isPaused && (now.rests || snapshot.inFlight == 0)
        known[name] = now
    }

    func look() {
        for (type, worker, _) in world.run?.workers ?? [] { look(at: worker.snapshot, of: type.name) }
    }

    /// The response to a request for messages has a `Retry-After`.
    func asked(_ type: any TypeScenarios, for seconds: Int, isDate: Bool) {
        // Dates are read by the gateway's clock. For the others an endpoint that works shortens the wait of the upstream.
        guard type.traits.contains(.oneEndpoint), !isDate || !world.wasClockSet, !mayLoseCause(of: type.name) else {
            return
        }
        let now = world.time.instant
        let until = now + .seconds(min(seconds, 3600) - 2)
        let former = known[type.name]?.asked.flatMap { now < $0.until ? $0 : nil }
        if until > former?.until ?? now {
            known[type.name, default: Known()].asked = (former?.from ?? now + Self.grace, until)
        }
    }

    /// An upstream is probed if the message that made it wait is gone.
    private func mayLoseCause(of upstream: String) -> Bool {
        world.plan.settings.dropsOldest(of: upstream)
            || world.plan.callers.contains { $0.type.name == upstream && $0.scheduled > 0 }
    }

    /// The operator asks for it. Whether the gateway still does it before it ends is not known.
    func willResume(_ upstream: String) {
        known[upstream]?.pausedSince = nil
        known[upstream]?.rests = false
    }

    /// The operator, or the end of a process, may end waits.
    func waitsMayEnd() { for name in known.keys { known[name]?.asked = nil } }

    /// A process has ended without a loss: what was certain holds for the next one.
    func started(_ run: World.Run) {
        for (type, worker, _) in run.workers { began(type.name, worker) }
        look()
    }

    /// A worker begins with what another one has left.
    func began(_ name: String, _ worker: UpstreamWorker) {
        known[name]?.rests = false
        known[name]?.asked = nil
        known[name]?.sent = []
        known[name]?.sentOfKind = [:]
        world.massRejections.began(name)
        guard let since = known[name]?.pausedSince, !worker.snapshot.isPaused else { return }
        if world.time.instant - since > Self.certain {
            world.promises.fail("a pause outlasts a restart", "\(name) was paused, and is not after a start")
        }
        known[name]?.pausedSince = nil
    }

    func lossHappened() { known = [:] }

    // MARK: Requests

    /// - Parameter others: Requests for messages to the same upstream that wait for their response.
    func willSend(_ entries: [Expectations.Entry], to type: any TypeScenarios, others: Int) {
        let carried = entries.filter { !$0.isProxied && !$0.isWaived }
        guard !carried.isEmpty else { return }
        let now = world.time.instant
        let name = type.name
        if known[name]?.rests == true {
            world.promises.fail("a paused upstream gets nothing", "\(carried[0].mark) was sent to \(name)")
        }
        if let asked = known[name]?.asked, asked.from < now, now < asked.until {
            world.promises.fail(
                "a Retry-After is obeyed",
                "\(carried[0].mark) was sent to \(name) \(asked.until - now) before the time it had asked for")
        }
        if others >= world.plan.settings.maxInFlight {
            world.promises.fail(
                "no more requests at a time than allowed",
                "\(others + 1) to \(name), the latest with \(carried[0].mark)")
        }
        if type.traits.contains(.oneEndpoint), carried.count > world.plan.settings.batchMaxMessages {
            world.promises.fail("no more messages in a request than allowed", "\(carried.count) to \(name)")
        }
        checkRate(of: name, carried.count, at: now)
        checkRate(of: carried[0].kind, of: type, at: now)
        for entry in carried { check(entry) }
    }

    /// In any second, shortened by what a late timer may catch up with, no more than is allowed. Requests that are recorded
    /// may wait for the disk, and leave together, also with the next one that is on time.
    private func checkRate(of name: String, _ messages: Int, at now: MonotonicInstant) {
        let settings = world.plan.settings
        // A clock that is set moves the times until which requests wait.
        guard !world.wasClockSet else { return }
        var sent = known[name]?.sent ?? []
        sent.removeAll { now - $0.at >= Self.second }
        // What the first one carried was paid for after it.
        let others = sent.reduce(0) { $0 + $1.messages }
        sent.append((now, messages))
        known[name, default: Known()].sent = sent
        let (requests, limit) = (settings.maxRequestsPerSecond, settings.maxMessagesPerSecond)
        if requests > 0, Double(sent.count - settings.maxInFlight) > max(1, requests) * 1.05 {
            world.promises.fail("no more requests a second than allowed", "\(sent.count) to \(name)")
        }
        if limit > 0, sent.count > settings.maxInFlight, Double(others) > max(1, limit) * 2.05 {
            world.promises.fail("no more messages a second than allowed", "\(others) to \(name), and \(messages) more")
        }
    }

    private func checkRate(of kind: String, of type: any TypeScenarios, at now: MonotonicInstant) {
        guard !world.wasClockSet, let limit = type.rates(seed: world.plan.seed)[kind] else { return }
        var sent = known[type.name]?.sentOfKind[kind] ?? []
        sent.removeAll { now - $0 >= Self.second }
        sent.append(now)
        known[type.name, default: Known()].sentOfKind[kind] = sent
        if Double(sent.count - world.plan.settings.maxInFlight) > max(1, limit) * 1.05 {
            world.promises.fail(
                "no more requests of a kind in a second than allowed", "\(sent.count) of \(kind) to \(type.name)")
        }
    }

    private func check(_ entry: Expectations.Entry) {
        let entry = entry.whole ?? entry
        if entry.isCancelled, entry.unanswered == 0, !isStartOfQueued(entry) {
            world.promises.fail("what was cancelled is not sent", "\(entry.mark) was sent to \(entry.upstream)")
        }
        if let notBefore = entry.notBefore, !world.wasClockSet, world.time.now < notBefore {
            world.promises.fail(
                "nothing is sent before its time", "\(entry.mark) was sent \(notBefore - world.time.now) too early")
        }
    }

    /// Whether it begins a session of which another message is queued: the upstream is told of the session with that.
    func isStartOfQueued(_ start: Expectations.Entry) -> Bool {
        guard let outbox = world.run?.gateway.outbox else { return false }
        func isQueued(_ id: MessageID) -> Bool { (try? outbox.message(id))?.state == .queued }
        return world.weather.quietly {
            world.expectations.entries.contains { other in
                other.start === start
                    && (other.isPending || other.unanswered > 0 || other.ids.contains(where: isQueued))
            }
        }
    }
}

extension World {
    /// How the gateway sees an upstream; nil while it does not run, or does not deliver to it.
    func snapshot(of upstream: String) -> UpstreamSnapshot? {
        run?.workers.first { $0.type.name == upstream }?.worker.snapshot
    }
}
