import PosternCore
import PosternUpstream

/// Whose turn it is in a mixed queue, and how far the messages of each turn have been examined. A plain value.
///
/// It is bounded: of a turn that is not in it, messages are examined from `CrossLaneClaims.cursor` on, which recognizes
/// those that it knows.
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

    /// How many messages of the turn may be taken now; none until it has made up for those that it has had too many.
    mutating func share(of turn: Int64, in limits: BatchLimits) -> Int {
        let share = limits.turnShare * (weights?[turn] ?? 1)
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

extension BatchLimits {
    /// The messages of one turn before it is another one's: so few that a request has room for many turns.
    var turnShare: Int { max(1, maxMessages / 16) }
}
