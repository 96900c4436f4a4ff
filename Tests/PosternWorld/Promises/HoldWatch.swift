import PosternCore
import PosternDelivery
import PosternSimulatorKit
import PosternStore
import PosternScenarios
import PosternTestKit
import PosternUpstream

@testable import PosternGateway

/// Good credentials are not called bad. A message that gets 401 or 403 by itself may look like that: the upstream is held
/// only while such a message is queued, until something that was sent since is accepted, and not while another message
/// could be sent.
final class HoldWatch {
    private static let promise = "good credentials are not called bad"
    /// The requests that were in flight when a hold began have been answered by then.
    private static let inFlight = Duration.seconds(120)
    /// The probes of another message follow within seconds at first, and after the longest delay of retries later.
    private static let longest = Duration.seconds(900)

    private struct Hold {
        var since: MonotonicInstant
        var sinceMoment: Timestamp
    }
    private unowned let world: World
    /// The holds of this run.
    private var holds: [String: Hold] = [:]
    /// The upstreams whose first snapshot of this run was seen.
    private var known: Set<String> = []

    init(_ world: World) { self.world = world }

    /// A process begins with the holds of the one before it.
    func started() { (holds, known) = ([:], []) }

    /// So does another worker of an upstream.
    func began(_ name: String) {
        holds[name] = nil
        known.remove(name)
    }

    /// Called whenever what the gateway shows of an upstream has changed, and from time to time.
    func look(at snapshot: UpstreamSnapshot, of type: any TypeScenarios) {
        let isFirst = known.insert(type.name).inserted
        // The others may be held by a wrong clock, or by sessions that die.
        guard snapshot.hold == .credentials, type.traits.contains(.plainStatuses), !mayBeRefused(type) else {
            return holds[type.name] = nil
        }
        let now = world.time.instant
        var hold = holds[type.name] ?? Hold(since: now, sinceMoment: world.time.now)
        if holds[type.name] == nil, !isFirst, !isPoisonQueued(at: type) {
            fail("\(type.name) is held for credentials, and no message for it may be the cause")
        }
        if waitsForDate(snapshot) { hold.since = now }
        holds[type.name] = hold
        if !world.wasClockSet, let accepted = snapshot.lastSuccessAt, accepted > hold.sinceMoment + Self.inFlight {
            fail("\(type.name) accepted a message \(accepted - hold.sinceMoment) after it was held, and still is")
        }
        if now - hold.since > Self.longest, !snapshot.isPaused, isCalm(type), let entry = waiting(for: type) {
            fail("\(type.name) is held for \(now - hold.since), although \(entry.mark) could show that it works")
        }
    }

    func look() { for (type, worker, _) in world.run?.workers ?? [] { look(at: worker.snapshot, of: type) } }

    private func fail(_ detail: String) { world.promises.fail(Self.promise, detail) }

    /// Whether the service refuses its credentials at some time.
    private func mayBeRefused(_ type: any TypeScenarios) -> Bool {
        let faults = world.plan.faults.filter { $0.type.name == type.name }
        // By a wrong clock, one may have expired before its time as well.
        let deaths = faults.count { $0.kind == .tokensDie } + (world.wasClockSet ? 1 : 0)
        return faults.contains { $0.kind == .unauthorized } || deaths >= 2
    }

    private func isPoisonQueued(at type: any TypeScenarios) -> Bool {
        let looksLikeThat = type.poisons.contains { [.unauthorized, .forbidden].contains($0.answer) }
        return looksLikeThat
            && world.expectations.entries.contains { $0.upstream == type.name && $0.isPoison && mayBeQueued($0) }
    }

    private func mayBeQueued(_ entry: Expectations.Entry) -> Bool {
        guard !entry.isPending, entry.unanswered == 0, !entry.isWaived, let run = world.run else { return true }
        return entry.ids.contains { id in
            world.weather.quietly { (try? run.gateway.outbox.message(id))?.state == .queued }
        }
    }

    /// Whether it may be waiting for a date in `Retry-After`, which is one of another clock. `Waits` watches how long.
    private func waitsForDate(_ snapshot: UpstreamSnapshot) -> Bool {
        guard world.wasClockSet, case .open(let until) = snapshot.circuit else { return false }
        return until > world.time.now
    }

    /// Whether nothing was wrong with the service and the disk for as long as a hold may last.
    private func isCalm(_ type: any TypeScenarios) -> Bool {
        guard !world.weather.isExcuse, !world.isDamaged, !world.removed.contains(type.name) else { return false }
        let now = world.time.instant
        return world.service(type.name)?.faults(from: now + (.zero - Self.longest), to: now).isEmpty ?? false
    }

    /// A message that has been queued for that long, may be sent, and has no poison before it in its lane.
    private func waiting(for type: any TypeScenarios) -> Expectations.Entry? {
        guard let run = world.run else { return nil }
        let entries = world.expectations.entries.filter { $0.upstream == type.name }
        return entries.first { entry in
            guard !entry.isPoison, !entry.isSettled, !entry.isExempt, !entry.isWaived, entry.notBefore == nil,
                entry.ids.count == 1,
                let record = world.weather.quietly({ try? run.gateway.outbox.message(entry.ids[0]) }),
                record.state == .queued, world.time.now - record.acceptedAt > Self.longest
            else { return false }
            return !entries.contains { $0.isPoison && $0.lane == entry.lane && mayBeQueued($0) }
        }
    }
}
