import PosternCore
import PosternUpstream

/// What the writer's thread and the worker of a queue report to each other: arrivals, scheduled times, what is being
/// sent, and what is being removed. A plain value, locked for a few instructions only.
struct QueueMailbox {
    /// What the worker has to know before its next scan.
    struct PendingUpdates {
        /// Messages that the writer was about to remove.
        var removals: [(id: MessageID, isGone: Bool)] = []
        /// Whether there were more of them than are recorded.
        var isCut = false
        /// The oldest message that came after others with later ids: it was queued again, or its commit came late.
        /// Claims may have passed it.
        private(set) var rewindsTo: MessageID?
        /// When everything became due, also what claims know to be due later.
        var makesDueAt: Timestamp?
        /// Batches whose wait has been stored in the row of their lane.
        var suspended: [(ended: [Lease], history: BatchHistory)] = []

        mutating func rewind(to id: MessageID) { rewindsTo = min(rewindsTo ?? id, id) }

        mutating func takeRewind() -> MessageID? {
            defer { rewindsTo = nil }
            return rewindsTo
        }
    }

    /// The maximum number of removals that are kept for a worker that does not scan, for example because its upstream
    /// is paused.
    static let maxPendingRemovals = 4096

    /// Nil if messages are collected in the rows of their lanes, which contain the time at which they are due.
    var announcements: Announcements?
    var due = NextDue()
    var leases = Leases()
    var updates = PendingUpdates()
    /// The oldest and the newest of the messages whose lanes have to be admitted; nil if there are none.
    private var unadmitted: ClosedRange<MessageID>?
    /// The number of admissions that are not committed.
    private var admissions = 0

    init(announcements: Announcements?) { self.announcements = announcements }

    /// Returns whether the worker has to be woken: not if a wake-up is pending already.
    mutating func doneRemoving(_ ids: [MessageID], areGone: Bool) -> Bool {
        leases.doneRemoving(ids, areGone: areGone)
        let hadNone = updates.removals.isEmpty && !updates.isCut
        updates.isCut = updates.isCut || updates.removals.count + ids.count > Self.maxPendingRemovals
        if updates.isCut {
            updates.removals = []
        } else {
            updates.removals += ids.map { ($0, areGone) }
        }
        return hadNone
    }

    /// Announces the messages of a commit. Returns whether the worker has to be woken.
    mutating func add(_ notice: AppendNotice, at instant: MonotonicInstant, limits: BatchLimits) -> Bool {
        let isSooner = notice.dueAt.map { due.announce($0) } ?? false
        let isNew =
            switch announcements?.add(notice, at: instant, limits: limits) {
            case .collected(let wakes): wakes
            case .late: rewind(to: notice.first)
            case nil: false
            }
        return isNew || isSooner
    }

    /// Claims may have passed this message. Returns whether the worker has to be woken.
    private mutating func rewind(to id: MessageID) -> Bool {
        defer { updates.rewind(to: id) }
        return updates.rewindsTo == nil
    }

    /// Messages were stored whose lanes have to be admitted.
    mutating func hear(of ids: ClosedRange<MessageID>) {
        let known = unadmitted ?? ids
        unadmitted = min(known.lowerBound, ids.lowerBound)...max(known.upperBound, ids.upperBound)
    }

    /// Returns the messages of which nothing is admitted yet; nil if there are none.
    mutating func beginAdmission() -> ClosedRange<MessageID>? {
        defer { unadmitted = nil }
        if unadmitted != nil { admissions += 1 }
        return unadmitted
    }

    mutating func endAdmission() { admissions -= 1 }

    var isAdmitting: Bool { unadmitted != nil || admissions > 0 }

    /// Ends the leases of `messages`. Returns those that existed.
    mutating func end(_ messages: [Message]) -> [Lease] { messages.indices.compactMap { leases.end(messages[$0].id) } }

    /// Ends a claim whose wait has been stored in the row of its lane, and notifies the worker.
    mutating func suspend(_ claim: Claim) { updates.suspended.append((end(claim.messages), claim.history)) }

    mutating func takeUpdates() -> PendingUpdates {
        defer { updates = PendingUpdates() }
        return updates
    }

    private mutating func endScan(through frontier: MessageID) {
        if let late = announcements?.endScan(through: frontier) { updates.rewind(to: late) }
    }

    /// When there is something new or scheduled to claim, or something else that is due at `otherDue`.
    func readiness(
        limits: BatchLimits, wait: Duration, now: Timestamp, instant: MonotonicInstant, otherDue: Timestamp = .never
    ) -> Readiness {
        let due = min(due.moment, otherDue)
        if due <= now { return .now }
        guard let ready = announcements?.readyAt(after: wait, limits: limits) else {
            return due == .never ? .nothing : .due(at: due)
        }
        if ready <= instant { return .now }
        return due != .never && instant + (due - now) < ready ? .due(at: due) : .collecting(until: ready)
    }

    // MARK: One scan of the queue

    /// Begins a scan. Returns the newest id that was announced, and when the next scheduled row was known to be due.
    mutating func beginScan() -> (newest: MessageID, due: Timestamp) {
        leases.beginScan()
        announcements?.beginScan()
        return (announcements?.newest ?? MessageID(rawValue: .max), due.beginScan())
    }

    /// Leases what was found, and keeps only that in `scan`. Returns the messages that may not be leased, nil if all were.
    mutating func endScan(
        _ scan: inout ClaimScan, through cursor: MessageID, frontier: MessageID
    ) -> [MessageID]? {
        due.endScan(scan.nextDue ?? scan.due)
        endScan(through: frontier)
        announcements?.looked(through: cursor, count: scan.lookedMessages, size: scan.lookedBytes)
        let refused = leases.endScan(taking: scan.messages) { scan.lane?.number ?? $0.lane.number }
        if refused != nil { scan.keep(leases.contains) }
        return refused
    }

    mutating func abandonScan(_ scan: ClaimScan, frontier: MessageID) {
        due.endScan(scan.due)
        endScan(through: frontier)
        leases.abandonScan()
    }
}
