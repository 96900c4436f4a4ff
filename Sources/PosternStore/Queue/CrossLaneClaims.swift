import PosternCore
import PosternUpstream

/// The claims of a mixed queue: which of its rows are next. A plain value, which the worker owns.
///
/// It only decides whose turn it is: of the groups that are to be sent again, the rows that were left, those of limited
/// kinds, and new ones. `FreshRows` and `ScheduledRows` find the rows, and `ExaminedRows` has those that wait.
struct CrossLaneClaims: QueueClaims {
    private var examined: ExaminedRows
    private var fresh = FreshRows()
    private var scheduled = ScheduledRows()
    /// Whether rows may have been removed without a notification of the worker.
    private var mustVerify = false
    private var tookGroupLast = false
    private var tookLeftLast = false

    /// `sendsKindsApart`: whether what one kind needs may be there while that of another is missing.
    init(sendsKindsApart: Bool = false) { examined = ExaminedRows(sendsKindsApart: sendsKindsApart) }

    var cursor: MessageID { fresh.cursor }
    var frontier: MessageID { max(fresh.cursor, examined.frontier) }
    var countInMemory: Int { examined.count }
    var isAtScanLimit: Bool { examined.isAtLimit }
    var mustScan: Bool {
        examined.skipped.hasFree || mustVerify
            || (fresh.mustExamine(besides: examined) || examined.postponed.mayRescanPassed) && !isAtScanLimit
    }

    func isHeldUp(_ id: MessageID, in lane: Int64) -> Bool? { examined.isHeldUp(id, in: lane) }

    /// When the next group is due that may have a free lane, or the next kind whose rows are withheld.
    var nextGroupDue: Timestamp? {
        let group = examined.groups.nextDue
        return examined.withheld.isEmpty ? group : [group, examined.withheld.due].compactMap(\.self).min()
    }

    func maySend(through id: MessageID, now: Timestamp, from rows: QueueRows) throws -> Bool {
        if !isAtScanLimit, try fresh.hasUnexamined(through: id, besides: examined, in: rows) { return true }
        return examined.maySend(through: id, now: now)
    }

    mutating func share(by weights: [Int64: Int]?) { fresh.share(by: weights) }

    // MARK: Claiming

    /// `isLeased` is called for rows that are passed again.
    mutating func look(_ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool) throws {
        if mustVerify { try examined.findRemoved { try rows.exists($0) } }
        mustVerify = false
        if !examined.withheld.isEmpty { examined.withheld.update(scan.request.waitingKinds, now: scan.now) }
        try scheduled.find(&scan, &examined, from: rows, isLeased: isLeased)
        let isFreshFirst = scan.request.preference == .fresh || tookGroupLast
        if isFreshFirst { try claimUnsent(&scan, from: rows, isLeased: isLeased) }
        if scan.isEmpty { try claimGroup(&scan, from: rows) }
        if scan.isEmpty, !isFreshFirst { try claimUnsent(&scan, from: rows, isLeased: isLeased) }
        if examined.sendsKindsApart {
            for message in scan.keepOneKind() { examined.leave(message.id, in: message.lane.number) }
        }
        // A scan that finds nothing, perhaps because kinds wait for their limits, is no turn.
        if !scan.isEmpty { tookGroupLast = scan.isGroup }
    }

    mutating func abandon(_ scan: ClaimScan) {
        for message in scan.messages { examined.leave(message.id, in: message.lane.number) }
        fresh.isBehind = true
    }

    mutating func end(_ scan: ClaimScan, found: [Message], as leases: Leases, refused: Set<MessageID>?) {
        guard let refused else {
            for index in found.indices { examined.skipped.beginFlight(in: found[index].lane.number) }
            return
        }
        for message in found {
            let (id, lane) = (message.id, message.lane.number)
            if leases.contains(id) {
                examined.skipped.beginFlight(in: lane)
            } else if refused.contains(id) {
                examined.refuse(id, in: lane, isBeingRemoved: leases.isRemoving(id))
            } else {
                examined.becameFree(lane)
            }
        }
    }

    /// Takes from the group that has been due longest the messages whose lanes are free. The others stay in it.
    private mutating func claimGroup(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        examined.groups.unblockIfLaneMoved()
        while scan.isEmpty, let index = examined.groups.next(for: scan.request) {
            let free = examined.freeMembers(ofGroup: index, atMost: scan.limits.maxMessages)
            let found = try rows.rows(free)
            var limitEnd: Timestamp?
            var waitingLanes: Set<Int64> = []
            for (id, row) in zip(free, found) {
                if let row, let until = scan.request.waitingKinds[row.message.kind] {
                    limitEnd = min(limitEnd ?? until, until)
                    waitingLanes.insert(row.message.lane.number)
                } else if let row, row.message.lane != .none, waitingLanes.contains(row.message.lane.number) {
                    continue
                } else {
                    // Limits may have shrunk since the group was formed.
                    if let row, !scan.take(row) { break }
                    examined.leaveGroup(id, isGone: row == nil)
                }
            }
            scan.history = examined.groups.endClaim(of: index, isSent: !scan.isEmpty, limitEnd: limitEnd)
        }
        scan.isGroup = !scan.isEmpty
        if !scan.isGroup { scan.history = BatchHistory() }
    }

    private mutating func claimUnsent(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        let isWithheldFirst = !examined.withheld.wasTakenLast
        if isWithheldFirst, !examined.withheld.isEmpty {
            try claimWithheld(&scan, from: rows, isLeased: isLeased)
            if !scan.isEmpty { return }
        }
        // Where messages take turns, rows that were left may be those of one turn only: new ones are first every other
        // time, and then a request that has one kind only has none that were left.
        let isFreshFirst = fresh.takesTurns && tookLeftLast
        if isFreshFirst { try claimFresh(&scan, from: rows, isLeased: isLeased) }
        let mayMix = !fresh.takesTurns || !examined.sendsKindsApart
        if mayMix || scan.isEmpty {
            while !scan.isFull, let lane = examined.skipped.takeFree(), try claimLeft(of: lane, &scan, from: rows) {}
        }
        let tookLeft = !isFreshFirst && !scan.isEmpty
        if !isFreshFirst, mayMix || scan.isEmpty { try claimFresh(&scan, from: rows, isLeased: isLeased) }
        if !scan.isEmpty {
            (tookLeftLast, examined.withheld.wasTakenLast) = (tookLeft, false)
        } else if !isWithheldFirst, !examined.withheld.isEmpty {
            try claimWithheld(&scan, from: rows, isLeased: isLeased)
        }
    }

    /// Takes withheld rows of the kind that may be sent again and has waited longest.
    private mutating func claimWithheld(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        while scan.isEmpty, let kind = examined.withheld.next(at: scan.now) {
            let most = scan.request.maxMessagesOfKind[kind] ?? .max
            var turns = examined.withheld.turns(of: kind)
            while !turns.isEmpty, !scan.isFull, scan.count < most {
                var left: [Int64] = []
                for turn in turns where !scan.isFull && scan.count < most {
                    try fresh.refill(
                        kind, inTurn: turn, atMost: PostponedKinds.most(scan.limits), &examined, from: rows,
                        isLeased: isLeased)
                    let before = scan.count
                    let share = fresh.share(of: turn, in: scan.limits).map { min(most, before + $0) } ?? most
                    try claimWithheld(kind, inTurn: turn, upTo: share, &scan, from: rows)
                    guard scan.count > before else { continue }
                    examined.withheld.wasTaken(kind, inTurn: turn)
                    if examined.withheld.hasRows(of: kind, inTurn: turn) { left.append(turn) }
                }
                turns = left
            }
            if !scan.isEmpty { examined.withheld.wasTaken(kind, now: scan.now) }
            // Nothing of it could be taken although there was room: it waits for its lanes.
            if scan.isEmpty, examined.withheld.hasRows(of: kind) { break }
        }
    }

    /// Takes withheld rows of one turn until the scan has so many.
    private mutating func claimWithheld(
        _ kind: Kind, inTurn turn: Int64, upTo most: Int, _ scan: inout ClaimScan, from rows: QueueRows
    ) throws {
        while !scan.isFull, scan.count < most {
            let id = examined.withheld.firstID(of: kind, inTurn: turn)
            let lane = examined.withheld.firstLane(of: kind, inTurn: turn)
            if let lane, let first = examined.skipped.row(at: 0, of: lane), id.map({ first < $0 }) ?? true {
                examined.withheld.remove(lane: lane)
                // One with something in flight becomes free after that.
                if !examined.skipped.isInFlight(lane), try !claimLeft(of: lane, &scan, from: rows) { break }
            } else if let id {
                if let row = try rows.row(id), !scan.take(row) { break }
                examined.withheld.removeFirstID(of: kind, inTurn: turn)
            } else if let lane {
                examined.withheld.remove(lane: lane)
            } else {
                break
            }
        }
    }

    /// Returns whether there was room for all of the lane that may be sent.
    private mutating func claimLeft(of lane: Int64, _ scan: inout ClaimScan, from rows: QueueRows) throws -> Bool {
        var done = 0
        var isDone = false
        if !examined.withheld.isEmpty { examined.withheld.remove(lane: lane) }
        let waiting = scan.request.waitingKinds
        let before = scan.count
        // Also if a row cannot be read: the lane would not be looked at again.
        defer {
            examined.skipped.removeFirst(done, from: lane)
            if !isDone { examined.skipped.becameFree(lane, isNext: true) }
            // A group may be next.
            if done > 0 { examined.laneMoved() }
        }
        while let id = examined.unsentRow(at: done, of: lane) {
            let row = try rows.row(id)
            if !waiting.isEmpty, let kind = row?.message.kind, let until = waiting[kind] {
                let turn = fresh.takesTurns ? try rows.turn(of: id) : 0
                if lane == 0 {
                    examined.skipped.remove(id, from: 0)
                    _ = examined.withheld.add(id, of: kind, inTurn: turn, until: until)
                    continue
                }
                // With an earlier one in flight, the lane becomes free again after that.
                if scan.count == before { examined.withheld.add(lane: lane, of: kind, inTurn: turn, until: until) }
                break
            }
            guard !scan.isFull, row.map({ scan.take($0) }) ?? true else { return false }
            done += 1
        }
        isDone = true
        return true
    }

    /// Nothing new is taken as long as scheduled rows that are due are to be found.
    private mutating func claimFresh(
        _ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        fresh.rewindToPassed(of: &examined.postponed)
        if !scheduled.isBehind { try fresh.claim(&scan, &examined, from: rows, isLeased: isLeased) }
    }

    // MARK: Results of a claim

    mutating func end(_ ended: [Lease], as end: ClaimEnd) {
        switch end {
        case .settled: break
        case .again(let dueAt, _, let history): examined.group(ended, dueAt: dueAt, history: history)
        case .postponed(let kind, let dueAt, let history):
            examined.group(ended, dueAt: dueAt, history: history)
            examined.postponed.add(ended, of: kind, isApart: examined.sendsKindsApart)
        // They are the first to be examined again.
        case .unsent: for lease in ended { examined.leave(lease.id, in: lease.lane) }
        }
        for lease in ended where examined.skipped.endFlight(in: lease.lane) { examined.becameFree(lease.lane) }
    }

    mutating func makeDue(at now: Timestamp) -> Bool {
        examined.groups.makeDue(at: now)
        examined.withheld.makeDue(at: now)
        return true
    }

    mutating func makePostponedDue(at now: Timestamp) -> Bool {
        examined.groups.makeDue(at: now, ifAny: examined.postponed.contains)
        return true
    }

    mutating func adoptLeftovers(from rows: QueueRows) throws -> Timestamp? {
        let (retries, scheduled) = try rows.leftovers()
        for (dueAt, rows) in Dictionary(grouping: retries, by: \.dueAt) {
            examined.group(rows.map { Lease(id: $0.id, lane: $0.lane) }, dueAt: dueAt)
        }
        return scheduled ?? .never
    }

    // MARK: Changes by the writer

    mutating func apply(_ updates: QueueMailbox.PendingUpdates) {
        mustVerify = mustVerify || updates.isCut
        if !examined.withheld.isEmpty, !updates.removals.isEmpty || updates.isCut { examined.examineWithheldLanes() }
        for removal in updates.removals { examined.recordRemoval(of: removal.id, isGone: removal.isGone) }
        // Rows before the cursor were returned or came late, or rows after it were never announced.
        if let id = updates.rewindsTo { fresh.rewind(to: MessageID(rawValue: id.rawValue - 1)) }
        if let now = updates.makesDueAt { _ = makeDue(at: now) }
    }
}
