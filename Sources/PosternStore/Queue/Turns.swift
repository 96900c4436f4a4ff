import PosternCore
import PosternUpstream

/// Whose turn it is in a mixed queue, and how far the messages of each turn have been examined. A plain value.
///
/// It is bounded: of a turn that is not in it, messages are examined from `FreshRows.cursor` on; `ExaminedRows`
/// recognizes those that it knows.
struct Turns {
    /// The number of turns that one scan visits once it has found messages. It goes on there in the next one.
    static let perScan = 1000
    /// The number of turns that are remembered.
    private static let most = 4096

    /// Nil if messages do not take turns.
    var weights: [Int64: Int]?
    /// The one before the next.
    var last = Int64.min
    /// Up to here, the messages of a turn have been examined.
    private var cursors: [Int64: MessageID] = [:]
    /// The messages that a turn has had too many, because a block is taken whole.
    private var debts: [Int64: Int] = [:]

    var isOn: Bool { weights != nil }
    /// Whether messages of some turns wait for their lanes, while those of the others have been examined.
    var hasCursors: Bool { !cursors.isEmpty }

    func cursor(of turn: Int64) -> MessageID? { cursors[turn] }

    /// How many messages of the turn are taken before those of another one.
    func weighedShare(of turn: Int64, in limits: BatchLimits) -> Int { limits.turnShare * (weights?[turn] ?? 1) }

    /// How many messages of the turn may be taken now; none until it has made up for those that it has had too many.
    mutating func share(of turn: Int64, in limits: BatchLimits) -> Int {
        let share = weighedShare(of: turn, in: limits)
        guard let debt = debts[turn] else { return share }
        debts[turn] = debt > share ? debt - share : nil
        return share - debt
    }

    /// - Parameter rest: What is left of its share, negative if it has taken more.
    mutating func examined(_ turn: Int64, through id: MessageID, rest: Int) {
        cursors[turn] = id
        debts[turn] = rest < 0 ? -rest : nil
    }

    /// There is nothing more in the turn.
    mutating func clearDebt(of turn: Int64) { debts[turn] = nil }

    /// All turns have been examined, besides these, whose messages wait for their lanes.
    mutating func examinedAll(besides blocked: Set<Int64>) { cursors = cursors.filter { blocked.contains($0.key) } }

    mutating func rewind(to id: MessageID) { cursors = cursors.mapValues { min($0, id) } }

    /// Forgets how far turns have been examined. Returns the least, if it was known of one.
    mutating func forget() -> MessageID? {
        defer { (cursors, debts) = ([:], [:]) }
        return cursors.values.min()
    }

    /// As above, if there are too many.
    mutating func forgetIfMany() -> MessageID? { max(cursors.count, debts.count) > Self.most ? forget() : nil }
}

/// The way of one scan around the circle of turns: which of them it may visit again, and where the next scan goes on. A
/// plain value.
struct TurnRound {
    /// Why the visit of a turn has ended.
    enum VisitEnd {
        /// All of its rows have been examined.
        case exhausted
        /// The turn has had its share.
        case spent
        /// Rows of the turn wait for their lanes, and no more of them are skipped.
        case blocked
        /// The next row is of another kind than the request.
        case otherKind
        /// There is no room.
        case cut
    }

    /// The turn that was visited last.
    private(set) var turn: Int64
    private(set) var visits = 0
    /// The turns of which rows wait for their lanes.
    private(set) var blocked: Set<Int64> = []
    /// Whether rows were left that may be sent.
    private(set) var leavesRows = false
    /// Those from which nothing more can be taken in this scan, and those from which something was.
    private var done: Set<Int64> = []
    private var served: Set<Int64> = []
    private var hasWrapped = false
    /// Whether there was a turn in this circle that was not done.
    private var isLive = false
    /// Of a request that has one kind only, the first turn that has another kind is the first of the next scan.
    private var passedOver: Int64?

    init(after turn: Int64) { self.turn = turn }

    /// The turn behind which the next scan begins.
    var last: Int64 { passedOver.map { $0 - 1 } ?? turn }
    /// Whether the scan has taken rows of this turn.
    var wasServed: Bool { served.contains(turn) }

    /// Returns whether something may still be taken from the turn.
    mutating func visit(_ turn: Int64) -> Bool {
        self.turn = turn
        visits += 1
        guard !done.contains(turn) else { return false }
        isLive = true
        return true
    }

    mutating func endVisit(_ end: VisitEnd, tookRows: Bool) {
        if tookRows { served.insert(turn) }
        if end != .spent { done.insert(turn) }
        switch end {
        case .exhausted, .spent: break
        case .blocked: blocked.insert(turn)
        case .otherKind: (leavesRows, passedOver) = (true, passedOver ?? turn)
        case .cut: leavesRows = true
        }
    }

    /// There is no turn behind the last one: the next one is the first. Returns false if all turns are done.
    mutating func wrap() -> Bool {
        guard !hasWrapped || isLive else { return false }
        (turn, hasWrapped, isLive) = (.min, true, false)
        return true
    }
}

extension BatchLimits {
    /// The messages of one turn before it is another one's: so few that a request has room for many turns.
    var turnShare: Int { max(1, maxMessages / 16) }
}
