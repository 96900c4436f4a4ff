import PosternCore

/// What a worker asks of its queue.
struct ClaimRequest {
    var limits: BatchLimits
    var now: Timestamp
    /// Messages accepted until then have expired; nil when they do not by their age.
    var oldest: Timestamp?
    var preference = ClaimPreference.inTurn
    /// Whether a batch with this history and so many messages may go out again now.
    var mayRepeat: (BatchHistory, Int) -> Bool = { _, _ in true }
    /// What one request of a named lane may carry; nil: `limits`.
    var limitsOfLane: ((String) -> BatchLimits)?
    /// Lanes of one exclusion have one batch in flight at a time.
    var exclusionOfLane: (String) -> String? = { _ in nil }
}

/// What one look at the queue brings together.
struct ClaimScan {
    let request: ClaimRequest
    /// The newest id that was announced when the look began.
    let newest: MessageID
    /// When the first scheduled row is due that was not found yet.
    let due: Timestamp
    private(set) var limits: BatchLimits
    private(set) var batch: [Message] = []
    private(set) var expired: [Message] = []
    var isGroup = false
    var history = BatchHistory()
    /// When the next scheduled row, or the next lane, is due; nil when the look did not find out.
    var nextDue: Timestamp?
    /// The lane claimed from a queue with separate ones, and lanes that had nothing to give although they were ready.
    private(set) var lane: ReadyLane?
    var staleLanes: [Int64] = []
    private var room: BatchRoom

    // How many new rows were looked at, for the count of arrivals.
    private(set) var lookedMessages = 0
    private(set) var lookedBytes = 0

    init(_ request: ClaimRequest, newest: MessageID = MessageID(rawValue: .max), due: Timestamp = .never) {
        self.request = request
        self.newest = newest
        self.due = due
        limits = request.limits
        room = BatchRoom(limits)
    }

    /// From here on the batch is one of `lane`.
    mutating func narrow(to lane: ReadyLane) {
        self.lane = lane
        limits = request.limitsOfLane?(lane.name) ?? request.limits
        room = BatchRoom(limits)
    }

    var now: Timestamp { request.now }
    var messages: [Message] { batch + expired }
    var count: Int { batch.count + expired.count }
    var isEmpty: Bool { count == 0 }

    /// Expired ones are bounded too: a long outage leaves any number of them.
    var isFull: Bool { room.isFull || expired.count >= limits.maxMessages }

    func fits(_ count: Int) -> Bool { room.fits(count) }

    mutating func looked(atBytes count: Int) {
        lookedMessages += 1
        lookedBytes += count
    }

    /// False when there is no room for it.
    @discardableResult mutating func take(_ row: QueueRow) -> Bool {
        // A damaged one is not sent either; the transaction that ends it tells them apart.
        if hasExpired(row) || !row.isWhole {
            expired.append(row.message)
            return true
        }
        guard fits(row.message.payload.count) else { return false }
        room.take(row.message.payload.count)
        batch.append(row.message)
        return true
    }

    private func hasExpired(_ row: QueueRow) -> Bool {
        if row.expiresAt.map({ $0 <= now }) ?? false { return true }
        return !row.wasRequeued && request.oldest.map { row.message.acceptedAt <= $0 } ?? false
    }

    /// Keeps what the queue could lease.
    mutating func keep(_ isLeased: (MessageID) -> Bool) {
        batch.removeAll { !isLeased($0.id) }
        expired.removeAll { !isLeased($0.id) }
    }

    /// What was found, oldest first.
    var claim: Claim {
        Claim(
            messages: batch.sorted { $0.id < $1.id }, expired: expired, isGroup: isGroup, history: history,
            wakes: lane?.wakes ?? 0)
    }
}
