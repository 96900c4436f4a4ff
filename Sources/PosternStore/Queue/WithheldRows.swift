import DequeModule
import PosternCore

/// The rows of a mixed queue that a claim may not take yet, because their kind has been sent as often as it may, by
/// kind and turn. A plain value.
///
/// Rows without an order are kept here, as many as are sent in a while; a scan passes the others. Rows with one stay
/// among the skipped rows, and only their lanes are listed.
struct WithheldRows {
    /// The number of turns that are kept apart. Others have one in common.
    static let mostTurns = 256
    /// The turn of those that are not kept apart.
    static let otherTurns = Int64.max

    private struct Key: Hashable {
        let kind: Kind
        let turn: Int64
    }

    private struct Rows {
        /// When the kind may be sent again, as far as the latest claim said.
        var until: Timestamp
        /// The number of claims that had taken rows when this took some.
        var taken = 0
        /// Rows without an order, ascending.
        var ids: Deque<MessageID> = []
        /// The lanes whose first row is of the kind, in the order in which they were found. Those that do not have this
        /// key in `keys` have been examined since.
        var lanes: Deque<Int64> = []
        var waitingLanes = 0
        /// The first row without an order that a scan has passed, and the first scheduled one.
        var passed: MessageID?
        var passedScheduled: ScheduledPosition?

        var isEmpty: Bool { ids.isEmpty && waitingLanes == 0 && passed == nil && passedScheduled == nil }
    }

    private var rows: [Key: Rows] = [:]
    /// The key of each lane that waits.
    private var keys: [Int64: Key] = [:]
    /// All that is in `ids`.
    private var kept: Set<MessageID> = []
    private var taken = 0
    /// Whether the latest claim of unsent rows took withheld ones, so that the next one takes others first.
    var wasTakenLast = false

    var isEmpty: Bool { rows.isEmpty }
    /// The number of rows in `ids`.
    var count: Int { kept.count }
    /// When the first of the kinds may be sent again.
    var due: Timestamp? { rows.values.lazy.map(\.until).min() }

    func contains(_ id: MessageID) -> Bool { kept.contains(id) }
    func count(of kind: Kind, inTurn turn: Int64 = 0) -> Int { rows[Key(kind: kind, turn: turn)]?.ids.count ?? 0 }
    func isWaiting(_ lane: Int64) -> Bool { keys[lane] != nil }
    func hasRows(of kind: Kind) -> Bool { rows.keys.contains { $0.kind == kind } }
    func hasRows(of kind: Kind, inTurn turn: Int64) -> Bool { rows[Key(kind: kind, turn: turn)] != nil }
    func hasPassed(_ kind: Kind) -> Bool { rows.contains { $0.key.kind == kind && $0.value.passed != nil } }

    /// The kind among those that may be sent again that has waited longest.
    func next(at now: Timestamp) -> Kind? {
        rows.filter { $0.value.until <= now }
            .min { ($0.value.until, $0.key.kind.description) < ($1.value.until, $1.key.kind.description) }?.key.kind
    }

    /// The turns of which rows of the kind are withheld, first the one that has waited longest.
    func turns(of kind: Kind) -> [Int64] {
        rows.filter { $0.key.kind == kind }
            .sorted { ($0.value.taken, $0.key.turn) < ($1.value.taken, $1.key.turn) }.map(\.key.turn)
    }

    func firstID(of kind: Kind, inTurn turn: Int64 = 0) -> MessageID? { rows[Key(kind: kind, turn: turn)]?.ids.first }

    /// The most rows of a turn that are kept, where messages take turns: so few that there is room for those of many.
    static func most(ofTurn turn: Int64, _ most: Int) -> Int { turn == 0 ? most : max(16, most / 16) }

    /// Where rows of the turn are withheld.
    private func key(_ kind: Kind, _ turn: Int64) -> Key {
        let key = Key(kind: kind, turn: turn)
        let isApart = turn == 0 || rows.count < Self.mostTurns || rows[key] != nil
        return isApart ? key : Key(kind: kind, turn: Self.otherTurns)
    }

    // MARK: Times

    /// - Parameter waiting: When each kind that may not be sent now may be.
    mutating func update(_ waiting: [Kind: Timestamp], now: Timestamp) {
        for (key, found) in rows { rows[key]?.until = waiting[key.kind] ?? min(found.until, now) }
    }

    mutating func makeDue(at now: Timestamp) { update([:], now: now) }

    /// Some of the kind was taken: other kinds are next.
    mutating func wasTaken(_ kind: Kind, now: Timestamp) {
        wasTakenLast = true
        for key in rows.keys where key.kind == kind { rows[key]?.until = now }
    }

    /// Some of the turn was taken: other turns are next.
    mutating func wasTaken(_ kind: Kind, inTurn turn: Int64) {
        taken += 1
        rows[Key(kind: kind, turn: turn)]?.taken = taken
    }

    // MARK: Rows

    /// Withholds a row without an order. If there are `most` of its turn, it is only noted that it was passed, and the
    /// result is false.
    mutating func add(
        _ id: MessageID, of kind: Kind, inTurn turn: Int64 = 0, until: Timestamp, atMost most: Int = .max
    ) -> Bool {
        let key = key(kind, turn)
        var found = rows.removeValue(forKey: key) ?? Rows(until: until, taken: taken)
        defer { rows[key] = found }
        guard found.ids.count < most, found.passed.map({ id < $0 }) ?? true || most == .max else {
            found.passed = min(found.passed ?? id, id)
            return false
        }
        if kept.insert(id).inserted { found.ids.insert(id, at: found.ids.firstIndex(notBefore: id)) }
        return true
    }

    /// The same for a scheduled row that is due.
    mutating func add(
        scheduled position: ScheduledPosition, of kind: Kind, until: Timestamp, atMost most: Int
    ) -> Bool {
        let key = key(kind, 0)
        if let found = rows[key], found.ids.count >= most {
            rows[key]?.passedScheduled = min(found.passedScheduled ?? position, position)
            return false
        }
        return add(position.id, of: kind, until: until)
    }

    mutating func removeFirstID(of kind: Kind, inTurn turn: Int64 = 0) {
        let key = Key(kind: kind, turn: turn)
        if let id = rows[key]?.ids.removeFirst() { kept.remove(id) }
        forgetIfEmpty(key)
    }

    private mutating func forgetIfEmpty(_ key: Key) { if rows[key]?.isEmpty == true { rows[key] = nil } }

    /// The first row that a scan has passed, if fewer than `few` are kept. It counts as found.
    mutating func takePassed(of kind: Kind, inTurn turn: Int64 = 0, ifFewerThan few: Int) -> MessageID? {
        let key = Key(kind: kind, turn: turn)
        guard let found = rows[key], found.ids.count < few, let passed = found.passed else { return nil }
        rows[key]?.passed = nil
        return passed
    }

    /// Keeps rows that were passed before; `rest` is the first one for which there is no room.
    mutating func keep(_ ids: [MessageID], of kind: Kind, inTurn turn: Int64 = 0, rest: MessageID?) {
        let key = Key(kind: kind, turn: turn)
        var found = rows.removeValue(forKey: key) ?? Rows(until: Timestamp(milliseconds: 0), taken: taken)
        for id in ids where kept.insert(id).inserted { found.ids.insert(id, at: found.ids.firstIndex(notBefore: id)) }
        found.passed = rest
        rows[key] = found
        forgetIfEmpty(key)
    }

    /// The first scheduled row that was passed, of the kinds of which fewer than `few` are kept. It counts as found.
    mutating func takePassedScheduled(ifFewerThan few: Int) -> ScheduledPosition? {
        var first: ScheduledPosition?
        for (key, found) in rows where found.ids.count < few {
            guard let passed = found.passedScheduled else { continue }
            first = min(first ?? passed, passed)
            rows[key]?.passedScheduled = nil
            forgetIfEmpty(key)
        }
        return first
    }

    // MARK: Lanes

    /// Withholds a lane whose first row is of that kind.
    mutating func add(lane: Int64, of kind: Kind, inTurn turn: Int64 = 0, until: Timestamp) {
        guard !isWaiting(lane) else { return }
        let key = key(kind, turn)
        rows[key, default: Rows(until: until, taken: taken)].lanes.append(lane)
        rows[key]?.waitingLanes += 1
        keys[lane] = key
    }

    /// The lane is examined, whatever it waited for.
    mutating func remove(lane: Int64) {
        guard let key = keys.removeValue(forKey: lane) else { return }
        rows[key]?.waitingLanes -= 1
        forgetIfEmpty(key)
    }

    /// The lane of the kind that was withheld first; nil if there is none.
    mutating func firstLane(of kind: Kind, inTurn turn: Int64 = 0) -> Int64? {
        let key = Key(kind: kind, turn: turn)
        while let lane = rows[key]?.lanes.first {
            if keys[lane] == key { return lane }
            rows[key]?.lanes.removeFirst()
        }
        return nil
    }

    /// Removes all lanes, because the first row of one may have been removed.
    mutating func takeLanes() -> [Int64] {
        var lanes: [Int64] = []
        for (key, found) in rows where found.waitingLanes > 0 {
            for lane in found.lanes where keys[lane] == key {
                keys[lane] = nil
                lanes.append(lane)
            }
            rows[key]?.lanes = []
            rows[key]?.waitingLanes = 0
            forgetIfEmpty(key)
        }
        return lanes
    }
}
extension Deque<MessageID> {
    /// The index in an ascending list at which `id` is or would be inserted.
    fileprivate func firstIndex(notBefore id: MessageID) -> Int {
        if let last, last < id { return count }
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if self[middle] < id { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
