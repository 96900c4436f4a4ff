import PosternCore

/// Rows of a mixed queue that were looked at and left: an earlier message of their lane was not done, they were given
/// back, or their scheduled time has come. By lane, so that a lane that becomes free costs only its own rows.
struct DeferredRows {
    private var lanes: [Int64: [MessageID]] = [:]
    /// Lanes that may have something to take, in the order they became free; those of lane 0 always have.
    private var free: [Int64] = []
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }
    /// Is it worth looking at them?
    var hasFree: Bool { !free.isEmpty }

    func holds(_ lane: Int64) -> Bool { lanes[lane] != nil }

    func contains(_ id: MessageID, lane: Int64) -> Bool {
        guard let ids = lanes[lane] else { return false }
        let place = ids.firstPlace(notBefore: id)
        return place < ids.count && ids[place] == id
    }

    mutating func insert(_ id: MessageID, lane: Int64) {
        var ids = lanes.removeValue(forKey: lane) ?? []
        let place = ids.firstPlace(notBefore: id)
        if place == ids.count || ids[place] != id {
            ids.insert(id, at: place)
            count += 1
        }
        lanes[lane] = ids
    }

    /// The lane's rows may be taken now, or some of them.
    mutating func becameFree(_ lane: Int64) {
        guard lanes[lane] != nil, !free.contains(lane) else { return }
        free.append(lane)
    }

    /// Takes out the rows of the lane that has been free longest, ascending; what is not used goes back with `putBack`.
    mutating func takeFreeLane() -> (lane: Int64, ids: [MessageID])? {
        while !free.isEmpty {
            let lane = free.removeFirst()
            guard let ids = lanes.removeValue(forKey: lane) else { continue }
            count -= ids.count
            return (lane, ids)
        }
        return nil
    }

    /// `ids` stay ascending and were taken out before. `mayGoOn`: there was no room for more of them.
    mutating func putBack(_ ids: [MessageID], lane: Int64, mayGoOn: Bool) {
        guard !ids.isEmpty else { return }
        lanes[lane] = ids
        count += ids.count
        if mayGoOn { free.insert(lane, at: 0) }
    }
}

extension [MessageID] {
    /// Of an ascending list: where `id` stands or would stand.
    fileprivate func firstPlace(notBefore id: MessageID) -> Int {
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
