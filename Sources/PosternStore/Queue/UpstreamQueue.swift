import GRDB
public import PosternCore
import Synchronization

/// One upstream's queue as its worker sees it: what to send next, and what is being sent.
///
/// The rows are the truth and survive; which of them are being sent is kept in memory only, so the claims of a run that
/// died are void by themselves. How rows become batches is the queue's `QueueDiscipline`.
public final class UpstreamQueue: Sendable {
    public let name: UpstreamName
    public let number: UpstreamNumber
    /// What translates for it; replaced when the configuration is reloaded.
    public var upstream: RegisteredUpstream { current.withLock { $0 } }
    private let current: Mutex<RegisteredUpstream>
    public let cap: QueueCap
    /// Whether nothing delivers from it, because its upstream is disabled or no longer configured.
    let isDisabled: Bool
    /// Whether its type examines messages once more when they are stored.
    let acceptsByState: Bool
    let discipline: any QueueDiscipline
    private let pool: DatabasePool
    private let kinds: KindTable
    let writer: OutboxWriter
    let time: any TimeSource
    private let listener = Mutex(Listener())

    /// The worker, and what it needs to know early.
    struct Listener {
        /// How much a batch holds.
        var limits = BatchLimits(maxMessages: 1, maxBytes: 1)
        /// How long messages collect before a batch that is not full is sent.
        var wait = Duration.zero
        /// The age at which messages expire; zero: they do not.
        var expireAfter = Duration.zero
        var wake: @Sendable () -> Void = {}
    }

    init(
        upstream: RegisteredUpstream, number: UpstreamNumber, cap: QueueCap, of outbox: Outbox, newest: MessageID,
        isDisabled: Bool
    ) {
        self.isDisabled = isDisabled
        name = upstream.name
        current = Mutex(upstream)
        self.number = number
        self.cap = cap
        pool = outbox.pool
        kinds = outbox.kinds
        writer = outbox.writer
        time = outbox.time
        acceptsByState = upstream.acceptsByState
        discipline = upstream.laneRule.makeDiscipline(newest: newest)
    }

    /// From now on `upstream` translates: the same name and type with other settings, and perhaps other kinds. Waits for
    /// the writer; call it before messages of the new kinds are accepted. If it throws, nothing has changed.
    public func replace(_ upstream: any Upstream) throws(StoreError) {
        precondition(upstream.name == name, "a queue stays with its upstream")
        let new = RegisteredUpstream(upstream)
        if new.kinds.contains(where: { kinds.number(of: $0) == 0 }) {
            try writer.changeNow { [kinds] transaction in
                try Registration.enter(new.kinds, in: kinds, transaction)
            }
        }
        current.withLock { $0 = new }
    }

    /// Reads the rows on a read-only connection.
    func read<T>(_ body: (QueueRows) throws -> T) throws -> T {
        try pool.read { db in try body(QueueRows(sql: SQL(db), kinds: kinds, number: number)) }
    }

    // MARK: The writer's side

    func listen(_ listener: Listener) { self.listener.withLock { $0 = listener } }

    var collecting: Listener { listener.withLock { $0 } }

    /// Has the worker look at the queue.
    func wake() { collecting.wake() }

    /// Called after the commit.
    func arrived(_ arrival: Arrival, at instant: MonotonicInstant) {
        let listener = collecting
        if discipline.arrived(arrival, at: instant, limits: listener.limits) { listener.wake() }
    }

    /// Called after the commit: something is due at `moment`.
    func isDue(at moment: Timestamp) {
        if discipline.isDue(at: moment) { wake() }
    }

    /// Keeps `id` from being claimed until `doneRemoving`. False while it is being sent.
    func tryRemoving(_ id: MessageID) -> Bool { discipline.tryRemoving(id) }

    /// The removal is committed (`areGone`) or undone.
    func doneRemoving(_ ids: [MessageID], areGone: Bool) {
        if discipline.doneRemoving(ids, areGone: areGone) { wake() }
    }

    /// Called after the commit: ended messages are queued again, under ids from `id` on.
    func cameBack(from id: MessageID) {
        discipline.cameBack(from: id)
        wake()
    }

    // MARK: The worker's side

    /// Whether it is worth claiming, or when it will be. `wait` is how long messages may collect before a batch that is
    /// not full is sent.
    public func readiness(
        limits: BatchLimits, wait: Duration, now: Timestamp, instant: MonotonicInstant
    ) -> Readiness {
        discipline.readiness(limits: limits, wait: wait, now: now, instant: instant)
    }

    /// Takes what is to be sent next and marks it as being sent; empty when there is nothing. Messages accepted until
    /// `oldest` have expired and are taken along in `expired`.
    ///
    /// - Parameters:
    ///   - preference: which to take if there are new messages and ones that have failed before.
    ///   - limitsOfLane: what one request of a separate lane may carry, if that is less than `limits`.
    ///   - mayRepeat: whether a batch that failed before, with its history and size, may be taken now.
    public func claim(
        _ limits: BatchLimits, now: Timestamp, oldest: Timestamp?, preferring preference: ClaimPreference = .inTurn,
        limitsOfLane: ((String) -> BatchLimits)? = nil, mayRepeat: ((BatchHistory, Int) -> Bool)? = nil
    ) throws -> Claim {
        var request = ClaimRequest(limits: limits, now: now, oldest: oldest, preference: preference)
        request.limitsOfLane = limitsOfLane
        if let mayRepeat { request.mayRepeat = mayRepeat }
        request.exclusionOfLane = { [upstream] in upstream.exclusion(ofLane: $0) }
        return try discipline.claim(request, from: self)
    }

    /// The messages are settled: deleted, or no longer this queue's.
    public func release(_ messages: [Message]) {
        if !messages.isEmpty { discipline.release(messages) }
    }

    /// The messages are to be sent again from `dueAt` on, together as far as their lanes are free then. A separate lane
    /// waits as its rows say: settle them as waiting before.
    public func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory = BatchHistory()) {
        if !messages.isEmpty { discipline.sendAgain(messages, from: dueAt, history: history, now: time.now) }
    }

    /// The claim cannot be sent yet, though nothing was tried; `reason` is shown by the API.
    public func postpone(_ claim: Claim, until dueAt: Timestamp, for reason: WaitingFor? = nil) {
        discipline.postpone(claim, until: dueAt, for: reason, of: self)
    }

    /// The claim waits for a credential, unless one has come meanwhile. Only separate lanes have one.
    public func park(_ claim: Claim) { discipline.park(claim, of: self) }

    /// What is due later is due now, once `completion` has been called.
    public func makeDue(at now: Timestamp, completion: @escaping @Sendable () -> Void = {}) {
        discipline.makeDue(at: now, of: self, completion: completion)
    }

    /// The claim was not sent after all: its messages are where they were.
    public func giveBack(_ claim: Claim, now: Timestamp) { discipline.giveBack(claim, now: now) }

    func adoptLeftovers() throws { try discipline.adoptLeftovers(of: self) }

    // MARK: Any thread

    /// What one request may carry, as its worker has said.
    public var limits: BatchLimits { collecting.limits }

    /// Whether the message is being sent.
    public func isInFlight(_ id: MessageID) -> Bool { discipline.isInFlight(id) }

    /// Whether an earlier message of its lane keeps it waiting. May read the store.
    public func isHeldUp(_ id: MessageID, lane: Int64) -> Bool { discipline.isHeldUp(id, lane: lane, in: self) }

    /// How many lanes, or rows that were left, take up memory.
    var countInMemory: Int { discipline.countInMemory }
}
