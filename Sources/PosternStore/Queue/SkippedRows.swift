import DequeModule
import PosternCore

/// The rows of a mixed queue that were examined and skipped, by lane and in accepted order: an earlier message of the
/// lane is not settled, they were returned, their scheduled time has been reached, or they are to be sent again. A
/// plain value.
///
/// The rows of lane 0 have no order among each other. A lane that becomes free costs only its own rows.
struct SkippedRows {
    private struct LaneRows {
        /// Whether its first row may be sent, as far as this value shows.
        var isUsable: Bool { isFree && inFlight == 0 }

        /// Ascending.
        var ids: [MessageID] = []
        /// The number of the lane's messages that are being sent. Earlier ones that are returned wait for those, too.
        var inFlight = 0
        /// Whether the lane is in `free`.
        var isFree = false
    }

    private var lanes: [Int64: LaneRows] = [:]
    /// Lanes whose first row may be sent, in the order they became free.
    private var free: Deque<Int64> = []
    /// The number of rows.
    private(set) var count = 0

    var hasFree: Bool { free.contains { lanes[$0]?.isUsable == true } }

    func contains(_ id: MessageID, in lane: Int64) -> Bool {
        guard let ids = lanes[lane]?.ids else { return false }
        let index = ids.firstIndex(notBefore: id)
        return index < ids.count && ids[index] == id
    }

    func count(of lane: Int64) -> Int { lanes[lane]?.ids.count ?? 0 }

    func isInFlight(_ lane: Int64) -> Bool { lanes[lane].map { $0.inFlight > 0 } ?? false }

    func rows(before id: MessageID, of lane: Int64) -> ArraySlice<MessageID> {
        let ids = lanes[lane]?.ids ?? []
        return ids[..<ids.firstIndex(notBefore: id)]
    }

    /// Whether `id` may be sent before every skipped row of the lane.
    func mayTake(_ id: MessageID, in lane: Int64) -> Bool {
        guard lane != 0, let found = lanes[lane] else { return true }
        return found.inFlight == 0 && found.ids.first.map { id < $0 } ?? true
    }

    /// Whether `id` is the row at `index` of a lane of which nothing is being sent.
    func isNext(_ id: MessageID, in lane: Int64, at index: Int) -> Bool {
        guard let found = lanes[lane], found.inFlight == 0, index < found.ids.count else { return false }
        return found.ids[index] == id
    }

    func row(at index: Int, of lane: Int64) -> MessageID? {
        guard let ids = lanes[lane]?.ids, index < ids.count else { return nil }
        return ids[index]
    }

    /// Whether a row up to `id` follows one of its lane in flight, or is the first that may be sent, which `mayBeSent`
    /// decides.
    func contains(through id: MessageID, where mayBeSent: (MessageID) -> Bool) -> Bool {
        lanes.contains { lane, found in
            let rows = found.ids.prefix { $0 <= id }
            if lane == 0 { return rows.contains(where: mayBeSent) }
            return rows.first.map { found.inFlight > 0 || mayBeSent($0) } ?? false
        }
    }

    // MARK: Rows

    mutating func insert(_ id: MessageID, in lane: Int64) {
        var found = lanes.removeValue(forKey: lane) ?? LaneRows()
        let index = found.ids.firstIndex(notBefore: id)
        if index == found.ids.count || found.ids[index] != id {
            found.ids.insert(id, at: index)
            count += 1
        }
        lanes[lane] = found
    }

    mutating func remove(_ id: MessageID, from lane: Int64) {
        guard contains(id, in: lane), let index = lanes[lane]?.ids.firstIndex(notBefore: id) else { return }
        remove(index..<index + 1, from: lane)
    }

    /// Removes the first `count` rows of the lane.
    mutating func removeFirst(_ count: Int, from lane: Int64) { remove(0..<count, from: lane) }

    private mutating func remove(_ range: Range<Int>, from lane: Int64) {
        guard !range.isEmpty else { return }
        lanes[lane]?.ids.removeSubrange(range)
        count -= range.count
        forgetIfEmpty(lane)
    }

    private mutating func forgetIfEmpty(_ lane: Int64) {
        if let found = lanes[lane], found.ids.isEmpty, found.inFlight == 0 { lanes[lane] = nil }
    }

    // MARK: In flight

    mutating func beginFlight(in lane: Int64) {
        if lane != 0 { lanes[lane, default: LaneRows()].inFlight += 1 }
    }

    /// Returns whether nothing of the lane is in flight any more.
    mutating func endFlight(in lane: Int64) -> Bool {
        guard lane != 0, let index = lanes.index(forKey: lane), lanes.values[index].inFlight > 0 else { return false }
        lanes.values[index].inFlight -= 1
        guard lanes.values[index].inFlight == 0 else { return false }
        if lanes.values[index].ids.isEmpty { lanes.remove(at: index) }
        return true
    }

    // MARK: Free lanes

    /// The first row of the lane may be sent, as far as this value shows. `isNext`: before those of all other lanes,
    /// because a batch had no room for more of this one.
    mutating func becameFree(_ lane: Int64, isNext: Bool = false) {
        guard let found = lanes[lane], !found.isFree, found.inFlight == 0, !found.ids.isEmpty else { return }
        lanes[lane]?.isFree = true
        if isNext { free.prepend(lane) } else { free.append(lane) }
    }

    /// Removes the lane that has been free longest from `free`; its rows stay.
    mutating func takeFree() -> Int64? {
        while let lane = free.popFirst() {
            // A lane with something in flight becomes free again after that.
            let isUsable = lanes[lane]?.isUsable == true
            lanes[lane]?.isFree = false
            if isUsable { return lane }
        }
        return nil
    }
}

extension [MessageID] {
    /// The index in an ascending list at which `id` is or would be inserted.
    fileprivate func firstIndex(notBefore id: MessageID) -> Int {
        if let last, last < id { return count }
        var low = 0
        var high = count
        while low < high {
            let middle = (low + high) / 2
            if self[middle] < id { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
