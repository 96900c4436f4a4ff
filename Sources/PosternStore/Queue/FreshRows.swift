import PosternCore
import PosternUpstream

/// How far the rows of a mixed queue that wait for nothing have been examined, in the queue or in each of its turns. A
/// plain value.
///
/// It examines further ones: takes those that may be sent now, and keeps the others in `ExaminedRows`.
struct FreshRows {
    /// The number of rows that one scan looks at while it passes those of a kind.
    static let passLimit = 1 << 18

    /// Rows up to this one have been examined: they are deleted, being sent, or in `ExaminedRows`. Where messages take
    /// turns, each turn has a cursor of its own, and this one is that of the turns without an earlier one.
    private(set) var cursor = MessageID(rawValue: 0)
    private var turns = Turns()
    /// Whether there may be rows after the cursor that were not announced.
    var isBehind = true

    var takesTurns: Bool { turns.isOn }

    /// How many messages of the turn are taken before those of another one; nil if messages do not take turns.
    func share(of turn: Int64, in limits: BatchLimits) -> Int? {
        turns.isOn ? turns.weighedShare(of: turn, in: limits) : nil
    }

    /// Whether there may be rows to examine that were not announced.
    @inline(__always) func mustExamine(besides examined: ExaminedRows) -> Bool {
        isBehind || turns.hasCursors && examined.hasLaneMoved
    }

    /// Whether a row up to `id` has not been examined.
    func hasUnexamined(through id: MessageID, besides examined: ExaminedRows, in rows: QueueRows) throws -> Bool {
        guard cursor < id else { return false }
        guard turns.isOn else { return true }
        // No cursor says how far all turns have been examined.
        var isFound = false
        try rows.forEachFresh(after: cursor, begin: { _, _ in true }) { message in
            guard message.id <= id else { return false }
            let kind = message.kind
            let wasPassed =
                message.lane == 0 && (examined.postponed.hasPassed(kind) || examined.withheld.hasPassed(kind))
            isFound = !wasPassed && !examined.contains(message.id, in: message.lane, kind) { _ in false }
            return !isFound
        }
        return isFound
    }

    mutating func share(by weights: [Int64: Int]?) {
        if weights == nil, let least = turns.forget() { rewind(to: least) }
        turns.weights = weights
    }

    /// Examines rows behind this one again.
    mutating func rewind(to id: MessageID) {
        cursor = min(cursor, id)
        turns.rewind(to: id)
        isBehind = true
    }

    // MARK: Examining

    /// What a scan needs to know about kinds and about what it has taken already.
    private struct Look {
        /// Kinds of which enough messages are postponed.
        let full: Set<Kind>
        /// The most rows of a kind that are kept.
        let most: Int
        /// Kinds that may not be sent now.
        let waiting: [Kind: Timestamp]
        let taken: Set<MessageID>
        var passed = 0
    }

    /// Takes the next rows that may be sent.
    mutating func claim(
        _ scan: inout ClaimScan, _ examined: inout ExaminedRows, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws {
        guard !scan.isFull, !examined.isAtLimit, cursor < scan.newest || mustExamine(besides: examined) else { return }
        let most = PostponedKinds.most(scan.limits)
        var look = Look(
            full: examined.postponed.full(most), most: most, waiting: scan.request.waitingKinds,
            // Rows that were returned before the cursor lead past some that were just taken.
            taken: cursor < examined.frontier || turns.isOn ? Set(scan.messages.map(\.id)) : [])
        guard !turns.isOn else { return try claimInTurns(&scan, &look, &examined, from: rows, isLeased: isLeased) }
        let (end, _) = try examine(nil, &scan, &look, &examined, from: rows, isLeased: isLeased)
        // All rows have been examined; rows that were removed since do not have to be examined again.
        if end == .exhausted { examinedAll(through: scan.newest, &examined) }
    }

    /// Takes a share of each turn, in a circle. A scan that finds nothing has been all around.
    private mutating func claimInTurns(
        _ scan: inout ClaimScan, _ look: inout Look, _ examined: inout ExaminedRows, from rows: QueueRows,
        isLeased: (MessageID) -> Bool
    ) throws {
        var round = TurnRound(after: turns.last)
        isBehind = true
        defer {
            turns.last = round.last
            if let least = turns.forgetIfMany() { rewind(to: least) }
        }
        while !scan.isFull, !examined.isAtLimit, look.passed < Self.passLimit,
            scan.isEmpty || round.visits < Turns.perScan
        {
            guard let turn = try rows.nextTurn(after: round.turn) else {
                guard !round.wrap() else { continue }
                guard !round.leavesRows else { return }
                turns.examinedAll(besides: round.blocked)
                return examinedAll(through: max(scan.newest, examined.frontier), &examined)
            }
            guard round.visit(turn) else { continue }
            let share = turns.share(of: turn, in: scan.limits)
            guard share > 0 else { continue }
            let (end, rest) = try examine(
                turn, share: share, wasServed: round.wasServed, &scan, &look, &examined, from: rows, isLeased: isLeased)
            if end == .exhausted { turns.clearDebt(of: turn) }
            round.endVisit(end, tookRows: rest < share)
        }
    }

    private mutating func examinedAll(through id: MessageID, _ examined: inout ExaminedRows) {
        cursor = max(cursor, id)
        isBehind = false
        examined.hasLaneMoved = false
    }

    /// Examines the new rows of a turn, or of the queue if it is nil, until `share` of them were taken. Returns what is
    /// left of that.
    ///
    /// - Parameter wasServed: Whether the scan has taken rows of the turn.
    private mutating func examine(
        _ turn: Int64?, share: Int = .max, wasServed: Bool = false, _ scan: inout ClaimScan, _ look: inout Look,
        _ examined: inout ExaminedRows, from rows: QueueRows, isLeased: (MessageID) -> Bool
    ) throws -> (TurnRound.VisitEnd, rest: Int) {
        let start = turn.flatMap { turns.cursor(of: $0) } ?? cursor
        var position = start
        var end = TurnRound.VisitEnd.exhausted
        var rest = share
        // Also if the scan fails: what was taken is left for another one.
        defer {
            if let turn { turns.examined(turn, through: position, rest: rest) } else { cursor = position }
            examined.extend(through: position)
        }
        let room = min(share, scan.limits.maxMessages - scan.count)
        try rows.forEachFresh(after: start, inTurn: turn, expecting: room) { count, bytes in
            if rest <= 0 { end = .spent } else if !scan.mayBegin(count, of: bytes) { end = .cut }
            return end == .exhausted
        } _: { message in
            let (id, lane, size) = (message.id, message.lane, message.payloadCount)
            // A block is taken whole.
            if rest <= 0, !message.isInBlock {
                end = .spent
                return false
            }
            var isKnown = look.taken.contains(id)
            if !isKnown, id <= examined.frontier { isKnown = examined.contains(id, in: lane, message.kind, isLeased) }
            if !isKnown {
                if let wait = ExaminedRows.wait(
                    of: id, in: lane, message.kind, behind: examined.skipped, full: look.full, waiting: look.waiting)
                {
                    if turn != nil, lane != 0, examined.isCrowded {
                        end = .blocked
                        return false
                    }
                    let isKept = examined.keep(id, in: lane, message.kind, turn ?? 0, for: wait, atMost: look.most)
                    if !isKept { look.passed += 1 }
                } else if turn != nil, examined.sendsKindsApart, let kind = scan.kind, kind != message.kind {
                    guard wasServed || rest < share, !examined.isCrowded else {
                        end = .otherKind
                        return false
                    }
                    examined.leave(id, in: lane)
                } else {
                    guard scan.fits(size) else {
                        end = .cut
                        return false
                    }
                    scan.take(rows.queueRow(message))
                    rest -= 1
                }
                scan.countExamined(bytes: size)
            }
            position = id
            // Not with `||`, whose right side would have a copy of everything.
            if scan.isFull { end = .cut }
            if examined.isAtLimit { end = .cut }
            if look.passed >= Self.passLimit { end = .cut }
            return end == .exhausted
        }
        return (end, rest)
    }

    // MARK: Rows that were passed

    /// Examines rows again that were passed because enough of their kind were postponed, if there is room for them.
    mutating func rewindToPassed(of postponed: inout PostponedKinds) {
        guard let passed = postponed.takePassed() else { return }
        rewind(to: MessageID(rawValue: passed.rawValue - 1))
    }

    /// Finds withheld rows of a kind again that were passed, if most of those that were kept have been sent.
    func refill(
        _ kind: Kind, inTurn turn: Int64, atMost most: Int, _ examined: inout ExaminedRows, from rows: QueueRows,
        isLeased: (MessageID) -> Bool
    ) throws {
        let most = WithheldRows.most(ofTurn: turn, most)
        guard let passed = examined.withheld.takePassed(of: kind, inTurn: turn, ifFewerThan: most / 2) else { return }
        let room = most - examined.withheld.count(of: kind, inTurn: turn)
        var found: [MessageID] = []
        // Of a scan that fails, all is passed again.
        var rest: MessageID? = passed
        defer { examined.withheld.keep(found, of: kind, inTurn: turn, rest: rest) }
        // Rows after the cursor are found there. Where messages take turns, each turn has its own.
        let end = turns.isOn ? examined.frontier : cursor
        let visited = turns.isOn && turn != WithheldRows.otherTurns ? turn : nil
        var next: MessageID?
        try rows.forEachFresh(
            after: MessageID(rawValue: passed.rawValue - 1), inTurn: visited, begin: { _, _ in true }
        ) { message in
            guard message.id <= end else { return false }
            guard message.lane == 0, message.kind == kind, !examined.contains(message.id, in: 0, kind, isLeased) else {
                return true
            }
            guard found.count < room else {
                next = message.id
                return false
            }
            found.append(message.id)
            return true
        }
        rest = next
    }
}
