import PosternCore

/// The examined rows of a mixed queue that are still to be sent, and what each of them waits for: its lane, the end of
/// a backoff, its kind, or the end of its removal. A plain value.
///
/// A row that waits for nothing is in a lane of `skipped` that is free. What is kept here is bounded by what can be in
/// flight and by the limit, never by the length of the queue.
struct ExaminedRows {
    /// The number of skipped rows from which on a scan would only collect more of them: about 2 MB.
    static let limit = 65_536

    let sendsKindsApart: Bool
    /// All that have a lane, and those without one that may be sent.
    var skipped = SkippedRows()
    /// The rows that were sent before, or postponed.
    var groups = RetryGroups()
    /// Those of `groups` that were postponed.
    var postponed = PostponedKinds()
    /// The rows that wait because their kind has been sent as often as it may.
    var withheld = WithheldRows()
    /// The lanes of rows that could not be taken because the writer was removing them.
    private var awaitingRemoval: [MessageID: Int64] = [:]
    /// Ids above this one have not been examined.
    private(set) var frontier = MessageID(rawValue: 0)
    /// Whether a lane moved since all turns were examined.
    var hasLaneMoved = false

    init(sendsKindsApart: Bool) { self.sendsKindsApart = sendsKindsApart }

    // Inlined, because a call would copy all of this for each row.
    @inline(__always) private var countOfRows: Int { skipped.count + groups.count }
    var count: Int { countOfRows + withheld.count }
    @inline(__always) var isAtLimit: Bool { countOfRows >= Self.limit }
    /// Whether no more rows of a turn are skipped: the rest is for those of others that may be sent.
    @inline(__always) var isCrowded: Bool { countOfRows >= Self.limit / 2 }

    /// Whether the row waits here, or is in flight.
    @inline(__always) func contains(
        _ id: MessageID, in lane: Int64, _ kind: Kind, _ isLeased: (MessageID) -> Bool
    ) -> Bool {
        guard id <= frontier else { return false }
        return groups.contains(id) || awaitingRemoval[id] != nil || skipped.contains(id, in: lane)
            || !withheld.isEmpty && lane == 0 && withheld.contains(id) || isLeased(id)
    }

    /// Whether an earlier message of the lane is being sent, or waits to be sent again. A postponed one waits for the
    /// same reason as those after it.
    func isHeldUp(_ id: MessageID, in lane: Int64) -> Bool {
        guard lane != 0 else { return false }
        return skipped.isInFlight(lane) || withheld.isWaiting(lane) && skipped.row(at: 0, of: lane) != id
            || skipped.rows(before: id, of: lane).contains { groups.contains($0) && !postponed.contains($0) }
    }

    /// Whether a row up to `id` may be sent now, or after one of its lane that is being sent.
    func maySend(through id: MessageID, now: Timestamp) -> Bool {
        let due = groups.due(through: id, at: now)
        return due.contains { groups.lane(of: $0) == 0 }
            || skipped.contains(through: id) { groups.contains($0) ? due.contains($0) : awaitingRemoval[$0] == nil }
    }

    /// The row at that index of the lane; nil also if it is in a group, or is being removed.
    func unsentRow(at index: Int, of lane: Int64) -> MessageID? {
        guard let id = skipped.row(at: index, of: lane), !groups.contains(id), awaitingRemoval[id] == nil else {
            return nil
        }
        return id
    }

    /// The messages of a group that may be sent now.
    func freeMembers(ofGroup index: Int, atMost most: Int) -> [MessageID] {
        groups.freeMembers(of: index, atMost: most) { id, lane, after in
            awaitingRemoval[id] == nil && (lane == 0 || skipped.isNext(id, in: lane, at: after))
        }
    }

    // MARK: Rows that a scan has examined

    mutating func extend(through id: MessageID) { frontier = max(frontier, id) }

    enum Wait: Equatable {
        /// The endpoint of its kind, of which enough messages wait.
        case endpoint
        /// The end of a limit of its kind.
        case limit(until: Timestamp)
        case lane
    }

    /// What a row that was not examined before waits for; nil if it may be sent. Of the examined rows it gets only those
    /// that decide about it, because a call would copy all of this for each row.
    ///
    /// - Parameters:
    ///   - full: Kinds of which enough messages are postponed.
    ///   - waiting: Kinds that may not be sent now.
    @inline(__always) static func wait(
        of id: MessageID, in lane: Int64, _ kind: Kind, behind skipped: SkippedRows, full: Set<Kind>,
        waiting: [Kind: Timestamp]
    ) -> Wait? {
        if !full.isEmpty, lane == 0, full.contains(kind) { return .endpoint }
        guard skipped.mayTake(id, in: lane) else { return .lane }
        if !waiting.isEmpty, let until = waiting[kind] { return .limit(until: until) }
        return nil
    }

    /// Keeps a row that waits. Returns false if there are `most` of its kind, so that it was only noted that it was
    /// passed.
    mutating func keep(
        _ id: MessageID, in lane: Int64, _ kind: Kind, _ turn: Int64 = 0, for wait: Wait, atMost most: Int
    ) -> Bool {
        switch wait {
        case .endpoint:
            postponed.pass(id, of: kind)
            return false
        case .limit(let until) where lane == 0:
            let most = WithheldRows.most(ofTurn: turn, most)
            return withheld.add(id, of: kind, inTurn: turn, until: until, atMost: most)
        case .limit(let until):
            skipped.insert(id, in: lane)
            withheld.add(lane: lane, of: kind, inTurn: turn, until: until)
        case .lane: skipped.insert(id, in: lane)
        }
        return true
    }

    /// Leaves a row for a later scan.
    mutating func leave(_ id: MessageID, in lane: Int64) {
        skipped.insert(id, in: lane)
        extend(through: id)
        becameFree(lane)
    }

    /// The wait of the lane has ended. If a group is next in it, the group is examined again.
    mutating func becameFree(_ lane: Int64) {
        laneMoved()
        if lane == 0 || unsentRow(at: 0, of: lane) != nil { skipped.becameFree(lane) }
    }

    /// Rows of a lane are no longer waited for.
    mutating func laneMoved() {
        groups.laneMoved()
        hasLaneMoved = true
    }

    // MARK: Groups

    /// The rows are to be sent again from `dueAt` on.
    mutating func group(_ rows: [Lease], dueAt: Timestamp, history: BatchHistory = BatchHistory()) {
        groups.add(rows, dueAt: dueAt, history: history)
        for row in rows {
            if row.lane != 0 { skipped.insert(row.id, in: row.lane) }
            extend(through: row.id)
        }
    }

    mutating func leaveGroup(_ id: MessageID, isGone: Bool) {
        guard let lane = groups.remove(id) else { return }
        postponed.remove(id)
        skipped.remove(id, from: lane)
        if isGone { becameFree(lane) }
    }

    // MARK: Changes by the writer

    /// The row could not be taken because it, or an earlier one of its lane, is being removed. No message overtakes it
    /// before the end of that is known.
    mutating func refuse(_ id: MessageID, in lane: Int64, isBeingRemoved: Bool) {
        if isBeingRemoved { awaitingRemoval[id] = lane }
        if lane != 0 { skipped.insert(id, in: lane) }
    }

    /// The removal is committed (`isGone`) or undone.
    mutating func recordRemoval(of id: MessageID, isGone: Bool) {
        guard let lane = awaitingRemoval.removeValue(forKey: id) ?? groups.lane(of: id) else { return }
        if isGone {
            leaveGroup(id, isGone: true)
            skipped.remove(id, from: lane)
        } else if !groups.contains(id) {
            skipped.insert(id, in: lane)
        }
        becameFree(lane)
    }

    /// More was removed than was announced: checks the rows that others wait for.
    mutating func findRemoved(exists: (MessageID) throws -> Bool) rethrows {
        for id in groups.ids + Array(awaitingRemoval.keys) {
            let isGone = try !exists(id)
            if isGone || !groups.contains(id) { recordRemoval(of: id, isGone: isGone) }
        }
    }

    /// The row of the kind that a withheld lane waits for may be gone.
    mutating func examineWithheldLanes() {
        for lane in withheld.takeLanes() { becameFree(lane) }
    }
}
