import PosternCore
import PosternUpstream

/// The messages of a mixed queue that were postponed without an attempt, because what they need is missing, by kind. A
/// plain value.
///
/// Of a kind with enough of them, a scan passes further ones instead of remembering them. Otherwise one endpoint that
/// is down would fill the scan limit and stop the other kinds. Only messages without an order are passed: those of a
/// lane hold up later ones of any kind.
struct PostponedKinds {
    private struct State {
        var count = 0
        /// The first row that a scan has passed.
        var passed: MessageID?
        /// The first scheduled row that it has passed although it is due.
        var passedScheduled: ScheduledPosition?

        /// Whether most of the messages have been sent, and rows were passed.
        var mayRescanPassed: Bool { (passed != nil || passedScheduled != nil) && count < PostponedKinds.least / 2 }

        mutating func pass(_ id: MessageID) { passed = min(passed ?? id, id) }
        mutating func pass(_ position: ScheduledPosition) {
            passedScheduled = min(passedScheduled ?? position, position)
        }
    }

    private static let least = 1024
    /// The messages of a kind from which on more are passed. More than what is in flight, so that a probe does not make
    /// room.
    static func most(_ limits: BatchLimits) -> Int { max(least, 4 * limits.maxMessages) }

    private var kindOf: [MessageID: Kind] = [:]
    /// Those that other kinds may do without; empty if kinds are not sent apart.
    private var kinds: [Kind: State] = [:]

    func contains(_ id: MessageID) -> Bool { kindOf[id] != nil }
    func hasPassed(_ kind: Kind) -> Bool { kinds[kind]?.passed != nil }
    /// Whether most of a kind's messages have been sent, and rows of it were passed.
    var mayRescanPassed: Bool { kinds.values.contains(where: \.mayRescanPassed) }

    /// The kinds of which there are enough.
    func full(_ most: Int) -> Set<Kind> { Set(kinds.filter { $0.value.count >= most }.keys) }

    /// - Parameter isApart: Whether other kinds may be sent without this one.
    mutating func add(_ rows: [Lease], of kind: Kind, isApart: Bool) {
        for row in rows { kindOf[row.id] = kind }
        if isApart { kinds[kind, default: State()].count += rows.count }
    }

    mutating func remove(_ id: MessageID) {
        if let kind = kindOf.removeValue(forKey: id) { kinds[kind]?.count -= 1 }
    }

    // MARK: Rows that are passed

    mutating func pass(_ id: MessageID, of kind: Kind) { kinds[kind]?.pass(id) }
    mutating func pass(_ position: ScheduledPosition, of kind: Kind) { kinds[kind]?.pass(position) }

    /// The first row that was passed of the kinds that have room again. It counts as found.
    mutating func takePassed() -> MessageID? { takePassed(\.passed) }

    /// The same for scheduled rows.
    mutating func takePassedScheduled() -> ScheduledPosition? { takePassed(\.passedScheduled) }

    private mutating func takePassed<Position: Comparable>(_ path: WritableKeyPath<State, Position?>) -> Position? {
        var first: Position?
        for (kind, state) in kinds where state.mayRescanPassed {
            guard let passed = state[keyPath: path] else { continue }
            first = min(first ?? passed, passed)
            kinds[kind]?[keyPath: path] = nil
        }
        return first
    }
}
