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
    /// Batches of one lane each (`LaneRule.separate`)?
    let isSeparate: Bool
    /// Does its type look at messages once more when they are stored?
    let acceptsByState: Bool
    private let reader: QueueReader
    private let writer: OutboxWriter
    private let time: any TimeSource
    // Of the two the upstream's lane rule uses one.
    private let mixed = Mutex(ClaimState())
    private let lanes = Mutex(LaneClaims())

    private let listener = Mutex(Listener())

    /// The worker, and how its batches come together.
    private struct Listener {
        var limits = BatchLimits(maxMessages: 1, maxBytes: 1)
        var wait = Duration.zero
        var alarm: @Sendable () -> Void = {}
    }

    // Told by the writer after each commit.
    private let newest = Atomic<Int64>(0)
    private let arrived = Atomic<Int>(0)
    private let arrivedBytes = Atomic<Int>(0)
    private let looked = Atomic<Int>(0)
    private let lookedBytes = Atomic<Int>(0)
    /// When the first message came that was not looked at yet; 0 when all were.
    private let firstArrival = Atomic<Int64>(0)
    /// When the next scheduled message is due, or the next lane.
    private let nextDueMs = Atomic<Int64>(.max)

    init(
        upstream: any Upstream, number: UpstreamNumber, cap: QueueCap, reader: QueueReader, writer: OutboxWriter,
        time: any TimeSource, newest: Int64
    ) {
        name = upstream.name
        current = Mutex(upstream)
        self.number = number
        self.cap = cap
        self.reader = reader
        self.writer = writer
        self.time = time
        acceptsByState = upstream.acceptsByState
        isSeparate = if case .separate = upstream.laneRule { true } else { false }
        self.newest.store(newest, ordering: .relaxed)
    }

    /// From now on `upstream` translates: the same name and type with other settings.
    public func replace(_ upstream: any Upstream) {
        precondition(upstream.name == name, "a queue stays with its upstream")
        current.withLock { $0 = upstream }
    }

    // MARK: The writer's side

    /// Has `alarm` called, on the writer's thread, when there is something new for a worker whose batches hold as much
    /// as `limits` and collect for `wait`.
    func listen(limits: BatchLimits, wait: Duration, _ alarm: @escaping @Sendable () -> Void) {
        listener.withLock { $0 = Listener(limits: limits, wait: wait, alarm: alarm) }
    }

    /// Has the worker look at the queue.
    func alarm() { listener.withLock { $0.alarm }() }

    /// Told after the commit. Wakes the worker by the first arrival after a lull, and when a full batch has come
    /// together.
    func arrived(_ arrival: Arrival, at instant: MonotonicInstant) {
        let listener = listener.withLock { $0 }
        if isWorthALook(arrival, at: instant, limits: listener.limits) { listener.alarm() }
    }

    private func isWorthALook(_ arrival: Arrival, at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        newest.store(arrival.newest, ordering: .releasing)
        let isSooner = arrival.dueAt.map(isDue(at:)) ?? false
        guard !isSeparate, arrival.messages > 0 else { return isSooner }
        let count = arrived.wrappingAdd(arrival.messages, ordering: .relaxed).newValue
        let bytes = arrivedBytes.wrappingAdd(arrival.bytes, ordering: .relaxed).newValue
        let isFirst = firstArrival.compareExchange(
            expected: 0, desired: instant.nanoseconds, ordering: .acquiringAndReleasing
        ).exchanged
        let waiting = count - looked.load(ordering: .relaxed)
        let waitingBytes = bytes - lookedBytes.load(ordering: .relaxed)
        return isFirst || (waiting >= limits.maxMessages && waiting - arrival.messages < limits.maxMessages)
            || (waitingBytes >= limits.maxBytes && waitingBytes - arrival.bytes < limits.maxBytes)
            || isSooner
    }

    /// A scheduled message or a lane is due at `moment`. Answers whether that is news: sooner than anything known, or
    /// the worker has not looked since it had to.
    func isDue(at moment: Timestamp) -> Bool {
        let (known, _) = nextDueMs.min(moment.milliseconds, ordering: .acquiringAndReleasing)
        return moment.milliseconds < known || known == Self.unknown
    }

    /// Keeps `id` from being claimed until `doneRemoving`. False while it is being sent.
    func tryRemoving(_ id: MessageID) -> Bool {
        isSeparate ? lanes.withLock { $0.tryRemoving(id) } : mixed.withLock { $0.tryRemoving(id) }
    }

    /// The removal is committed (`areGone`) or undone.
    func doneRemoving(_ ids: [MessageID], areGone: Bool) {
        let mayGoOn: Bool
        if isSeparate {
            lanes.withLock { $0.doneRemoving(ids) }
            lookAgain()
            mayGoOn = true
        } else {
            mayGoOn = mixed.withLock { state in
                state.doneRemoving(ids, areGone: areGone)
                return state.deferred.hasFree
            }
        }
        if mayGoOn { alarm() }
    }

    /// How the messages of a lane collect: until there are so many, or for so long.
    var collecting: (fullBatch: Int, wait: Duration) { listener.withLock { ($0.limits.maxMessages, $0.wait) } }

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
        let dueMs = nextDueMs.load(ordering: .acquiring)
        let due = Timestamp(milliseconds: dueMs)
        guard !isSeparate else { return due <= now ? .now : due == .never ? .nothing : .due(at: due) }
        return mixed.withLock { state in
            let isCrowded = state.isCrowded
            // A crowded queue has no room for what is scheduled.
            let earliest = min(state.nextGroupDue ?? .never, isCrowded ? .never : due)
            if earliest <= now || state.deferred.hasFree { return .now }
            if !isCrowded {
                if state.isBehind { return .now }
                if newest.load(ordering: .acquiring) > state.cursor.rawValue {
                    let until = collectingUntil(limits: limits, wait: wait)
                    if until <= instant { return .now }
                    let dueIn = earliest == .never ? nil : earliest - now
                    if dueIn.map({ instant + $0 >= until }) ?? true { return .collecting(until: until) }
                }
            }
            return earliest == .never ? .nothing : .due(at: earliest)
        }
    }

    /// When what has arrived should go out: at once when it fills a batch.
    private func collectingUntil(limits: BatchLimits, wait: Duration) -> MonotonicInstant {
        let count = arrived.load(ordering: .relaxed) - looked.load(ordering: .relaxed)
        let bytes = arrivedBytes.load(ordering: .relaxed) - lookedBytes.load(ordering: .relaxed)
        let first = firstArrival.load(ordering: .acquiring)
        let isFull = count >= limits.maxMessages || bytes >= limits.maxBytes
        return isFull || first == 0
            ? MonotonicInstant(nanoseconds: 0) : MonotonicInstant(nanoseconds: first) + wait
    }

    /// Takes what is to be sent next and marks it as being sent; empty when there is nothing. Messages that came too
    /// old are taken along in `expired`.
    /// `limitsOfLane` says what one request of a separate lane may carry, if that is less than `limits`.
    public func claim(
        _ limits: BatchLimits, now: Timestamp, oldest: Timestamp?, limitsOfLane: ((String) -> BatchLimits)? = nil
    ) throws -> Claim {
        // From here on the writer tells of what this look may not see.
        let due = nextDueMs.exchange(.max, ordering: .acquiringAndReleasing)
        var scan = ClaimScan(
            limits: limits, now: now, oldest: oldest, newest: newest.load(ordering: .acquiring),
            scheduledSince: due == .max ? nil : Timestamp(milliseconds: due), limitsOfLane: limitsOfLane)
        defer { _ = isDue(at: scan.nextDue ?? Timestamp(milliseconds: due)) }
        if isSeparate {
            let upstream = upstream
            try lanes.withLock { state in
                try reader.read { rows in try state.claim(&scan, from: rows, exclusion: upstream.exclusion(ofLane:)) }
            }
            if !scan.staleLanes.isEmpty { mend(scan.staleLanes) }
        } else {
            try claimMixed(&scan)
        }
        return Claim(
            messages: scan.batch, expired: scan.expired, isGroup: scan.isGroup, history: scan.history, wakes: scan.wakes
        )
    }

    private func claimMixed(_ scan: inout ClaimScan) throws {
        let first = firstArrival.load(ordering: .acquiring)
        let there = (messages: arrived.load(ordering: .relaxed), bytes: arrivedBytes.load(ordering: .relaxed))
        try mixed.withLock { state in
            try reader.read { rows in try state.claim(&scan, from: rows) }
        }
        // At the end of the queue the two agree again, whatever restarts and second looks have added.
        let looks = looked.load(ordering: .relaxed) + scan.lookedMessages
        looked.store(scan.reachedEnd ? there.messages : min(looks, there.messages), ordering: .relaxed)
        let lookedAt = lookedBytes.load(ordering: .relaxed) + scan.lookedBytes
        lookedBytes.store(scan.reachedEnd ? there.bytes : min(lookedAt, there.bytes), ordering: .relaxed)
        guard scan.reachedEnd || scan.lastLookedAt != nil else { return }
        // The next one came no sooner than the last one looked at.
        let age = scan.lastLookedAt.map { max(.zero, scan.now - $0) } ?? .zero
        _ = firstArrival.compareExchange(
            expected: first, desired: scan.reachedEnd ? 0 : (time.instant + (.zero - age)).nanoseconds,
            ordering: .acquiringAndReleasing)
    }

    /// The messages are settled: deleted, or no longer this queue's.
    public func release(_ messages: [Message]) {
        guard !messages.isEmpty else { return }
        guard isSeparate else { return mixed.withLock { $0.release(messages) } }
        lanes.withLock { $0.release(messages) }
        lookAgain()
    }

    /// The messages are to be sent again, all of them together, from `dueAt` on. A separate lane waits as its rows
    /// say: settle them as waiting before.
    public func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory = BatchHistory()) {
        guard isSeparate else { return mixed.withLock { $0.sendAgain(messages, from: dueAt, history: history) } }
        let isDueNow = dueAt <= time.now
        lanes.withLock { $0.sendAgain(messages, isDueNow: isDueNow, history: history) }
        lookAgain()
    }

    /// The claim cannot be sent yet, though nothing was tried; `reason` is shown to those who ask.
    public func postpone(_ claim: Claim, until dueAt: Timestamp, for reason: WaitingFor? = nil) {
        guard isSeparate else { return sendAgain(claim.messages, from: dueAt, history: claim.history) }
        guard let lane = lanes.withLock({ $0.lane(of: claim.messages) }) else { return }
        writer.change { [self] transaction in
            try transaction.holdLane(lane, of: self, until: dueAt, for: reason, wakes: claim.wakes)
        } completion: { [self] _ in
            lanes.withLock { $0.sendAgain(claim.messages, isDueNow: false, history: claim.history) }
            lookAgain()
            alarm()
        }
    }

    /// The claim waits for a credential, unless one has come meanwhile. Only separate lanes have one.
    public func park(_ claim: Claim) {
        guard let lane = claim.messages.first?.lane else { return }
        writer.change { [self] transaction in
            try transaction.park(lane, of: self)
        } completion: { [self] _ in
            lanes.withLock { $0.sendAgain(claim.messages, isDueNow: false, history: claim.history) }
            lookAgain()
            alarm()
        }
    }

    /// An operator's wish: what is due later is due now, once `completion` has been called.
    public func hurry(to now: Timestamp, completion: @escaping @Sendable () -> Void = {}) {
        guard isSeparate else {
            mixed.withLock { $0.hurry(to: now) }
            return completion()
        }
        writer.change { [self] transaction in
            try transaction.hurryLanes(of: self, to: now)
        } completion: { _ in
            completion()
        }
    }

    /// The claim was not sent after all: its messages stand where they stood.
    public func giveBack(_ claim: Claim, now: Timestamp) {
        if claim.isGroup {
            sendAgain(claim.messages, from: now, history: claim.history)
        } else if isSeparate {
            release(claim.messages)
        } else {
            mixed.withLock { $0.giveBack(claim.messages) }
        }
    }

    /// Rows came back from the ended ones.
    func rewind(to id: MessageID) {
        if isSeparate { lookAgain() } else { mixed.withLock { $0.rewind(before: id) } }
    }

    /// Takes up what a former run left: retries keep their time and hold up their lanes.
    func adoptLeftovers() throws {
        guard !isSeparate else { return lookAgain() }
        let (retries, scheduled) = try reader.read { try $0.leftovers() }
        mixed.withLock { $0.adopt(retries) }
        nextDueMs.store(scheduled?.milliseconds ?? .max, ordering: .releasing)
    }

    /// Separate lanes that take up memory.
    var lanesInMemory: Int { lanes.withLock { $0.count } }

    /// Is it being sent?
    public func isUnderWay(_ id: MessageID) -> Bool {
        isSeparate ? lanes.withLock { $0.isLeased(id) } : mixed.withLock { $0.leased.contains(id) }
    }

    /// Does an earlier message of its lane keep it waiting? Reads the store when lanes are separate.
    public func isHeldUp(_ id: MessageID, lane: Int64) -> Bool {
        guard isSeparate else { return mixed.withLock { $0.isHeld(lane, before: id) } }
        return (try? reader.read { try $0.isBehindOthers(id, lane: lane) }) ?? false
    }

    /// What is known of the lanes may be out of date.
    private func lookAgain() { nextDueMs.store(Self.unknown, ordering: .releasing) }
    /// When the next lane is due, while nobody has looked.
    private static let unknown: Int64 = 0

    /// Ready lanes that had nothing due: their rows say when they are.
    private func mend(_ stale: [Int64]) {
        writer.change { [self] transaction in
            for lane in stale { transaction.touch(lane, of: self, isServed: true) }
        }
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
    /// How often its separate lane had been woken when it was claimed.
    var wakes = 0

    /// The claim on some of its messages.
    public func narrowed(to messages: [Message]) -> Claim {
        Claim(messages: messages, expired: [], isGroup: isGroup, history: history, wakes: wakes)
    }
}
