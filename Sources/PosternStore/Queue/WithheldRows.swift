import DequeModule
import PosternCore

/// The rows of a mixed queue that a claim may not take yet, because their kind has been sent as often as it may, by
/// kind. A plain value.
///
/// Rows without an order are kept here, as many as are sent in a while; a scan passes the others. Rows with one stay
/// among the skipped rows, and only their lanes are listed.
struct WithheldRows {
    private struct Rows {
        /// When the kind may be sent again, as far as the latest claim said.
        var until: Timestamp
        /// Rows without an order, ascending.
        var ids: Deque<MessageID> = []
        /// The lanes whose first row is of the kind, in the order in which they were found. Those that are not in
        /// `waitingLanes` have been examined since.
        var lanes: Deque<Int64> = []
        var waitingLanes: Set<Int64> = []
        /// The first row without an order that a scan has passed, and the first scheduled one.
        var passed: MessageID?
        var passedScheduled: ScheduledPosition?

        var isEmpty: Bool { ids.isEmpty && waitingLanes.isEmpty && passed == nil && passedScheduled == nil }
    }

    private var kinds: [Kind: Rows] = [:]
    /// Whether the latest claim of unsent rows took withheld ones, so that the next one takes others first.
    var wasTakenLast = false

    var isEmpty: Bool { kinds.isEmpty }
    /// The number of rows in `ids`.
    var count: Int { kinds.values.reduce(0) { $0 + $1.ids.count } }
    /// When the first of the kinds may be sent again.
    var due: Timestamp? { kinds.values.lazy.map(\.until).min() }

    func contains(_ id: MessageID, of kind: Kind) -> Bool {
        guard let ids = kinds[kind]?.ids else { return false }
        let index = ids.firstIndex(notBefore: id)
        return index < ids.count && ids[index] == id
    }

    func count(of kind: Kind) -> Int { kinds[kind]?.ids.count ?? 0 }
    func isWaiting(_ lane: Int64) -> Bool { kinds.values.contains { $0.waitingLanes.contains(lane) } }
    func hasRows(of kind: Kind) -> Bool { kinds[kind] != nil }
    func hasPassed(_ kind: Kind) -> Bool { kinds[kind]?.passed != nil }

    /// The kind among those that may be sent again that has waited longest.
    func next(at now: Timestamp) -> Kind? {
        kinds.filter { $0.value.until <= now }
            .min { ($0.value.until, $0.key.description) < ($1.value.until, $1.key.description) }?.key
    }

    func firstID(of kind: Kind) -> MessageID? { kinds[kind]?.ids.first }

    // MARK: Times

    /// - Parameter waiting: When each kind that may not be sent now may be.
    mutating func update(_ waiting: [Kind: Timestamp], now: Timestamp) {
        for (kind, rows) in kinds { kinds[kind]?.until = waiting[kind] ?? min(rows.until, now) }
    }

    mutating func makeDue(at now: Timestamp) { update([:], now: now) }

    /// Some of the kind was taken: other kinds are next.
    mutating func wasTaken(_ kind: Kind, now: Timestamp) {
        wasTakenLast = true
        kinds[kind]?.until = now
    }

    // MARK: Rows

    /// Withholds a row without an order. If there are `most`, it is only noted that it was passed, and the result is
    /// false.
    mutating func add(_ id: MessageID, of kind: Kind, until: Timestamp, atMost most: Int = .max) -> Bool {
        var rows = kinds.removeValue(forKey: kind) ?? Rows(until: until)
        defer { kinds[kind] = rows }
        guard rows.ids.count < most, rows.passed.map({ id < $0 }) ?? true || most == .max else {
            rows.passed = min(rows.passed ?? id, id)
            return false
        }
        let index = rows.ids.firstIndex(notBefore: id)
        if index == rows.ids.count || rows.ids[index] != id { rows.ids.insert(id, at: index) }
        return true
    }

    /// The same for a scheduled row that is due.
    mutating func add(
        scheduled position: ScheduledPosition, of kind: Kind, until: Timestamp, atMost most: Int
    ) -> Bool {
        if let rows = kinds[kind], rows.ids.count >= most {
            kinds[kind]?.passedScheduled = min(rows.passedScheduled ?? position, position)
            return false
        }
        return add(position.id, of: kind, until: until)
    }

    mutating func removeFirstID(of kind: Kind) {
        kinds[kind]?.ids.removeFirst()
        forgetIfEmpty(kind)
    }

    private mutating func forgetIfEmpty(_ kind: Kind) { if kinds[kind]?.isEmpty == true { kinds[kind] = nil } }

    /// The first row that a scan has passed, if fewer than `few` are kept. It counts as found.
    mutating func takePassed(of kind: Kind, ifFewerThan few: Int) -> MessageID? {
        guard let rows = kinds[kind], rows.ids.count < few, let passed = rows.passed else { return nil }
        kinds[kind]?.passed = nil
        return passed
    }

    /// Keeps rows that were passed before; `rest` is the first one for which there is no room.
    mutating func keep(_ ids: [MessageID], of kind: Kind, rest: MessageID?) {
        for id in ids { _ = add(id, of: kind, until: Timestamp(milliseconds: 0)) }
        kinds[kind]?.passed = rest
        forgetIfEmpty(kind)
    }

    /// The first scheduled row that was passed, of the kinds of which fewer than `few` are kept. It counts as found.
    mutating func takePassedScheduled(ifFewerThan few: Int) -> ScheduledPosition? {
        var first: ScheduledPosition?
        for (kind, rows) in kinds where rows.ids.count < few {
            guard let passed = rows.passedScheduled else { continue }
            first = min(first ?? passed, passed)
            kinds[kind]?.passedScheduled = nil
            forgetIfEmpty(kind)
        }
        return first
    }

    // MARK: Lanes

    /// Withholds a lane whose first row is of that kind.
    mutating func add(lane: Int64, of kind: Kind, until: Timestamp) {
        guard !isWaiting(lane) else { return }
        kinds[kind, default: Rows(until: until)].lanes.append(lane)
        kinds[kind]?.waitingLanes.insert(lane)
    }

    /// The lane is examined, whatever it waited for.
    mutating func remove(lane: Int64) {
        for (kind, rows) in kinds where rows.waitingLanes.contains(lane) {
            kinds[kind]?.waitingLanes.remove(lane)
            forgetIfEmpty(kind)
        }
    }

    /// The lane of the kind that was withheld first; nil if there is none.
    mutating func firstLane(of kind: Kind) -> Int64? {
        while let rows = kinds[kind], let lane = rows.lanes.first {
            if rows.waitingLanes.contains(lane) { return lane }
            kinds[kind]?.lanes.removeFirst()
        }
        return nil
    }

    /// Removes all lanes, because the first row of one may have been removed.
    mutating func takeLanes() -> [Int64] {
        var lanes: [Int64] = []
        for (kind, rows) in kinds where !rows.waitingLanes.isEmpty {
            lanes += rows.lanes.filter(rows.waitingLanes.contains)
            kinds[kind]?.lanes = []
            kinds[kind]?.waitingLanes = []
            forgetIfEmpty(kind)
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
