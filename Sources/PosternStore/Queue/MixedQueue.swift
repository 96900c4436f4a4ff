import PosternCore
import Synchronization

/// A queue whose batches mix lanes: the oldest messages of any, passing over lanes in which an earlier one is not done.
///
/// Two values with one owner each. `claims` is the worker's; it is locked while a claim reads the store, and the writer's
/// thread never takes that lock. `exchange` is what the two tell each other: arrivals, scheduled times, who is being
/// sent and who is being removed. It is locked for a few instructions only. Both at once: `claims` first.
final class MixedQueue: QueueDiscipline {
    private let claims = Mutex(MixedClaims())
    private let exchange: Mutex<MixedExchange>

    init(newest: MessageID) { exchange = Mutex(MixedExchange(newest: newest)) }

    // MARK: After the commit

    func arrived(_ arrival: Arrival, at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        exchange.withLock { exchange in
            let isNew = exchange.arrivals.add(
                through: MessageID(rawValue: arrival.newest), messages: arrival.messages, bytes: arrival.bytes,
                at: instant, limits: limits)
            let isSooner = arrival.dueAt.map { exchange.due.announce($0) } ?? false
            return isNew || isSooner
        }
    }

    func isDue(at moment: Timestamp) -> Bool { exchange.withLock { $0.due.announce(moment) } }

    func tryRemoving(_ id: MessageID) -> Bool { exchange.withLock { $0.leases.tryRemoving(id) } }

    func doneRemoving(_ ids: [MessageID], areGone: Bool) -> Bool {
        exchange.withLock { $0.doneRemoving(ids, areGone: areGone) }
    }

    func cameBack(from id: MessageID) {
        exchange.withLock { $0.news.cameBackFrom = min($0.news.cameBackFrom ?? id, id) }
    }

    // MARK: The worker's side

    func adoptLeftovers(of queue: UpstreamQueue) throws {
        let (retries, scheduled) = try queue.read { try $0.leftovers() }
        claims.withLock { $0.adopt(retries) }
        exchange.withLock { $0.due = NextDue(scheduled ?? .never) }
    }

    func readiness(limits: BatchLimits, wait: Duration, now: Timestamp, instant: MonotonicInstant) -> Readiness {
        claims.withLock { claims in
            exchange.withLock { exchange in
                claims.hear(exchange.takeNews())
                // At the scan limit there is no room for what is scheduled or new.
                let isAtLimit = claims.isAtScanLimit
                if claims.hasFree || claims.mustVerify || (claims.isBehind && !isAtLimit) { return .now }
                let due = claims.nextGroupDue ?? .never
                if isAtLimit { return due <= now ? .now : due == .never ? .nothing : .due(at: due) }
                return exchange.readiness(limits: limits, wait: wait, now: now, instant: instant, otherDue: due)
            }
        }
    }

    func claim(_ request: ClaimRequest, from queue: UpstreamQueue) throws -> Claim {
        try claims.withLock { claims in
            let (newest, due) = exchange.withLock { exchange in
                claims.hear(exchange.takeNews())
                return exchange.beginLook()
            }
            var scan = ClaimScan(request, newest: newest, due: due)
            do {
                try queue.read { rows in
                    try claims.look(&scan, from: rows) { id in exchange.withLock { $0.leases.contains(id) } }
                }
            } catch {
                exchange.withLock { $0.abandonLook(scan) }
                throw error
            }
            let found = scan.messages
            exchange.withLock { exchange in
                let refused = exchange.endLook(&scan, through: claims.cursor)
                claims.end(found, as: exchange.leases, refused: Set(refused))
            }
            return scan.claim
        }
    }

    func release(_ messages: [Message]) { claims.withLock { endFlight(of: messages, &$0) } }

    func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory, now: Timestamp) {
        claims.withLock { claims in
            claims.sendAgain(messages, from: dueAt, history: history)
            endFlight(of: messages, &claims)
        }
    }

    func giveBack(_ claim: Claim, now: Timestamp) {
        if claim.isGroup { return sendAgain(claim.messages, from: now, history: claim.history, now: now) }
        claims.withLock { claims in
            claims.giveBack(claim.messages)
            endFlight(of: claim.messages, &claims)
        }
    }

    private func endFlight(of messages: [Message], _ claims: inout MixedClaims) {
        let lanes = exchange.withLock { exchange in messages.compactMap { exchange.leases.end($0.id) } }
        for lane in lanes { claims.endFlight(in: lane) }
    }

    func postpone(_ claim: Claim, until dueAt: Timestamp, for reason: WaitingFor?, of queue: UpstreamQueue) {
        claims.withLock { claims in
            claims.postpone(claim.messages, until: dueAt, history: claim.history)
            endFlight(of: claim.messages, &claims)
        }
    }

    /// A lane without a name waits for no credential.
    func park(_ claim: Claim, of queue: UpstreamQueue) { giveBack(claim, now: queue.time.now) }

    func makeDue(at now: Timestamp, of queue: UpstreamQueue, completion: @escaping @Sendable () -> Void) {
        claims.withLock { $0.makeDue(at: now) }
        completion()
    }

    // MARK: Any thread

    func isInFlight(_ id: MessageID) -> Bool { exchange.withLock { $0.leases.contains(id) } }

    func isHeldUp(_ id: MessageID, lane: Int64, in queue: UpstreamQueue) -> Bool {
        claims.withLock { $0.isHeld(id, in: lane) }
    }

    var countInMemory: Int { claims.withLock { $0.countInMemory } }
}

/// What the writer's thread and the worker of a mixed queue tell each other. A plain value.
struct MixedExchange {
    /// What the worker has to hear before it looks again.
    struct News {
        /// Removals that are over.
        var removals: [MixedClaims.Removal] = []
        /// There were more of them than are written down.
        var isCut = false
        var cameBackFrom: MessageID?
    }

    /// The most removals that are kept for a worker that does not look, for example because its upstream is paused.
    static let newsLimit = 4096

    var arrivals: Arrivals
    var due = NextDue()
    var leases = Leases()
    var news = News()

    init(newest: MessageID) { arrivals = Arrivals(newest: newest) }

    /// Returns whether the worker has to be woken: it has been told of nothing that it has not heard yet.
    mutating func doneRemoving(_ ids: [MessageID], areGone: Bool) -> Bool {
        leases.doneRemoving(ids, areGone: areGone)
        let hadNone = news.removals.isEmpty && !news.isCut
        news.isCut = news.isCut || news.removals.count + ids.count > Self.newsLimit
        if news.isCut {
            news.removals = []
        } else {
            news.removals += ids.map { .init(id: $0, isGone: areGone) }
        }
        return hadNone
    }

    mutating func takeNews() -> News {
        defer { news = News() }
        return news
    }

    /// When there is something new or scheduled to claim, or something else that is due at `otherDue`.
    func readiness(
        limits: BatchLimits, wait: Duration, now: Timestamp, instant: MonotonicInstant, otherDue: Timestamp = .never
    ) -> Readiness {
        let due = min(due.moment, otherDue)
        if due <= now { return .now }
        guard let ready = arrivals.readyAt(after: wait, limits: limits) else {
            return due == .never ? .nothing : .due(at: due)
        }
        if ready <= instant { return .now }
        return due != .never && instant + (due - now) < ready ? .due(at: due) : .collecting(until: ready)
    }

    // MARK: One look at the queue

    /// Returns what a look begins with: the newest id announced, and when the next scheduled row was known to be due.
    mutating func beginLook() -> (newest: MessageID, due: Timestamp) {
        leases.beginLook()
        return (arrivals.newest, due.beginLook())
    }

    /// Leases what was found, and returns what it may not have.
    mutating func endLook(_ scan: inout ClaimScan, through cursor: MessageID) -> [MessageID] {
        due.endLook(scan.nextDue ?? scan.due)
        arrivals.looked(through: cursor, count: scan.lookedMessages, size: scan.lookedBytes)
        let refused = leases.endLook(taking: scan.messages) { $0.lane.number }
        if scan.count > 0 { scan.keep(leases.contains) }
        return refused
    }

    mutating func abandonLook(_ scan: ClaimScan) {
        due.endLook(scan.due)
        leases.abandonLook()
    }
}
