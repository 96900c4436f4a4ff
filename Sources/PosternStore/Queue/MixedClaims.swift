import PosternCore

/// Where the worker is in a mixed queue, and which rows it has passed over. A plain value, which the worker owns.
///
/// Rows up to `cursor` have been looked at: they are gone, being sent, or in `lines`. Some of those are to be sent again
/// together (`groups`). Scheduled rows are found through `scheduledCursor` when they are due. What is kept here is
/// bounded by what can be in flight and by the scan limit, never by the length of the queue.
struct MixedClaims: QueueClaims {
    struct Group {
        var dueAt: Timestamp
        /// Ascending. Those that are no longer in `members` have left it.
        var ids: [MessageID]
        var history = BatchHistory()
        /// Earlier messages come first in each of its lanes; cleared when a lane becomes free.
        var isBlocked = false
    }

    /// Rows left behind beyond which looking further would only collect more of them: about 2 MB.
    static let defaultScanLimit = 65_536

    private let scanLimit: Int
    private(set) var cursor = MessageID(rawValue: 0)
    /// Ids above this one are not known here.
    private var frontier = MessageID(rawValue: 0)
    private var scheduledCursor = ScheduledPlace.beginning
    private var lines = LaneLines()
    private var groups: [Group] = []
    /// The lanes of the rows in groups; mixed lanes are numbers without a row of their own.
    private var members: [MessageID: Int64] = [:]
    /// Those in groups that have not been tried, because what they need is not there.
    private var postponed: Set<MessageID> = []
    /// The lanes of rows that could not be taken because the writer was removing them.
    private var awaitingRemoval: [MessageID: Int64] = [:]
    /// Whether rows after the cursor may be there that no arrival announced.
    private var isBehind = true
    /// Whether rows may be gone that the worker has not heard of.
    private var mustVerify = false
    private var tookGroupLast = false
    /// Whether a lane became free since groups were found blocked.
    private var mayUnblock = false

    init(scanLimit: Int = defaultScanLimit) { self.scanLimit = scanLimit }

    var countInMemory: Int { lines.count + members.count }
    var isAtScanLimit: Bool { countInMemory >= scanLimit }
    var mustLook: Bool { lines.hasFree || mustVerify || (isBehind && !isAtScanLimit) }

    /// Whether an earlier message of the lane is being sent, or waits to be sent again. One that was postponed waits for
    /// the same as those behind it.
    func isHeldUp(_ id: MessageID, in lane: Int64) -> Bool? {
        guard lane != 0 else { return false }
        return lines.isInFlight(lane)
            || lines.rows(before: id, of: lane).contains { members[$0] != nil && !postponed.contains($0) }
    }

    /// When the next group is due that may have a free lane.
    var nextGroupDue: Timestamp? { groups.lazy.filter { mayUnblock || !$0.isBlocked }.map(\.dueAt).min() }

    // MARK: Claiming

    /// `isLeased` is asked about rows that are passed again.
    mutating func look(_ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool) throws {
        do {
            if mustVerify { try findRemoved(in: rows) }
            try findScheduled(&scan, from: rows, isLeased: isLeased)
            let isFreshFirst = scan.request.preference == .fresh || tookGroupLast
            if isFreshFirst { try claimUnsent(&scan, from: rows, isLeased: isLeased) }
            if scan.isEmpty { try claimGroup(&scan, from: rows) }
            if scan.isEmpty, !isFreshFirst { try claimUnsent(&scan, from: rows, isLeased: isLeased) }
            tookGroupLast = scan.isGroup
        } catch {
            // What was taken so far must not be lost with the look that failed.
            for message in scan.messages { leave(message.id, in: message.lane.number) }
            isBehind = true
            throw error
        }
    }

    mutating func end(_ scan: ClaimScan, found: [Message], as leases: Leases, refused: Set<MessageID>) {
        for message in found {
            let (id, lane) = (message.id, message.lane.number)
            if leases.contains(id) {
                lines.beginFlight(in: lane)
            } else if refused.contains(id) {
                if leases.isRemoving(id) { awaitingRemoval[id] = lane }
                // No message overtakes it before it is known to be gone.
                if lane != 0 { lines.insert(id, in: lane) }
            } else {
                becameFree(lane)
            }
        }
    }

    private func isKnown(_ id: MessageID, in lane: Int64, _ isLeased: (MessageID) -> Bool) -> Bool {
        guard id <= frontier else { return false }
        return members[id] != nil || awaitingRemoval[id] != nil || lines.contains(id, in: lane) || isLeased(id)
    }

    /// Leaves a row for a later look.
    private mutating func leave(_ id: MessageID, in lane: Int64) {
        lines.insert(id, in: lane)
        frontier = max(frontier, id)
        becameFree(lane)
    }

    /// What the lane waited for is over. If a group is next in it, the group is looked at again.
    private mutating func becameFree(_ lane: Int64) {
        mayUnblock = true
        guard let first = lines.row(at: 0, of: lane) else { return }
        if lane == 0 || (members[first] == nil && awaitingRemoval[first] == nil) { lines.becameFree(lane) }
    }

    // MARK: Groups

    /// Of the group that has been due longest: the messages whose lanes are free. The others stay in it.
    private mutating func claimGroup(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        if mayUnblock {
            for index in groups.indices { groups[index].isBlocked = false }
            mayUnblock = false
        }
        while scan.isEmpty, let index = nextGroup(for: scan.request) {
            let free = freeMembers(of: groups[index], atMost: scan.limits.maxMessages)
            let found = try free.map { try rows.row($0) }
            for (id, row) in zip(free, found) {
                // Limits may have shrunk since it was put together.
                if let row, !scan.take(row) { break }
                leaveGroup(id, isGone: row == nil)
            }
            groups[index].ids.removeAll { members[$0] == nil }
            if scan.isEmpty { groups[index].isBlocked = true }
            scan.history = groups[index].history
            if groups[index].ids.isEmpty { groups.remove(at: index) }
        }
        scan.isGroup = !scan.isEmpty
        if !scan.isGroup { scan.history = BatchHistory() }
    }

    private func nextGroup(for request: ClaimRequest) -> Int? {
        groups.indices.lazy.filter { index in
            let group = groups[index]
            return group.dueAt <= request.now && !group.isBlocked && request.mayRepeat(group.history, group.ids.count)
        }.min { (groups[$0].dueAt, groups[$0].ids[0]) < (groups[$1].dueAt, groups[$1].ids[0]) }
    }

    /// Those for which no earlier message has to wait or be sent first, unless it is of the group and goes along.
    private func freeMembers(of group: Group, atMost most: Int) -> [MessageID] {
        var free: [MessageID] = []
        var taken: [Int64: Int] = [:]
        for id in group.ids where free.count < most {
            guard let lane = members[id], awaitingRemoval[id] == nil else { continue }
            if lane != 0 {
                let index = taken[lane, default: 0]
                guard lines.isNext(id, in: lane, at: index) else { continue }
                taken[lane] = index + 1
            }
            free.append(id)
        }
        return free
    }

    private mutating func leaveGroup(_ id: MessageID, isGone: Bool) {
        guard let lane = members.removeValue(forKey: id) else { return }
        postponed.remove(id)
        lines.remove(id, from: lane)
        if isGone { becameFree(lane) }
    }

    // MARK: Scheduled, left and new messages

    /// Brings scheduled rows whose time has come among those that were left, all of them: in their lane they take the
    /// place that their id gives them.
    private mutating func findScheduled(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        guard scan.due <= scan.now else { return }
        // One that was accepted late for its time is before the place reached.
        if scan.due.milliseconds <= scheduledCursor.dueAtMs {
            scheduledCursor = .init(dueAtMs: scan.due.milliseconds, id: MessageID(rawValue: 0))
        }
        scan.nextDue = scan.now
        while !isAtScanLimit {
            let found = try rows.scheduled(after: scheduledCursor, until: scan.now, limit: Self.scheduledPage)
            for (place, lane) in found where !isKnown(place.id, in: lane, isLeased) { leave(place.id, in: lane) }
            guard found.count == Self.scheduledPage, let last = found.last else {
                scheduledCursor = .init(dueAtMs: scan.now.milliseconds, id: MessageID(rawValue: .max))
                scan.nextDue = try rows.nextScheduled(after: scan.now) ?? .never
                return
            }
            scheduledCursor = last.place
        }
    }

    private static let scheduledPage = 1000

    private mutating func claimUnsent(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        while !scan.isFull, let lane = lines.takeFree(), try claimLeft(of: lane, &scan, from: rows) {}
        try claimFresh(&scan, from: rows, isLeased: isLeased)
    }

    /// Returns whether there was room for all of the lane that may be sent.
    private mutating func claimLeft(of lane: Int64, _ scan: inout ClaimScan, from rows: QueueRows) throws -> Bool {
        var done = 0
        var hasRoom = true
        while hasRoom, let id = lines.row(at: done, of: lane), members[id] == nil, awaitingRemoval[id] == nil {
            let row = try rows.row(id)
            hasRoom = !scan.isFull && row.map { scan.take($0) } ?? true
            if hasRoom { done += 1 }
        }
        lines.removeFirst(done, from: lane)
        if !hasRoom { lines.becameFree(lane, isNext: true) }
        // A group may be next.
        if done > 0 { mayUnblock = true }
        return hasRoom
    }

    private mutating func claimFresh(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        guard !scan.isFull, !isAtScanLimit, cursor < scan.newest || isBehind else { return }
        var position = cursor
        var isCut = false
        // Rows that came back before the cursor lead past some that were taken a moment ago.
        let taken = cursor < frontier ? Set(scan.messages.map(\.id)) : []
        // Also when the look fails: what was taken is left for another one.
        defer {
            cursor = position
            frontier = max(frontier, position)
        }
        try rows.forEachFresh(after: cursor) { row in
            let (id, lane, size) = (row.id, row.lane, row.payloadCount)
            if !taken.contains(id), !isKnown(id, in: lane, isLeased) {
                if lines.mayTake(id, in: lane) {
                    guard scan.fits(size) else {
                        isCut = true
                        return false
                    }
                    scan.take(rows.queueRow(row))
                } else {
                    lines.insert(id, in: lane)
                }
                scan.looked(atBytes: size)
            }
            position = id
            isCut = scan.isFull || isAtScanLimit
            return !isCut
        }
        guard !isCut else { return }
        // All there was is behind; what is gone since needs no second look.
        position = max(position, scan.newest)
        isBehind = false
    }

    // MARK: What became of a claim

    mutating func release(_ ended: [Lease]) {
        for lease in ended where lines.endFlight(in: lease.lane) { becameFree(lease.lane) }
    }

    mutating func sendAgain(_ ended: [Lease], from dueAt: Timestamp, isDueNow: Bool, history: BatchHistory) {
        groupTogether(ended, dueAt: dueAt, history: history)
    }

    mutating func postpone(_ ended: [Lease], until dueAt: Timestamp, history: BatchHistory) {
        groupTogether(ended, dueAt: dueAt, history: history)
        postponed.formUnion(ended.map(\.id))
    }

    private mutating func groupTogether(_ rows: [Lease], dueAt: Timestamp, history: BatchHistory = BatchHistory()) {
        for row in rows {
            members[row.id] = row.lane
            if row.lane != 0 { lines.insert(row.id, in: row.lane) }
            frontier = max(frontier, row.id)
        }
        groups.append(Group(dueAt: dueAt, ids: rows.map(\.id).sorted(), history: history))
    }

    /// They are the first to be looked at again.
    mutating func giveBack(_ ended: [Lease]) {
        for lease in ended { leave(lease.id, in: lease.lane) }
    }

    mutating func makeDue(at now: Timestamp) -> Bool {
        for index in groups.indices { groups[index].dueAt = min(groups[index].dueAt, now) }
        return true
    }

    mutating func adoptLeftovers(from rows: QueueRows) throws -> Timestamp? {
        let (retries, scheduled) = try rows.leftovers()
        for (dueAt, rows) in Dictionary(grouping: retries, by: \.dueAt) {
            groupTogether(rows.map { Lease(id: $0.id, lane: $0.lane) }, dueAt: dueAt)
        }
        return scheduled ?? .never
    }

    // MARK: What the writer has done meanwhile

    mutating func hear(_ news: QueueExchange.News) {
        mustVerify = mustVerify || news.isCut
        for removal in news.removals { hearOfRemoval(of: removal.id, isGone: removal.isGone) }
        // Rows before the cursor came back.
        if let id = news.cameBackFrom, id <= cursor {
            cursor = MessageID(rawValue: id.rawValue - 1)
            isBehind = true
        }
    }

    private mutating func hearOfRemoval(of id: MessageID, isGone: Bool) {
        guard let lane = awaitingRemoval.removeValue(forKey: id) ?? members[id] else { return }
        if isGone {
            leaveGroup(id, isGone: true)
            lines.remove(id, from: lane)
        } else if members[id] == nil {
            lines.insert(id, in: lane)
        }
        becameFree(lane)
    }

    /// More was removed than was announced: looks at the rows that others wait for.
    private mutating func findRemoved(in rows: QueueRows) throws {
        for id in Array(members.keys) + Array(awaitingRemoval.keys) {
            let isGone = try !rows.exists(id)
            if isGone || members[id] == nil { hearOfRemoval(of: id, isGone: isGone) }
        }
        mustVerify = false
    }
}

/// A place among the scheduled rows, which are in the order of their time.
struct ScheduledPlace: Equatable {
    var dueAtMs: Int64
    var id: MessageID
    static let beginning = ScheduledPlace(dueAtMs: .min, id: MessageID(rawValue: 0))
}
