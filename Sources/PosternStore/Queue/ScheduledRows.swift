import PosternCore

/// How far the scheduled rows of a mixed queue have been found that are due. A plain value.
struct ScheduledRows {
    private static let page = 1000

    private var cursor = ScheduledPosition.beginning
    /// Whether rows after it may be due. Until they are found, nothing new is taken, which they could precede.
    private(set) var isBehind = false

    /// Adds all that are due to the examined rows. In their lane, they are ordered by id.
    mutating func find(
        _ scan: inout ClaimScan, _ examined: inout ExaminedRows, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        let most = PostponedKinds.most(scan.limits)
        if let passed = examined.postponed.takePassedScheduled() { rewind(to: passed) }
        if let passed = examined.withheld.takePassedScheduled(ifFewerThan: most / 2) { rewind(to: passed) }
        guard scan.due <= scan.now || isBehind else { return }
        // A row whose scheduled time is before its acceptance is before the position reached.
        if scan.due.milliseconds <= cursor.dueAtMs {
            cursor = .init(dueAtMs: scan.due.milliseconds, id: MessageID(rawValue: 0))
        }
        scan.nextDue = scan.now
        isBehind = true
        let full = examined.postponed.full(most)
        let waiting = scan.request.waitingKinds
        var passed = 0
        // Whether a kind can be sent is known once some of it was claimed. So not more of it are skipped at a time than
        // may be postponed; those of a lane are, because they hold up later ones.
        while !examined.isAtLimit, !examined.sendsKindsApart || examined.skipped.count(of: 0) < most,
            passed < FreshRows.passLimit
        {
            let found = try rows.scheduled(after: cursor, until: scan.now, limit: Self.page)
            for (position, lane, kind) in found where !examined.contains(position.id, in: lane, kind, isLeased) {
                if lane == 0, full.contains(kind) {
                    examined.postponed.pass(position, of: kind)
                    passed += 1
                } else if lane == 0, let until = waiting[kind] {
                    if examined.withheld.add(scheduled: position, of: kind, until: until, atMost: most) {
                        examined.extend(through: position.id)
                    } else {
                        passed += 1
                    }
                } else {
                    examined.leave(position.id, in: lane)
                }
            }
            guard found.count == Self.page, let last = found.last else {
                cursor = .init(dueAtMs: scan.now.milliseconds, id: MessageID(rawValue: .max))
                scan.nextDue = try rows.nextScheduled(after: scan.now) ?? .never
                isBehind = false
                return
            }
            cursor = last.position
        }
    }

    /// Finds this row and those behind it again.
    private mutating func rewind(to position: ScheduledPosition) {
        cursor = min(cursor, position.before)
        isBehind = true
    }
}

/// A position among the scheduled rows, which are ordered by time.
struct ScheduledPosition: Equatable, Comparable {
    var dueAtMs: Int64
    var id: MessageID
    static let beginning = ScheduledPosition(dueAtMs: .min, id: MessageID(rawValue: 0))

    /// The position after which this one is the next.
    var before: Self { Self(dueAtMs: dueAtMs, id: MessageID(rawValue: id.rawValue - 1)) }

    static func < (left: Self, right: Self) -> Bool { (left.dueAtMs, left.id) < (right.dueAtMs, right.id) }
}
