import PosternCore

/// The memory of a queue: where the worker stands in it, and whom it has to pass over. A plain value; the queue
/// guards it.
///
/// Rows up to `cursor` have been looked at: they are gone, being sent (`leased`), due again later (`groups`), or were
/// passed over because an earlier message of their lane was not done (`deferred`). All three are bounded by what can
/// be under way at once, never by the length of the queue.
struct ClaimState {
    struct Group: Equatable {
        var dueAt: Timestamp
        /// Ascending.
        var ids: [MessageID]
        var history = BatchHistory()
    }

    var cursor = MessageID(rawValue: 0)
    var leased: Set<MessageID> = []
    var removing: Set<MessageID> = []
    var groups: [Group] = []
    var deferred: [(id: MessageID, lane: Int64)] = []
    /// Ids of each lane that later ones have to wait for: being sent, or due again.
    var holds: [Int64: [MessageID]] = [:]
    /// Lanes of rows that are due again, by id; mixed lanes are numbers without a row of their own.
    var laneOf: [MessageID: Int64] = [:]
    /// Rows behind the cursor may be there that arrived before this run, or were not looked at in full.
    var isBehind = true
    /// A lane became free since the deferred ones were last looked at.
    var mayHaveFreed = false

    /// So many wait for their lanes that looking further would only collect more of them.
    func isCrowded(_ limits: BatchLimits) -> Bool { deferred.count >= 4 * limits.maxMessages }

    func isHeld(_ lane: Int64, before id: MessageID) -> Bool {
        guard lane != 0, let ids = holds[lane] else { return false }
        return ids.contains { $0 < id }
    }

    private mutating func hold(_ lane: Int64, by id: MessageID) {
        guard lane != 0, holds[lane]?.contains(id) != true else { return }
        holds[lane, default: []].append(id)
    }

    private mutating func free(_ lane: Int64, of id: MessageID) {
        guard lane != 0, var ids = holds[lane] else { return }
        ids.removeAll { $0 == id }
        holds[lane] = ids.isEmpty ? nil : ids
        if !deferred.isEmpty { mayHaveFreed = true }
    }

    // MARK: Claiming

    mutating func claim(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        if try claimGroup(&scan, from: rows) { return }
        try claimScheduled(&scan, from: rows)
        try claimDeferred(&scan, from: rows)
        try claimFresh(&scan, from: rows)
        for message in scan.batch { lease(message) }
    }

    private mutating func lease(_ message: Message) {
        leased.insert(message.id)
        hold(message.lane.number, by: message.id)
    }

    /// The group that has been due longest, as it is, unless others of its lanes come first.
    private mutating func claimGroup(_ scan: inout ClaimScan, from rows: QueueRows) throws -> Bool {
        let due = groups.filter { $0.dueAt <= scan.now }.sorted { ($0.dueAt, $0.ids[0]) < ($1.dueAt, $1.ids[0]) }
        for group in due where !isHeldByOthers(group) {
            groups.removeAll { $0 == group }
            for id in group.ids {
                guard !removing.contains(id), let row = try rows.row(id) else {
                    free(laneOf.removeValue(forKey: id) ?? 0, of: id)
                    continue
                }
                scan.takeRegardless(row)
            }
            for message in scan.batch + scan.expired {
                laneOf[message.id] = nil
                lease(message)
            }
            if !scan.batch.isEmpty || !scan.expired.isEmpty {
                scan.history = group.history
                scan.isGroup = true
                return true
            }
        }
        return false
    }

    private func isHeldByOthers(_ group: Group) -> Bool {
        let own = Set(group.ids)
        return group.ids.contains { id in
            guard let lane = laneOf[id], lane != 0, let ids = holds[lane] else { return false }
            return ids.contains { $0 < id && !own.contains($0) }
        }
    }

    private mutating func claimScheduled(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        let due = try rows.scheduled(until: scan.now, limit: scan.limits.maxMessages + leased.count)
        var isPassedOver = false
        for row in due.rows where !leased.contains(row.message.id) && !removing.contains(row.message.id) {
            guard !scan.isFull else {
                scan.nextScheduled = scan.now
                return
            }
            if isHeld(row.message.lane.number, before: row.message.id) || !scan.take(row) { isPassedOver = true }
        }
        // Whoever waits for its lane is looked at again before long; nothing else would bring it back.
        let again = isPassedOver ? scan.now + .seconds(1) : Timestamp(milliseconds: .max)
        scan.nextScheduled = min(due.next ?? Timestamp(milliseconds: .max), again)
    }

    private mutating func claimDeferred(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        mayHaveFreed = false
        guard !deferred.isEmpty else { return }
        var left: [(id: MessageID, lane: Int64)] = []
        var taken: Set<Int64> = []
        for entry in deferred {
            // Once a lane had to be left behind, all later ones of it are.
            let isBlocked = scan.isFull || isHeld(entry.lane, before: entry.id) || taken.contains(entry.lane)
            guard !isBlocked, let row = try rows.row(entry.id) else {
                if isBlocked {
                    taken.insert(entry.lane)
                    left.append(entry)
                }
                continue
            }
            guard !removing.contains(entry.id) else { continue }
            if !scan.take(row) {
                taken.insert(entry.lane)
                left.append(entry)
            }
        }
        deferred = left
        if scan.isFull, !left.isEmpty { mayHaveFreed = true }
    }

    private mutating func claimFresh(_ scan: inout ClaimScan, from rows: QueueRows) throws {
        guard !scan.isFull, !isCrowded(scan.limits), cursor.rawValue < scan.newest || isBehind else { return }
        var passedOver = Set(deferred.map(\.lane))
        var position = cursor
        var stopped = false
        try rows.forEachFresh(after: cursor) { row in
            let id = row.id
            if leased.contains(id) || removing.contains(id) || laneOf[id] != nil {
                position = id
                return true
            }
            let lane = row.laneNumber
            if lane != 0, passedOver.contains(lane) || isHeld(lane, before: id) {
                passedOver.insert(lane)
                deferred.append((id, lane))
                position = id
                scan.looked(row.byteCount)
                if isCrowded(scan.limits) { stopped = true }
                return !stopped
            }
            guard scan.fits(row.byteCount) else {
                stopped = true
                return false
            }
            scan.take(row.queueRow())
            position = id
            scan.looked(row.byteCount)
            if scan.isFull { stopped = true }
            return !stopped
        }
        cursor = position
        isBehind = stopped && isBehind
        scan.reachedEnd = !stopped
    }

    // MARK: Giving back

    mutating func release(_ messages: [Message]) {
        for message in messages {
            leased.remove(message.id)
            free(message.lane.number, of: message.id)
        }
    }

    mutating func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory) {
        guard !messages.isEmpty else { return }
        for message in messages {
            leased.remove(message.id)
            laneOf[message.id] = message.lane.number
            hold(message.lane.number, by: message.id)
        }
        groups.append(Group(dueAt: dueAt, ids: messages.map(\.id).sorted(), history: history))
        mayHaveFreed = true
    }

    /// Groups need not wait any longer.
    mutating func hurry(to now: Timestamp) {
        for place in groups.indices { groups[place].dueAt = min(groups[place].dueAt, now) }
    }

    mutating func giveBack(_ messages: [Message]) {
        release(messages)
        guard let first = messages.map(\.id).min() else { return }
        rewind(before: first)
    }

    mutating func rewind(before id: MessageID) {
        guard id <= cursor else { return }
        cursor = MessageID(rawValue: id.rawValue - 1)
        deferred.removeAll { $0.id > cursor }
        isBehind = true
    }

    mutating func adopt(_ retries: [(id: MessageID, lane: Int64, dueAt: Timestamp)]) {
        for (dueAt, members) in Dictionary(grouping: retries, by: \.dueAt) {
            groups.append(Group(dueAt: dueAt, ids: members.map(\.id).sorted()))
            for member in members {
                laneOf[member.id] = member.lane
                hold(member.lane, by: member.id)
            }
        }
    }
}

/// What a batch has been through, as far as this run knows.
public struct BatchHistory: Sendable, Equatable {
    /// Failures of the upstream that it met, in a row.
    public var failures = 0
    /// How many requests the upstream had taken when this batch first came under suspicion; nil before that.
    public var suspectedAfter: Int?

    public init(failures: Int = 0, suspectedAfter: Int? = nil) {
        self.failures = failures
        self.suspectedAfter = suspectedAfter
    }
}

extension Lane {
    /// What the `lane` column of a mixed queue holds.
    var number: Int64 { if case .digest(let digest) = self { digest } else { 0 } }
}

/// What one look at the queue brings together.
struct ClaimScan {
    let limits: BatchLimits
    let now: Timestamp
    /// Messages accepted before have expired.
    let oldest: Timestamp?
    /// The newest id that was there when the look began.
    let newest: Int64
    var batch: [Message] = []
    var expired: [Message] = []
    var bytes: Int
    var lookedMessages = 0
    var lookedBytes = 0
    var reachedEnd = false
    var isGroup = false
    var history = BatchHistory()
    var nextScheduled: Timestamp?

    init(limits: BatchLimits, now: Timestamp, oldest: Timestamp?, newest: Int64) {
        self.limits = limits
        self.now = now
        self.oldest = oldest
        self.newest = newest
        bytes = limits.overhead
    }

    var isFull: Bool { batch.count >= limits.maxMessages || (!batch.isEmpty && bytes >= limits.maxBytes) }

    /// A message too large for any batch goes alone.
    func fits(_ count: Int) -> Bool {
        batch.isEmpty || (batch.count < limits.maxMessages && bytes + 1 + count <= limits.maxBytes)
    }

    mutating func looked(_ bytes: Int) {
        lookedMessages += 1
        lookedBytes += bytes
    }

    @discardableResult mutating func take(_ row: QueueRow) -> Bool {
        if hasExpired(row) {
            expired.append(row.message)
            return true
        }
        guard fits(row.message.payload.count) else { return false }
        takeRegardless(row)
        return true
    }

    mutating func takeRegardless(_ row: QueueRow) {
        if hasExpired(row) {
            expired.append(row.message)
        } else {
            bytes += row.message.payload.count + (batch.isEmpty ? 0 : 1)
            batch.append(row.message)
        }
    }

    private func hasExpired(_ row: QueueRow) -> Bool {
        row.expiresAt.map { $0 <= now } ?? false || oldest.map { row.message.acceptedAt <= $0 } ?? false
    }
}
