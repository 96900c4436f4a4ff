public import PosternCore
public import PosternUpstream
import Synchronization

/// The claims of a queue that this process has adopted, for its worker: what to send next, and what is being sent.
///
/// The rows are durable. Which of them are being sent is kept in memory only, so the claims of a process that was
/// killed, or of a queue that was dropped, are void.
///
/// That memory consists of two values with one owner each. `claims` belongs to the worker and decides how rows become
/// batches; it is locked while a claim reads the store, and the writer's thread never takes that lock. `mailbox` is
/// what the two report to each other; it is locked for a few instructions only. If both are locked, `claims` is locked
/// first.
public final class UpstreamQueue: Sendable {
    public let target: QueueTarget
    public var name: UpstreamName { target.name }
    public var number: UpstreamNumber { target.number }
    public var upstream: AnyUpstream { target.upstream }
    private let claims: Mutex<any QueueClaims>
    private let mailbox: Mutex<QueueMailbox>
    /// Used by claims only.
    private let unheard = Mutex(UnheardArrivals())
    private let engine: any StoreEngine
    /// Of its lanes; `inAppend` if it has no separate ones.
    private let laneAdmission: LaneAdmission
    private let readers: Readers
    private let kinds: KindTable
    private let health: StoreHealth
    let writer: OutboxWriter
    let time: any TimeSource
    private let listener = Mutex(Listener())

    /// The worker.
    private struct Listener {
        var wake: @Sendable () -> Void = {}
        var pause: @Sendable (Pause?) -> Void = { _ in }
        var flush: @Sendable () -> Void = {}
    }

    /// Nothing of it has been examined. `Outbox.adopt` makes it known to the writer.
    init(_ target: QueueTarget, of outbox: Outbox) {
        self.target = target
        engine = outbox.engine
        readers = outbox.readers
        kinds = outbox.kinds
        health = outbox.health
        writer = outbox.writer
        time = outbox.time
        let traits = target.upstream.traits
        let (made, announcements) = traits.laneRule.makeClaims(
            newest: MessageID(rawValue: Int64(outbox.ledger(of: target.number).lastID)),
            hasOtherWriters: outbox.engine.isShared,
            sendsKindsApart: traits.sendsKindsApart)
        laneAdmission = announcements == nil ? outbox.engine.laneAdmission : .inAppend
        var claims = made
        claims.share(by: target.fairness?.weights)
        self.claims = Mutex(claims)
        mailbox = Mutex(QueueMailbox(announcements: announcements))
    }

    /// Reads the rows on a read-only connection.
    func read<T>(_ body: (QueueRows) throws -> T) throws -> T {
        try readers.readSnapshot { try body(QueueRows(sql: $0, kinds: kinds, number: number)) }
    }

    // MARK: The writer's side

    /// Calls `wake`, on the writer's thread, when the queue has something new for a worker whose batches hold as much
    /// as `limits` and collect for `wait`. Messages of the age `expireAfter` expire, whatever the worker does; zero
    /// means never.
    public func onArrival(
        limits: BatchLimits, wait: Duration = .zero, expireAfter: Duration = .zero,
        _ wake: @escaping @Sendable () -> Void
    ) {
        target.collect(upTo: limits, for: wait, expireAfter: expireAfter)
        listener.withLock { $0.wake = wake }
    }

    /// Calls these, on the writer's thread, when a request of an operator was stored because it found no worker: one that
    /// pauses or resumes the upstream, and one that flushes its queue.
    public func onStoredRequests(
        pause: @escaping @Sendable (Pause?) -> Void, flush: @escaping @Sendable () -> Void
    ) {
        listener.withLock { ($0.pause, $0.flush) = (pause, flush) }
    }

    /// Wakes the worker.
    func wake() { listener.withLock { $0.wake }() }

    func paused(_ pause: Pause?) { listener.withLock { $0.pause }(pause) }

    /// Called after the commit that made everything due. What was loaded before it says otherwise.
    func flushed(at now: Timestamp) {
        mailbox.withLock { $0.updates.makesDueAt = now }
        listener.withLock { $0.flush }()
    }

    /// Called after the commit.
    func arrived(_ notice: AppendNotice, at instant: MonotonicInstant) {
        if mailbox.withLock({ $0.add(notice, at: instant, limits: target.limits) }) { wake() }
        if case .byOwner(let delay) = laneAdmission { hear(of: notice.first...notice.newest, admittingAfter: delay) }
    }

    /// Claims of a mixed queue may have passed this message, whose commit came late. Those of another one read each lane from its
    /// first row.
    func mayHavePassed(_ id: MessageID) {
        guard laneAdmission == .inAppend else { return }
        mailbox.withLock { $0.updates.rewind(to: id) }
    }

    /// Called after the commit: something is due at `moment`.
    func announceDue(at moment: Timestamp) {
        if mailbox.withLock({ $0.due.announce(moment) }) { wake() }
    }

    /// Prevents `id` from being claimed until `doneRemoving`. Returns false if it is being sent.
    func tryRemoving(_ id: MessageID) -> Bool { mailbox.withLock { $0.leases.tryRemoving(id) } }

    /// The removal is committed (`areGone`) or undone.
    func doneRemoving(_ ids: [MessageID], areGone: Bool) {
        if mailbox.withLock({ $0.doneRemoving(ids, areGone: areGone) }) { wake() }
    }

    /// Called after the commit: ended messages are queued again, under ids from the first to the last of these.
    func requeued(_ ids: ClosedRange<MessageID>) {
        mailbox.withLock { $0.updates.rewind(to: ids.lowerBound) }
        if case .byOwner(let delay) = laneAdmission { hear(of: ids, admittingAfter: delay) }
        wake()
    }

    // MARK: Admitting lanes

    private func hear(of ids: ClosedRange<MessageID>, admittingAfter delay: Duration) {
        mailbox.withLock { $0.hear(of: ids) }
        if delay == .zero { admitLanes() } else { announceDue(at: time.now + delay) }
    }

    /// Opens the lanes of what was stored, so that it can be claimed. If that fails, a later claim tries again.
    private func admitLanes() {
        guard let ids = mailbox.withLock({ $0.beginAdmission() }) else { return }
        writer.change { [self] transaction in
            // What was dropped since then is the next owner's, which admits all.
            guard transaction.outbox.queues.adopted(number) === self else { return }
            try transaction.admitLanes(of: target, ids)
        } completion: { [self] result in
            if case .failure = result { hear(of: ids, admittingAfter: .seconds(1)) }
            mailbox.withLock { $0.endAdmission() }
            wake()
        }
    }

    /// Whether messages are stored whose lanes are still to be admitted.
    public var isAdmitting: Bool { laneAdmission != .inAppend && mailbox.withLock { $0.isAdmitting } }

    // MARK: The worker's side

    /// Has the messages take turns; see `QueueClaims.share`.
    func share(by weights: [Int64: Int]?) {
        claims.withLock { $0.share(by: weights) }
        wake()
    }

    /// Whether a claim would find messages now, or when. `wait` is how long messages may collect before a batch that is
    /// not full is sent.
    public func readiness(
        limits: BatchLimits, wait: Duration, now: Timestamp, instant: MonotonicInstant
    ) -> Readiness {
        claims.withLock { claims in
            mailbox.withLock { mailbox in
                claims.apply(mailbox.takeUpdates())
                if claims.mustScan { return .now }
                let due = claims.nextGroupDue ?? .never
                // At the scan limit there is no room for what is scheduled or new.
                if claims.isAtScanLimit { return due <= now ? .now : due == .never ? .nothing : .due(at: due) }
                return mailbox.readiness(limits: limits, wait: wait, now: now, instant: instant, otherDue: due)
            }
        }
    }

    /// Whether a message up to `id` is being sent, or could be sent now or after one that is. Not known of messages whose
    /// lanes are not admitted, which count as such.
    public func maySend(through id: MessageID, now: Timestamp) throws -> Bool {
        try claims.withLock { claims in
            let isInFlight = mailbox.withLock { mailbox in
                claims.apply(mailbox.takeUpdates())
                return mailbox.leases.hasAny(through: id)
            }
            return try isInFlight || isAdmitting || read { try claims.maySend(through: id, now: now, from: $0) }
        }
    }

    /// Takes the messages to be sent next and marks them as being sent; empty if there are none. Messages that were
    /// accepted up to `oldest` have expired and are returned in `expired`.
    ///
    /// On a full disk these are few: the log must have room for what settles them.
    ///
    /// - Parameters:
    ///   - preference: which to take if there are new messages and ones that have failed before.
    ///   - waitingKinds: kinds of which nothing is taken, and until when, if kinds are sent apart.
    ///   - maxMessagesOfKind: what one request of a kind may carry, if that is less than `limits`.
    ///   - limitsOfLane: what one request of a separate lane may carry, if that is less than `limits`.
    ///   - mayRepeat: whether a batch that failed before, with its history and size, may be taken now.
    public func claim(
        _ limits: BatchLimits, now: Timestamp, oldest: Timestamp?, preferring preference: ClaimPreference = .inTurn,
        waitingKinds: [Kind: Timestamp] = [:], maxMessagesOfKind: [Kind: Int] = [:],
        limitsOfLane: ((String) -> BatchLimits)? = nil, mayRepeat: ((BatchHistory, Int) -> Bool)? = nil
    ) throws -> Claim {
        var request = ClaimRequest(limits: limits, now: now, oldest: oldest, preference: preference)
        request.limitsOfLane = limitsOfLane
        (request.waitingKinds, request.maxMessagesOfKind) = (waitingKinds, maxMessagesOfKind)
        if health.condition == .full { request.maxMessages = engine.messagesPerCommitWhenFull }
        if let mayRepeat { request.mayRepeat = mayRepeat }
        if let exclusion = upstream.traits.exclusion { request.exclusionOfLane = exclusion }
        let (claim, staleLanes) = try claim(request)
        // After the scan, which forgets what was announced before it.
        if laneAdmission != .inAppend { admitLanes() }
        if !staleLanes.isEmpty {
            // They were ready and had nothing due: their rows contain the time at which they are.
            writer.change { [self] transaction in
                for lane in staleLanes { transaction.touch(lane, of: target, isServed: true) }
            } completion: { [self] result in
                // No later event would make the worker look at these lanes.
                if case .failure = result { announceDue(at: time.now + .seconds(1)) }
            }
        }
        return claim
    }

    private func claim(_ request: ClaimRequest) throws -> (Claim, staleLanes: [Int64]) {
        try claims.withLock { claims in
            let (newest, due) = mailbox.withLock { mailbox in
                claims.apply(mailbox.takeUpdates())
                return mailbox.beginScan()
            }
            var scan = ClaimScan(request, newest: newest, due: due)
            do {
                try read { rows in
                    try goBackToArrivals(&claims, with: rows)
                    try claims.look(&scan, from: rows) { id in mailbox.withLock { $0.leases.contains(id) } }
                }
            } catch {
                claims.abandon(scan)
                mailbox.withLock { $0.abandonScan(scan, frontier: claims.frontier) }
                throw error
            }
            let found = scan.messages
            mailbox.withLock { mailbox in
                let refused = mailbox.endScan(&scan, through: claims.cursor, frontier: claims.frontier)
                claims.end(scan, found: found, as: mailbox.leases, refused: refused.map(Set.init))
            }
            return (scan.claim, scan.staleLanes)
        }
    }

    /// Has the claims of a mixed queue begin with the messages that were committed behind others with later ids.
    private func goBackToArrivals(_ claims: inout any QueueClaims, with rows: QueueRows) throws {
        guard laneAdmission == .inAppend, engine.isShared else { return }
        let first = try unheard.withLock { try $0.firstOfNew(in: number, with: rows.sql) }
        // Messages of this process are announced before their clients can send others that follow them. The snapshot may
        // have both.
        let late = mailbox.withLock { $0.updates.takeRewind() }
        guard let id = [first, late].compactMap(\.self).min() else { return }
        var updates = QueueMailbox.PendingUpdates()
        updates.rewind(to: id)
        claims.apply(updates)
    }

    /// The messages are settled: deleted, or no longer this queue's.
    public func release(_ messages: [Message]) { end(messages, as: .settled) }

    /// The messages are to be sent again from `dueAt` on, together as far as their lanes are free then. A separate lane
    /// waits as its rows say: settle them as waiting before.
    public func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory = BatchHistory()) {
        end(messages, as: .again(from: dueAt, isDueNow: dueAt <= time.now, history: history))
    }

    /// The claim was not sent after all. Its messages keep their position.
    public func giveBack(_ claim: Claim, now: Timestamp) {
        if claim.isGroup { return sendAgain(claim.messages, from: now, history: claim.history) }
        end(claim.messages, as: .unsent)
    }

    private func end(_ messages: [Message], as end: ClaimEnd) {
        guard !messages.isEmpty else { return }
        claims.withLock { claims in
            let ended = mailbox.withLock { $0.end(messages) }
            claims.end(ended, as: end)
        }
    }

    /// The claim cannot be sent yet, and no attempt was made; `reason` is shown by the API. `onFailure`: called if the wait
    /// cannot be stored, on the writer's thread and before the messages can be claimed again.
    public func postpone(
        _ claim: Claim, until dueAt: Timestamp, for reason: WaitReason? = nil,
        onFailure: @escaping @Sendable (StoreError) -> Void = { _ in }
    ) {
        guard let first = claim.messages.first else { return }
        guard case .named(let lane, _) = first.lane else {
            return end(claim.messages, as: .postponed(kind: first.kind, until: dueAt, history: claim.history))
        }
        suspend(claim, onFailure) { [self] transaction in
            try transaction.holdLane(lane, of: target, until: dueAt, for: reason, wakes: claim.wakes)
        }
    }

    /// The claim waits for a credential, unless one has arrived meanwhile. A lane without a name does not wait.
    /// `onFailure`: as for `postpone`.
    public func park(_ claim: Claim, onFailure: @escaping @Sendable (StoreError) -> Void = { _ in }) {
        guard let lane = claim.messages.first?.lane, lane.isNamed else { return giveBack(claim, now: time.now) }
        suspend(claim, onFailure) { [self] transaction in try transaction.park(lane, of: target) }
    }

    /// Ends the claim once its wait has been stored in the row of its lane. If that fails, the worker would claim the same
    /// again at once: it has to know before it can.
    private func suspend(
        _ claim: Claim, _ onFailure: @escaping @Sendable (StoreError) -> Void,
        _ change: @escaping @Sendable (Transaction) throws -> Void
    ) {
        writer.change(change) { [self] result in
            if case .failure(let error) = result { onFailure(error) }
            mailbox.withLock { $0.suspend(claim) }
            if case .success = result { wake() }
        }
    }

    /// Makes everything due now. It is effective when `completion` is called.
    public func makeDue(at now: Timestamp, completion: @escaping @Sendable () -> Void = {}) {
        let isInMemory = claims.withLock { $0.makeDue(at: now) }
        if isInMemory { completion() }
        writer.change { [self] transaction in
            // If the clock was set back, the next run would wait for what the rows of a mixed queue say.
            if isInMemory {
                try transaction.makeRetriesDue(of: target, at: now)
            } else {
                try transaction.makeLanesDue(of: target, at: now)
            }
        } completion: { _ in
            if !isInMemory { completion() }
        }
    }

    /// Makes due now what waits for its endpoint or for credentials.
    public func wakeHeld(at now: Timestamp) {
        guard !claims.withLock({ $0.makePostponedDue(at: now) }) else { return }
        writer.change { [self] transaction in try transaction.wakeHeldLanes(of: target, at: now) }
    }

    /// Loads what a former owner has left. What is announced meanwhile counts, too.
    func adoptLeftovers() throws {
        try claims.withLock { claims in
            let known = mailbox.withLock { $0.due.beginScan() }
            var due: Timestamp?
            defer { mailbox.withLock { $0.due.endScan(due ?? known) } }
            due = try read { try claims.adoptLeftovers(from: $0) }
        }
    }

    // MARK: Any thread

    /// Whether the message is being sent.
    func isInFlight(_ id: MessageID) -> Bool { mailbox.withLock { $0.leases.contains(id) } }

    /// Whether an earlier message of its lane keeps it waiting. May read the store.
    func isHeldUp(_ id: MessageID, lane: Int64) -> Bool {
        // The result only explains a wait; if it cannot be read, the message shows none.
        claims.withLock { $0.isHeldUp(id, in: lane) }
            ?? (try? read { try $0.isBehindOthers(id, lane: lane, now: time.now) }) ?? false
    }

    /// The number of lanes, or of skipped rows, in memory.
    var countInMemory: Int { claims.withLock { $0.countInMemory } }
}
