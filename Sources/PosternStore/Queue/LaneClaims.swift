import PosternCore

/// The memory of a queue with separate lanes: what is being sent. A plain value; the queue guards it.
///
/// Which lane is next is stored in the table `lanes`, so what is kept here is bounded by what is in flight, however many
/// lanes there are. A lane that is due is served in the order of `readyAtMs`; each lane, and each group of lanes, has
/// one batch in flight at a time.
struct LaneClaims {
    private struct InFlight {
        var group: String?
        var exclusion: String?
        /// Ascending.
        var ids: [MessageID]
    }
    /// A batch that is to be sent again in the same composition, which neither its rows nor its lane say.
    private struct Piece {
        /// Ascending.
        let ids: [MessageID]
        let history: BatchHistory
    }

    var leases = Leases()
    var due = NextDue()
    private var inFlight: [Int64: InFlight] = [:]
    private var busyGroups: Set<String> = []
    private var busyExclusions: Set<String> = []
    /// By lane, ascending; kept for batches that were taken apart or are under suspicion.
    private var pieces: [Int64: [Piece]] = [:]

    /// The number of lanes known here.
    var count: Int { Set(inFlight.keys).union(pieces.keys).count }

    // MARK: Claiming

    /// Returns when the next lane was known to be due.
    mutating func beginLook() -> Timestamp {
        leases.beginLook()
        return due.beginLook()
    }

    /// Lanes looked at in vain before one is taken that is not preferred.
    private static let lanesToPass = 1000

    /// Collects the oldest messages of the lane that has been ready longest. Changes nothing: the store is read without
    /// a lock, on a copy.
    func look(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        let request = scan.request
        var second: ReadyLane?
        var passed = 0
        scan.nextDue = .never
        try rows.forEachReadyLane { lane in
            guard !isBusy(lane, in: request) else { return true }
            guard scan.isEmpty, lane.readyAt <= scan.now else {
                scan.nextDue = lane.readyAt
                return false
            }
            if hasFailed(lane), !mayTake(lane, request) || request.preference == .fresh {
                if second == nil, mayTake(lane, request) { second = lane }
                passed += 1
                return passed < Self.lanesToPass
            }
            try take(lane, into: &scan, from: rows)
            return true
        }
        if scan.isEmpty, let second { try take(second, into: &scan, from: rows) }
        if passed > 0 { scan.nextDue = scan.now }
    }

    private func isBusy(_ lane: ReadyLane, in request: ClaimRequest) -> Bool {
        inFlight[lane.number] != nil || lane.group.map(busyGroups.contains) ?? false
            || !busyExclusions.isEmpty && request.exclusionOfLane(lane.name).map(busyExclusions.contains) ?? false
    }

    private func hasFailed(_ lane: ReadyLane) -> Bool { lane.failures > 0 || pieces[lane.number] != nil }

    private func mayTake(_ lane: ReadyLane, _ request: ClaimRequest) -> Bool {
        guard let piece = pieces[lane.number]?.first else {
            return request.mayRepeat(BatchHistory(failures: lane.failures), 1)
        }
        return request.mayRepeat(piece.history, piece.ids.count)
    }

    private func take(_ lane: ReadyLane, into scan: inout ClaimScan, from rows: QueueRows) throws {
        scan.narrow(to: lane)
        var piece: Piece?
        var compositionDueAt: Int64?
        try rows.forEach(inLane: lane.number) { row in
            let id = row.id
            if row.waiting == QueueColumn.scheduled, row.nextAttemptAtMs > scan.now.milliseconds { return true }
            let retryAt = row.waiting == QueueColumn.retrying ? row.nextAttemptAtMs : nil
            if scan.isEmpty {
                compositionDueAt = retryAt
                piece = pieces[lane.number]?.first { $0.ids.last.map { $0 >= id } ?? false }
            }
            // A batch that failed is sent again as it was, and alone.
            let isOfPiece = piece?.ids.contains(id) ?? false
            guard retryAt == compositionDueAt, scan.isEmpty || isOfPiece == scan.isGroup else { return false }
            scan.isGroup = isOfPiece
            guard scan.fits(row.payloadCount) else { return false }
            scan.take(rows.queueRow(row, lane: lane))
            return !scan.isFull
        }
        guard !scan.isEmpty else {
            scan.isGroup = false
            return scan.staleLanes.append(lane.number)
        }
        if scan.isGroup, let piece {
            scan.history = piece.history
        } else if compositionDueAt != nil {
            scan.history = BatchHistory(failures: lane.failures)
            scan.isGroup = true
        }
    }

    /// Leases what was found, unless it is being removed.
    mutating func endLook(_ scan: inout ClaimScan) {
        due.endLook(scan.nextDue ?? scan.due)
        guard let lane = scan.lane else { return leases.abandonLook() }
        // What is refused is looked at again once its removal is over.
        _ = leases.endLook(taking: scan.messages) { _ in lane.number }
        scan.keep(leases.contains)
        guard let first = scan.messages.map(\.id).min() else { return }
        let exclusion = scan.request.exclusionOfLane(lane.name)
        inFlight[lane.number] = InFlight(
            group: lane.group, exclusion: exclusion, ids: scan.messages.map(\.id).sorted())
        if let group = lane.group { busyGroups.insert(group) }
        if let exclusion { busyExclusions.insert(exclusion) }
        forgetPieces(of: lane.number, through: scan.isGroup ? first : MessageID(rawValue: first.rawValue - 1))
    }

    mutating func abandonLook(_ scan: ClaimScan) {
        due.endLook(scan.due)
        leases.abandonLook()
    }

    /// Forgets those that are being sent, or whose messages were removed meanwhile.
    private mutating func forgetPieces(of lane: Int64, through id: MessageID) {
        pieces[lane]?.removeAll { $0.ids[0] <= id }
        if pieces[lane]?.isEmpty == true { pieces[lane] = nil }
    }

    // MARK: What became of a claim

    mutating func release(_ messages: [Message]) {
        defer { due.mustLook() }
        for (lane, members) in Dictionary(grouping: messages, by: { leases.end($0.id) }) {
            guard let lane else { continue }
            let gone = Set(members.map(\.id))
            inFlight[lane]?.ids.removeAll { gone.contains($0) }
            guard let left = inFlight[lane], left.ids.isEmpty else { continue }
            inFlight[lane] = nil
            if let group = left.group { busyGroups.remove(group) }
            if let exclusion = left.exclusion { busyExclusions.remove(exclusion) }
        }
    }

    /// They are sent again, in this composition if only this run knows of it. Their rows say when that is due.
    mutating func sendAgain(_ messages: [Message], isDueNow: Bool, history: BatchHistory) {
        defer { release(messages) }
        let ids = messages.map(\.id).sorted()
        guard let first = ids.first, let lane = leases.lanes[first] else { return }
        // What comes behind others that are still being sent was merely not carried.
        guard isDueNow || history.suspectedAfter != nil, inFlight[lane]?.ids.first == first else { return }
        var known = pieces[lane] ?? []
        known.removeAll { $0.ids[0] == first }
        known.insert(Piece(ids: ids, history: history), at: known.firstIndex { $0.ids[0] > first } ?? known.count)
        pieces[lane] = known
    }

    /// The lane under which `messages` are being sent.
    func lane(of messages: [Message]) -> Int64? { messages.first.flatMap { leases.lanes[$0.id] } }
}

/// A lane that may be served, now or at `readyAt`.
struct ReadyLane {
    let number: Int64
    let name: String
    let group: String?
    let readyAt: Timestamp
    /// How often its front has failed in a row.
    let failures: Int
    /// How often its waits were ended early.
    let wakes: Int
}
