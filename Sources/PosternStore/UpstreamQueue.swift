public import PosternCore
import Synchronization

/// One upstream's queue as its worker sees it: what to take next, and what is being sent.
///
/// The rows are the truth and survive; who is being sent is kept here in memory only, so a dead run's claims are void
/// by themselves. The worker's thread claims and gives back; the writer's thread tells of arrivals (without a lock)
/// and asks before it removes a row.
public final class UpstreamQueue: Sendable {
    public let name: UpstreamName
    public let number: UpstreamNumber
    /// What translates for it; another one after the configuration was reloaded.
    public var upstream: any Upstream { current.withLock { $0 } }
    private let current: Mutex<any Upstream>
    let cap: QueueCap
    private let reader: QueueReader
    private let state: Mutex<ClaimState>

    // Told by the writer after each commit.
    private let newest = Atomic<Int64>(0)
    private let arrived = Atomic<Int>(0)
    private let arrivedBytes = Atomic<Int>(0)
    private let looked = Atomic<Int>(0)
    private let lookedBytes = Atomic<Int>(0)
    /// When the first message came that was not looked at yet; 0 when all were.
    private let firstArrival = Atomic<Int64>(0)
    private let nextScheduledMs = Atomic<Int64>(.max)

    init(upstream: any Upstream, number: UpstreamNumber, cap: QueueCap, reader: QueueReader, newest: Int64) {
        name = upstream.name
        current = Mutex(upstream)
        self.number = number
        self.cap = cap
        self.reader = reader
        self.newest.store(newest, ordering: .relaxed)
        state = Mutex(ClaimState())
    }

    /// From now on `upstream` translates: the same name and type with other settings.
    public func replace(_ upstream: any Upstream) {
        precondition(upstream.name == name, "a queue stays with its upstream")
        current.withLock { $0 = upstream }
    }

    // MARK: The writer's side

    /// Told after the commit. Returns whether the worker should have a look now: the first arrival after a lull, or a
    /// full batch has come together.
    func arrived(_ arrival: Transaction.Arrival, at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        newest.store(arrival.newest, ordering: .releasing)
        if let due = arrival.scheduledAt { _ = nextScheduledMs.min(due.milliseconds, ordering: .relaxed) }
        let count = arrived.wrappingAdd(arrival.messages, ordering: .relaxed).newValue
        let bytes = arrivedBytes.wrappingAdd(arrival.bytes, ordering: .relaxed).newValue
        let isFirst =
            firstArrival.compareExchange(
                expected: 0, desired: instant.nanoseconds, ordering: .relaxed
            ).exchanged
        let waiting = count - looked.load(ordering: .relaxed)
        let waitingBytes = bytes - lookedBytes.load(ordering: .relaxed)
        return isFirst || (waiting >= limits.maxMessages && waiting - arrival.messages < limits.maxMessages)
            || (waitingBytes >= limits.maxBytes && waitingBytes - arrival.bytes < limits.maxBytes)
            || arrival.scheduledAt != nil
    }

    /// Keeps `id` from being claimed until `doneRemoving`. False while it is being sent.
    func tryRemoving(_ id: MessageID) -> Bool {
        state.withLock { state in
            guard !state.leased.contains(id) else { return false }
            state.removing.insert(id)
            return true
        }
    }

    /// The removal is committed or undone.
    func doneRemoving(_ ids: [MessageID]) {
        state.withLock { $0.removing.subtract(ids) }
    }

    // MARK: The worker's side

    /// When there will be something to claim, as far as is known; nil when only an arrival can change that.
    public enum Ripeness: Sendable, Equatable {
        case now
        /// New messages collect until then.
        case collecting(until: MonotonicInstant)
        /// Something is due at that time.
        case due(at: Timestamp)
        case nothing
    }

    /// Is it worth claiming? `wait` is how long messages may collect before a batch that is not full goes out.
    public func ripeness(limits: BatchLimits, wait: Duration, now: Timestamp, instant: MonotonicInstant) -> Ripeness {
        state.withLock { state in
            let groupDue = state.groups.map(\.dueAt).min()
            if let groupDue, groupDue <= now { return .now }
            let scheduled = nextScheduledMs.load(ordering: .relaxed)
            if scheduled <= now.milliseconds || state.isBehind || state.mayHaveFreed { return .now }
            let earliest = min(groupDue?.milliseconds ?? .max, scheduled)
            let hasNew = newest.load(ordering: .acquiring) > state.cursor.rawValue
            if hasNew, !state.isCrowded(limits) {
                let count = arrived.load(ordering: .relaxed) - looked.load(ordering: .relaxed)
                let bytes = arrivedBytes.load(ordering: .relaxed) - lookedBytes.load(ordering: .relaxed)
                if count >= limits.maxMessages || bytes >= limits.maxBytes { return .now }
                let first = firstArrival.load(ordering: .relaxed)
                let until = MonotonicInstant(nanoseconds: first) + wait
                if first == 0 || until <= instant { return .now }
                if earliest == .max { return .collecting(until: until) }
                let dueIn = Duration.milliseconds(earliest - now.milliseconds)
                return instant + dueIn < until
                    ? .due(at: Timestamp(milliseconds: earliest)) : .collecting(until: until)
            }
            return earliest == .max ? .nothing : .due(at: Timestamp(milliseconds: earliest))
        }
    }

    /// Takes what is to be sent next and marks it as being sent; empty when there is nothing. Messages that came too
    /// old are taken along in `expired`.
    public func claim(_ limits: BatchLimits, now: Timestamp, oldest: Timestamp?) throws -> Claim {
        let instantOfFirst = firstArrival.load(ordering: .relaxed)
        return try state.withLock { state in
            var scan = ClaimScan(limits: limits, now: now, oldest: oldest, newest: newest.load(ordering: .acquiring))
            let there = (messages: arrived.load(ordering: .relaxed), bytes: arrivedBytes.load(ordering: .relaxed))
            try reader.read { rows in try state.claim(&scan, from: rows) }
            // At the end of the queue the two agree again, whatever restarts and second looks have added.
            let looks = looked.load(ordering: .relaxed) + scan.lookedMessages
            looked.store(scan.reachedEnd ? there.messages : min(looks, there.messages), ordering: .relaxed)
            let lookedAt = lookedBytes.load(ordering: .relaxed) + scan.lookedBytes
            lookedBytes.store(scan.reachedEnd ? there.bytes : min(lookedAt, there.bytes), ordering: .relaxed)
            if scan.lookedMessages > 0 || scan.reachedEnd {
                _ = firstArrival.compareExchange(
                    expected: instantOfFirst, desired: scan.reachedEnd ? 0 : SystemTime().instant.nanoseconds,
                    ordering: .relaxed)
            }
            if let next = scan.nextScheduled { nextScheduledMs.store(next.milliseconds, ordering: .relaxed) }
            return Claim(
                messages: scan.batch, expired: scan.expired, isGroup: scan.isGroup, history: scan.history)
        }
    }

    /// The messages are settled: deleted, or no longer this queue's.
    public func release(_ messages: [Message]) {
        state.withLock { $0.release(messages) }
    }

    /// The messages are to be sent again, all of them together, from `dueAt` on.
    public func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory = BatchHistory()) {
        state.withLock { $0.sendAgain(messages, from: dueAt, history: history) }
    }

    /// An operator's wish: what is due later is due now.
    public func hurry(to now: Timestamp) { state.withLock { $0.hurry(to: now) } }

    /// The claim was not sent after all: its messages stand where they stood.
    public func giveBack(_ claim: Claim, now: Timestamp) {
        state.withLock { state in
            if claim.isGroup {
                state.sendAgain(claim.messages, from: now, history: claim.history)
            } else {
                state.giveBack(claim.messages)
            }
        }
        // Scheduled ones among them are found by their time, not by their place.
        nextScheduledMs.store(0, ordering: .relaxed)
    }

    /// Rows came back from the ended ones.
    func rewind(to id: MessageID) {
        state.withLock { $0.rewind(before: id) }
    }

    /// Takes up what a former run left: retries keep their time and hold up their lanes.
    func adopt(_ retries: [(id: MessageID, lane: Int64, dueAt: Timestamp)], nextScheduled: Timestamp?) {
        state.withLock { $0.adopt(retries) }
        nextScheduledMs.store(nextScheduled?.milliseconds ?? .max, ordering: .relaxed)
    }

    /// Is it being sent?
    public func isUnderWay(_ id: MessageID) -> Bool { state.withLock { $0.leased.contains(id) } }

    /// Does an earlier message of its lane keep it waiting?
    public func isHeldUp(_ id: MessageID, lane: Int64) -> Bool {
        state.withLock { $0.isHeld(lane, before: id) }
    }
}

/// What a worker may send now.
public struct Claim: Sendable {
    public let messages: [Message]
    /// Too old to be sent.
    public let expired: [Message]
    /// Was it sent before, in exactly this composition?
    public let isGroup: Bool
    public let history: BatchHistory

    /// The claim on some of its messages.
    public func narrowed(to messages: [Message]) -> Claim {
        Claim(messages: messages, expired: [], isGroup: isGroup, history: history)
    }
}
