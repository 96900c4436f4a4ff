import PosternCore
import PosternUpstream

/// The batches of a mixed queue that are to be sent again: when, with which history, and which of their messages are
/// left. A plain value.
///
/// The messages of a group whose lanes are not free stay in it, and the others are sent without them.
struct RetryGroups {
    private struct Group {
        var dueAt: Timestamp
        /// Ascending. Those that are not in `lanes` have left the group.
        var ids: [MessageID]
        let history: BatchHistory
        /// Whether earlier messages precede it in each of its lanes; cleared when a lane becomes free.
        var isBlocked = false
    }

    private var groups: [Group] = []
    /// The lanes of the messages; mixed lanes are numbers without a row of their own.
    private var lanes: [MessageID: Int64] = [:]
    /// Whether a lane became free since groups were found blocked.
    private var mayUnblock = false

    /// The number of messages.
    @inline(__always) var count: Int { lanes.count }
    var ids: [MessageID] { Array(lanes.keys) }
    /// When the next group is due that may have a free lane.
    var nextDue: Timestamp? { groups.lazy.filter { mayUnblock || !$0.isBlocked }.map(\.dueAt).min() }

    @inline(__always) func contains(_ id: MessageID) -> Bool { lanes[id] != nil }
    func lane(of id: MessageID) -> Int64? { lanes[id] }

    /// The messages up to `id` that are due. Not a single one under suspicion.
    func due(through id: MessageID, at now: Timestamp) -> Set<MessageID> {
        let due = groups.filter { $0.dueAt <= now && !($0.ids.count == 1 && $0.history.suspectTries > 0) }
        return Set(due.flatMap { $0.ids.filter { $0 <= id && contains($0) } })
    }

    // MARK: Messages

    mutating func add(_ rows: [Lease], dueAt: Timestamp, history: BatchHistory) {
        for row in rows { lanes[row.id] = row.lane }
        groups.append(Group(dueAt: dueAt, ids: rows.map(\.id).sorted(), history: history))
    }

    /// The message leaves its group. Returns its lane; nil if it is in none.
    mutating func remove(_ id: MessageID) -> Int64? { lanes.removeValue(forKey: id) }

    // MARK: Times

    /// Makes due now the groups that have such a message.
    mutating func makeDue(at now: Timestamp, ifAny isMeant: (MessageID) -> Bool = { _ in true }) {
        for index in groups.indices where groups[index].ids.contains(where: isMeant) {
            groups[index].dueAt = min(groups[index].dueAt, now)
        }
    }

    /// A lane became free: the next claim examines all groups again.
    mutating func laneMoved() { mayUnblock = true }

    mutating func unblockIfLaneMoved() {
        guard mayUnblock else { return }
        for index in groups.indices { groups[index].isBlocked = false }
        mayUnblock = false
    }

    // MARK: Claiming

    /// The group that has been due longest. A probe carries one of those under suspicion only if there are no others:
    /// they have made probes fail already, and there may be one in each lane.
    func next(for request: ClaimRequest) -> Int? {
        func rank(_ group: Group) -> (isSuspected: Int, dueAt: Timestamp, first: MessageID) {
            let isSuspected = request.preference == .fresh && group.history.suspectedAfter != nil
            return (isSuspected ? 1 : 0, group.dueAt, group.ids[0])
        }
        var next: Int?
        for (index, group) in groups.enumerated() where group.dueAt <= request.now && !group.isBlocked {
            guard request.mayRepeat(group.history, group.ids.count) else { continue }
            if let next, rank(groups[next]) <= rank(group) { continue }
            next = index
        }
        return next
    }

    /// The messages of a group without an earlier one that waits or has to be sent first, unless that one is in the
    /// same request.
    ///
    /// - Parameter isNext: Whether a message may be sent after so many of its lane in the same request.
    func freeMembers(
        of index: Int, atMost most: Int, isNext: (MessageID, _ lane: Int64, _ after: Int) -> Bool
    ) -> [MessageID] {
        var free: [MessageID] = []
        var taken: [Int64: Int] = [:]
        for id in groups[index].ids where free.count < most {
            guard let lane = lanes[id], isNext(id, lane, taken[lane, default: 0]) else { continue }
            if lane != 0 { taken[lane, default: 0] += 1 }
            free.append(id)
        }
        return free
    }

    /// The free messages of a group have left it, or wait. Returns its history.
    ///
    /// - Parameters:
    ///   - isSent: Whether there are any to be sent.
    ///   - limitEnd: When those may be sent that wait for the limit of their kind; nil if all wait for their lanes.
    mutating func endClaim(of index: Int, isSent: Bool, limitEnd: Timestamp?) -> BatchHistory {
        groups[index].ids.removeAll { lanes[$0] == nil }
        if !isSent {
            if let limitEnd { groups[index].dueAt = limitEnd } else { groups[index].isBlocked = true }
        }
        defer { if groups[index].ids.isEmpty { groups.remove(at: index) } }
        return groups[index].history
    }
}
