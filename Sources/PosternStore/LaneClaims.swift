import PosternCore

/// The memory of a queue with separate lanes: who is being sent. A plain value; the queue guards it.
///
/// Which lane is next stands in the table `lanes`, so what is kept here is bounded by what is under way, however many
/// lanes there are. A lane that is due comes in the order of `readyAtMs`; each lane, and each group of lanes, has one
/// batch under way at a time.
struct LaneClaims {
    private struct UnderWay {
        var group: String?
        var exclusion: String?
        /// Ascending.
        var ids: [MessageID]
    }
    /// A batch that is to go out again in the same composition; rows and lanes do not tell.
    private struct Piece {
        let first: MessageID
        let count: Int
        let history: BatchHistory
    }

    private var laneOf: [MessageID: Int64] = [:]
    private var underWay: [Int64: UnderWay] = [:]
    private var busyGroups: Set<String> = []
    private var busyExclusions: Set<String> = []
    private var removing: Set<MessageID> = []
    /// Ascending for each lane; kept for batches that were taken apart or are under suspicion.
    private var pieces: [Int64: [Piece]] = [:]

    /// How many lanes are known here at all.
    var count: Int { Set(underWay.keys).union(pieces.keys).count }

    func isLeased(_ id: MessageID) -> Bool { laneOf[id] != nil }

    // MARK: Claiming

    /// Takes the oldest messages of the lane that has been ready longest. Lanes of one `exclusion`, like those of one
    /// group, have one batch under way at a time.
    mutating func claim(
        _ scan: inout ClaimScan, from rows: QueueRows, exclusion: (String) -> String? = { _ in nil }
    ) throws {
        scan.nextDue = .never
        try rows.forEachReadyLane { lane in
            guard underWay[lane.number] == nil, !(lane.group.map(busyGroups.contains) ?? false) else { return true }
            let exclusion = exclusion(lane.name)
            guard !(exclusion.map(busyExclusions.contains) ?? false) else { return true }
            guard scan.isEmpty, lane.readyAt <= scan.now else {
                scan.nextDue = lane.readyAt
                return false
            }
            try take(lane, into: &scan, from: rows)
            lease(scan.batch + scan.expired, of: lane, exclusion: exclusion)
            return true
        }
    }

    private mutating func take(_ lane: ReadyLane, into scan: inout ClaimScan, from rows: QueueRows) throws {
        scan.narrow(toLane: lane)
        var piece: Piece?
        var compositionDueAt: Int64?
        var meetsRemoval = false
        try rows.forEach(inLane: lane.number) { row in
            let id = row.id
            if removing.contains(id) {
                // Nobody overtakes it before it is known to be gone.
                meetsRemoval = true
                return false
            }
            if row.waiting == QueueColumn.scheduled, row.nextAttemptAtMs > scan.now.milliseconds { return true }
            let retryAt = row.waiting == QueueColumn.retrying ? row.nextAttemptAtMs : nil
            if scan.isEmpty {
                compositionDueAt = retryAt
                piece = piecesGone(before: id, of: lane.number)
                if let piece, piece.first == id { pieces[lane.number]?.removeFirst() }
            } else {
                // A batch that failed goes out again as it was, and alone.
                guard retryAt == compositionDueAt, id != piece?.first else { return false }
                if let piece, piece.first < id, scan.count >= piece.count { return false }
            }
            guard scan.fits(row.byteCount) else { return false }
            scan.take(row.queueRow(lane: lane))
            return !scan.isFull
        }
        if pieces[lane.number]?.isEmpty == true { pieces[lane.number] = nil }
        guard !scan.isEmpty else {
            if !meetsRemoval { scan.staleLanes.append(lane.number) }
            return
        }
        scan.lane = lane.number
        if let piece, piece.first == scan.firstID {
            scan.history = piece.history
            scan.isGroup = true
        } else if compositionDueAt != nil {
            scan.history = BatchHistory(failures: lane.failures)
            scan.isGroup = true
        }
    }

    /// The lane's next piece, once those that were removed meanwhile are forgotten.
    private mutating func piecesGone(before id: MessageID, of lane: Int64) -> Piece? {
        pieces[lane]?.removeAll { $0.first < id }
        return pieces[lane]?.first
    }

    private mutating func lease(_ messages: [Message], of lane: ReadyLane, exclusion: String?) {
        guard !messages.isEmpty else { return }
        for message in messages { laneOf[message.id] = lane.number }
        underWay[lane.number] = UnderWay(group: lane.group, exclusion: exclusion, ids: messages.map(\.id).sorted())
        if let group = lane.group { busyGroups.insert(group) }
        if let exclusion { busyExclusions.insert(exclusion) }
    }

    // MARK: Giving back

    mutating func release(_ messages: [Message]) {
        for (lane, members) in Dictionary(grouping: messages, by: { laneOf.removeValue(forKey: $0.id) }) {
            guard let lane else { continue }
            let gone = Set(members.map(\.id))
            underWay[lane]?.ids.removeAll { gone.contains($0) }
            guard let left = underWay[lane], left.ids.isEmpty else { continue }
            underWay[lane] = nil
            if let group = left.group { busyGroups.remove(group) }
            if let exclusion = left.exclusion { busyExclusions.remove(exclusion) }
        }
    }

    /// They go out again, in this composition if somebody has to know it. When that is due stands with their rows.
    mutating func sendAgain(_ messages: [Message], isDueNow: Bool, history: BatchHistory) {
        defer { release(messages) }
        guard let first = messages.map(\.id).min(), let lane = laneOf[first] else { return }
        // Whoever comes behind others that are still being sent was merely not carried.
        guard isDueNow || history.suspectedAfter != nil, underWay[lane]?.ids.first == first else { return }
        let piece = Piece(first: first, count: messages.count, history: history)
        var known = pieces[lane] ?? []
        known.removeAll { $0.first == first }
        known.insert(piece, at: known.firstIndex { $0.first > first } ?? known.count)
        pieces[lane] = known
    }

    /// The lane under which `messages` are being sent.
    func lane(of messages: [Message]) -> Int64? { messages.first.flatMap { laneOf[$0.id] } }

    // MARK: Removing

    /// Keeps a row from being claimed until `doneRemoving`. False while it is being sent.
    mutating func tryRemoving(_ id: MessageID) -> Bool {
        guard laneOf[id] == nil else { return false }
        removing.insert(id)
        return true
    }

    mutating func doneRemoving(_ ids: [MessageID]) {
        for id in ids { removing.remove(id) }
    }
}

/// A lane whose turn it is, or will be.
struct ReadyLane {
    let number: Int64
    let name: String
    let group: String?
    let readyAt: Timestamp
    let failures: Int
    let wakes: Int
}
