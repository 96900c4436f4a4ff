import PosternCore
import PosternScenarios
import PosternTestKit

@testable import PosternGateway
@testable import PosternHTTP
@testable import PosternStore

/// What replays promise: each delivered message that they are about is queued again, once for each replay and in the order of
/// the old ones, whenever the process ends.
final class ReplayWatch {
    private unowned let world: World
    /// The requests, by the id of their replay.
    private var requests: [(id: String, upstream: String)] = []
    /// The entry that each copy is a message of.
    private var copies: [MessageID: Expectations.Entry] = [:]
    private var latest = MessageID(rawValue: 0)
    /// By replay: when it began, the originals of its copies, and in which life of the process the latest copy was seen.
    private var seen: [String: (startedAtMs: Int64, originals: Set<MessageID>, last: MessageID, run: Int)] = [:]
    private var isOn: Bool { !requests.isEmpty }
    private var isKept: Bool { world.plan.settings.retention == SettingsPlan.longestRetention }

    init(_ world: World) { self.world = world }

    /// Mostly a new one; now and then the latest again, which changes nothing, or stops it.
    func begin(of upstream: String, _ random: SeededRandom) {
        let known = requests.last { $0.upstream == upstream }
        if let known, random.chance(0.1) {
            return Operator.post("/v1/operations/\(known.id)", method: "DELETE", "", in: world)
        }
        let id = random.chance(0.4) ? known?.id ?? newID : newID
        requests.append((id, upstream))
        Operator.post("/v1/messages/replay", #"{"id":"\#(id)","upstream":"\#(upstream)"}"#, in: world) {
            [world] response, text in
            guard ![200, 202].contains(response.status), response.status < 500, !world.removed.contains(upstream) else {
                return
            }
            world.promises.fail("a replay can be begun", "\(response.status): \(text)")
        }
    }

    private var newID: String { "replay-\(requests.count)" }

    // MARK: While it goes on

    /// Call it after commits.
    func look() {
        guard isOn, let outbox = world.run?.gateway.outbox else { return }
        let rows = world.weather.quietly {
            try? outbox.read { [latest] sql in
                try sql.all(
                    """
                    SELECT replayed.id, original, record FROM replayed JOIN replays ON replay = number
                    WHERE replayed.id > ? ORDER BY replayed.id
                    """, latest
                ) { (copy: $0[0] as MessageID, original: $0[1] as MessageID, record: $0[2] as String) }
            }
        }
        for row in rows ?? [] {
            guard let replay = JSONRecord.decode(row.record, as: Replay.self) else { continue }
            add(row.copy, of: row.original, by: replay.id, startedAtMs: replay.startedAtMs)
        }
    }

    private func add(_ copy: MessageID, of original: MessageID, by replay: String, startedAtMs: Int64) {
        latest = copy
        let new = (startedAtMs, Set<MessageID>(), MessageID(rawValue: 0), world.runs)
        var known = seen[replay] ?? new
        if known.startedAtMs != startedAtMs {
            // One that has ended is kept for as long as messages that failed; then its id is free.
            if isKept { world.promises.fail("a replay queues each message once", "\(replay) was begun again") }
            known = new
        }
        if !known.originals.insert(original).inserted {
            world.promises.fail(
                "a replay queues each message once", "\(replay) has queued \(original) again as \(copy)")
        } else if original < known.last {
            world.promises.fail("a replay keeps the order", "\(replay) has queued \(original) after \(known.last)")
        }
        if known.run != world.runs { world.promises.coverage.visit("replay: goes on after a restart") }
        (known.last, known.run) = (original, world.runs)
        seen[replay] = known
        world.promises.coverage.visit("replay: queues copies")
        let record = world.weather.quietly { (try? world.run?.gateway.outbox.message(copy, payload: true)) ?? nil }
        // The response that named the original may have been lost, but its payload has its mark.
        let entry = record?.payload.flatMap { world.expectations.entries(in: $0).first } ?? copies[original]
        copies[copy] = entry
        entry?.copies += 1
        if let record, let entry { world.promises.checkOrigin(of: record, entry) }
        guard let record, record.replayOf != original else { return }
        world.promises.fail("a copy names its original", "\(copy) is a copy of \(original)")
    }

    /// What became of requests in flight is forgotten: copies that are queued may go out again.
    func outcomesForgotten(of upstream: String? = nil) {
        look()
        guard isOn, let outbox = world.run?.gateway.outbox else { return }
        for (id, entry) in copies where !entry.isWaived && (upstream == nil || entry.upstream == upstream) {
            let record = world.weather.quietly { (try? outbox.message(id)) ?? nil }
            if record?.state == .queued { entry.unknownOutcomes += 1 }
        }
    }

    /// The store may be an older one, or lack what the disk has lost.
    func forget() { seen = [:] }

    // MARK: At the end

    /// Whether none goes on.
    var areDone: Bool {
        guard isOn, let outbox = world.run?.gateway.outbox else { return true }
        return (try? outbox.replays(atMost: 1))?.first?.isRunning != true
    }

    func atTheEnd() {
        guard isOn, let outbox = world.run?.gateway.outbox else { return }
        for (id, entry) in copies.sorted(by: { $0.key < $1.key }) where !entry.isWaived {
            guard let record = (try? outbox.message(id)) ?? nil else {
                if world.promises.isRemoved(entry) || world.restores > 0 { continue }
                return world.promises.fail("nothing accepted is lost", "\(id), a copy of \(entry.mark), is gone")
            }
            let isExcused =
                entry.wasRejected || entry.isErased || world.plan.settings.dropsOldest(of: entry.upstream)
            guard record.state != .delivered, !isExcused else { continue }
            world.promises.fail("a copy is delivered", "\(id), a copy of \(entry.mark), is \(record.state.name)")
        }
        for replay in (try? outbox.replays(atMost: 100)) ?? [] where !replay.isStopped {
            world.promises.coverage.visit("replay: has ended")
            let dealtWith = replay.done + replay.refused + replay.withoutPayload
            guard isKept, !world.purged.contains(replay.request.upstream), world.restores == 0,
                dealtWith < replay.matched
            else { continue }
            world.promises.fail(
                "a replay is about all that matched", "\(dealtWith) of \(replay.matched) in \(replay.id)")
        }
    }
}
