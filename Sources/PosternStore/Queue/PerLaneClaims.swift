import PosternCore
import PosternUpstream

/// The claims of a queue with separate lanes. A plain value, which the worker owns.
///
/// Which lane is next is stored in the table `lanes`, so what is kept here is bounded by what is in flight, however
/// many lanes there are, and by the ids of due messages that were scheduled, for a few lanes that have very many. A
/// lane that is due is served in the order of `readyAtMs`; where messages take turns, within its turn. Each lane, and each
/// group of lanes, has one batch in flight at a time.
struct PerLaneClaims: QueueClaims {
    private struct InFlight {
        var group: String?
        var exclusion: String?
        /// Ascending.
        var ids: [MessageID]
    }
    /// A batch that is to be sent again with the same messages, which is not stored in its rows or its lane.
    private struct SplitBatch {
        /// Ascending.
        let ids: [MessageID]
        let history: BatchHistory
    }

    /// The oldest scheduled messages of a lane that are due.
    private struct DueMessages {
        /// The number of messages that are read at once.
        static let most = 1000
        /// The number of lanes for which they are kept.
        static let maxLanes = 64

        /// Ascending. Some may have been sent or removed meanwhile.
        var ids: [MessageID] = []
        /// All those up to this one that were due at `moment` are known.
        var last = MessageID(rawValue: .max)
        var moment = Timestamp(milliseconds: 0)

        init(ids: [MessageID] = [], moment: Timestamp = Timestamp(milliseconds: 0)) {
            self.ids = ids
            self.moment = moment
        }
    }

    private var inFlight: [Int64: InFlight] = [:]
    private var manyDue: [Int64: DueMessages] = [:]
    private var busyGroups: Set<String> = []
    private var busyExclusions: Set<String> = []
    /// Histories by lane, in ascending order; kept for batches that were split or are under suspicion.
    private var splitBatches: [Int64: [SplitBatch]] = [:]

    /// The batches of a turn that are sent for each one of another; nil if lanes do not take turns.
    private var weights: [Int64: Int]?
    /// The turn of the latest batch, and how many there were of it in a row.
    private var last = (turn: Int64.min, batches: 0)

    /// Whether a lane is free again, or a removal has ended.
    private(set) var mustScan = false

    let isAtScanLimit = false
    let nextGroupDue: Timestamp? = nil
    let cursor = MessageID(rawValue: 0)
    let frontier = MessageID(rawValue: 0)
    var countInMemory: Int { Set(inFlight.keys).union(splitBatches.keys).count }
    func isHeldUp(_ id: MessageID, in lane: Int64) -> Bool? { nil }

    func maySend(through id: MessageID, now: Timestamp, from rows: QueueRows) throws -> Bool {
        var isFound = false
        try rows.forEachReadyLane { lane in
            guard lane.readyAt <= now else { return false }
            let first = splitBatches[lane.number]?.first
            let isLoneSuspect = first.map { $0.ids.count == 1 && $0.history.suspectTries > 0 } ?? false
            if !isLoneSuspect { isFound = try rows.hasUnscheduled(inLane: lane.number, through: id) }
            return !isFound
        }
        return isFound
    }

    mutating func share(by weights: [Int64: Int]?) { self.weights = weights }

    // MARK: Claiming

    mutating func adoptLeftovers(from rows: QueueRows) -> Timestamp? { nil }

    mutating func apply(_ updates: QueueMailbox.PendingUpdates) {
        if !updates.removals.isEmpty || updates.isCut || updates.rewindsTo != nil { mustScan = true }
        for (ended, history) in updates.suspended {
            end(ended, as: .again(from: .never, isDueNow: false, history: history))
        }
    }

    /// How many unsuitable lanes are skipped before a lane without preference is taken.
    private static let lanesToPass = 1000

    /// Collects the oldest messages of the lane that has been ready longest, of those whose turn it is.
    mutating func look(_ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool) throws {
        let request = scan.request
        var second: ReadyLane?
        var passed = 0
        scan.nextDue = .never
        func visit(_ lane: ReadyLane) throws -> Bool {
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
        if let weights {
            let isOver = last.batches >= weights[last.turn] ?? 1
            let start = last.turn > .min && !isOver ? last.turn - 1 : last.turn
            var (turn, hasWrapped) = (start, false)
            while scan.isEmpty, passed < Self.lanesToPass {
                let next = try rows.nextTurn(after: turn, dueAt: scan.now)
                if hasWrapped, next.map({ $0 > start }) ?? true { break }
                guard let next else {
                    (turn, hasWrapped) = (.min, true)
                    continue
                }
                turn = next
                try rows.forEachReadyLane(inTurn: turn, visit)
                if !scan.isEmpty { last = (turn, turn == last.turn && !isOver ? last.batches + 1 : 1) }
            }
            scan.nextDue = try scan.isEmpty ? rows.nextReadyLane(after: scan.now) ?? .never : scan.now
        } else {
            try rows.forEachReadyLane(visit)
        }
        if scan.isEmpty, let second { try take(second, into: &scan, from: rows) }
        if passed > 0 { scan.nextDue = scan.now }
        mustScan = false
    }

    private func isBusy(_ lane: ReadyLane, in request: ClaimRequest) -> Bool {
        inFlight[lane.number] != nil || lane.group.map(busyGroups.contains) ?? false
            || !busyExclusions.isEmpty && request.exclusionOfLane(lane.name).map(busyExclusions.contains) ?? false
    }

    private func hasFailed(_ lane: ReadyLane) -> Bool { lane.failures > 0 || splitBatches[lane.number] != nil }

    private func mayTake(_ lane: ReadyLane, _ request: ClaimRequest) -> Bool {
        guard let splitBatch = splitBatches[lane.number]?.first else {
            return request.mayRepeat(BatchHistory(failures: lane.failures), 1)
        }
        return request.mayRepeat(splitBatch.history, splitBatch.ids.count)
    }

    private mutating func take(_ lane: ReadyLane, into scan: inout ClaimScan, from rows: QueueRows) throws {
        scan.narrow(to: lane)
        var splitBatch: SplitBatch?
        var batchDueAt: Int64?
        // Nothing comes between the requests of a message that has begun.
        let begun = try rows.begunMessage(inLane: lane.number)
        let due = try begun == nil ? dueMessages(of: lane.number, at: scan.now, from: rows) : DueMessages()
        try rows.forEach(
            inLane: lane.number, with: due.ids, through: begun ?? due.last, expecting: scan.limits.maxMessages
        ) { row in
            let id = row.id
            let retryAt = row.waiting == QueueColumn.retrying ? row.nextAttemptAtMs : nil
            if scan.isEmpty {
                batchDueAt = retryAt
                splitBatch = splitBatches[lane.number]?.first { $0.ids.last.map { $0 >= id } ?? false }
            }
            // A batch that failed is sent again with the same messages only.
            let isInSplitBatch = splitBatch?.ids.contains(id) ?? false
            guard retryAt == batchDueAt, scan.isEmpty || isInSplitBatch == scan.isGroup else { return false }
            scan.isGroup = isInSplitBatch
            guard scan.fits(row.payloadCount) else { return false }
            scan.take(rows.queueRow(row, lane: lane))
            return !scan.isFull
        }
        guard !scan.isEmpty else {
            scan.isGroup = false
            return scan.staleLanes.append(lane.number)
        }
        if scan.isGroup, let splitBatch {
            scan.history = splitBatch.history
        } else if batchDueAt != nil {
            scan.history = BatchHistory(failures: lane.failures)
            scan.isGroup = true
        }
    }

    /// The scheduled messages of a lane that are due, oldest first, or the first of them. If there are many, they are
    /// kept for the next claims. After that, only what becomes due meanwhile is read; what is accepted meanwhile has a
    /// later id.
    private mutating func dueMessages(of lane: Int64, at now: Timestamp, from rows: QueueRows) throws -> DueMessages {
        if var known = manyDue[lane], known.moment <= now {
            let new = try rows.scheduled(inLane: lane, after: known.moment, until: now, through: known.last)
            if !new.isEmpty { known.ids = (known.ids + new).sorted() }
            known.moment = now
            let isLeft = try known.ids.firstIndex { try rows.isScheduled($0) }
            known.ids.removeFirst(isLeft ?? known.ids.count)
            if !known.ids.isEmpty {
                manyDue[lane] = known
                return known
            }
        }
        manyDue[lane] = nil
        var due = DueMessages(
            ids: try rows.scheduled(inLane: lane, until: now, limit: DueMessages.most), moment: now)
        if due.ids.count == DueMessages.most, let last = due.ids.last {
            due.last = last
            if manyDue.count == DueMessages.maxLanes { manyDue = [:] }
            manyDue[lane] = due
        }
        return due
    }

    mutating func abandon(_ scan: ClaimScan) { mustScan = true }

    /// A message that could not be leased is examined again once its removal has ended.
    mutating func end(_ scan: ClaimScan, found: [Message], as leases: Leases, refused: Set<MessageID>?) {
        guard let lane = scan.lane, let first = scan.messages.map(\.id).min() else { return }
        let exclusion = scan.request.exclusionOfLane(lane.name)
        inFlight[lane.number] = InFlight(
            group: lane.group, exclusion: exclusion, ids: scan.messages.map(\.id).sorted())
        if let group = lane.group { busyGroups.insert(group) }
        if let exclusion { busyExclusions.insert(exclusion) }
        removeSplitBatches(of: lane.number, through: scan.isGroup ? first : MessageID(rawValue: first.rawValue - 1))
    }

    /// Removes those that are being sent, or whose messages were removed meanwhile.
    private mutating func removeSplitBatches(of lane: Int64, through id: MessageID) {
        splitBatches[lane]?.removeAll { $0.ids[0] <= id }
        if splitBatches[lane]?.isEmpty == true { splitBatches[lane] = nil }
    }

    // MARK: Results of a claim

    /// The rows contain the times at which waiting messages are due, and messages that were not sent have not moved.
    mutating func end(_ ended: [Lease], as end: ClaimEnd) {
        if case .again(_, let isDueNow, let history) = end { keepTogether(ended, isDueNow: isDueNow, history) }
        mustScan = true
        for (lane, members) in Dictionary(grouping: ended, by: \.lane) {
            let gone = Set(members.map(\.id))
            inFlight[lane]?.ids.removeAll { gone.contains($0) }
            guard let left = inFlight[lane], left.ids.isEmpty else { continue }
            inFlight[lane] = nil
            if let group = left.group { busyGroups.remove(group) }
            if let exclusion = left.exclusion { busyExclusions.remove(exclusion) }
        }
    }

    func makeDue(at now: Timestamp) -> Bool { false }
    func makePostponedDue(at now: Timestamp) -> Bool { false }

    /// They are sent again together, which only this run knows. Their rows contain the time at which that is due.
    private mutating func keepTogether(_ ended: [Lease], isDueNow: Bool, _ history: BatchHistory) {
        let ids = ended.map(\.id).sorted()
        guard let first = ids.first, let lane = ended.first?.lane else { return }
        // Messages after others that are still being sent were only not part of the request. They are not sent again if
        // they are not under suspicion.
        guard history.suspectedAfter != nil || isDueNow && inFlight[lane]?.ids.first == first else { return }
        var known = splitBatches[lane] ?? []
        known.removeAll { $0.ids[0] == first }
        known.insert(SplitBatch(ids: ids, history: history), at: known.firstIndex { $0.ids[0] > first } ?? known.count)
        splitBatches[lane] = known
    }
}

/// A lane that may be served, now or at `readyAt`.
struct ReadyLane {
    let number: Int64
    let name: String
    let group: String?
    let readyAt: Timestamp
    /// How many times in a row its first message has failed.
    let failures: Int
    /// How many times its waits were ended early.
    let wakes: Int
}
