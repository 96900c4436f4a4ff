import PosternCore

/// What one look at the queue brings together.
struct ClaimScan {
    private(set) var limits: BatchLimits
    /// What one request of a named lane may carry.
    private let limitsOfLane: (String) -> BatchLimits
    let now: Timestamp
    /// Messages accepted before have expired.
    let oldest: Timestamp?
    /// The newest id that was there when the look began.
    let newest: Int64
    /// When the first scheduled row is due that was not found yet; nil when there is none.
    let scheduledSince: Timestamp?
    var batch: [Message] = []
    var expired: [Message] = []
    var isGroup = false
    var history = BatchHistory()
    /// When the next scheduled row, or the next lane, is due; nil when the look did not ask.
    var nextDue: Timestamp?
    /// The lane claimed from a queue with separate ones, and lanes that had nothing to give although they were ready.
    var lane: Int64?
    /// How often that lane had been woken then.
    private(set) var wakes = 0
    var staleLanes: [Int64] = []
    private var bytes: Int

    // How far the look went, for whoever counts arrivals.
    private(set) var lookedMessages = 0
    private(set) var lookedBytes = 0
    private(set) var lastLookedAt: Timestamp?
    var reachedEnd = false

    init(
        limits: BatchLimits, now: Timestamp, oldest: Timestamp? = nil, newest: Int64 = .max,
        scheduledSince: Timestamp? = nil, limitsOfLane: ((String) -> BatchLimits)? = nil
    ) {
        self.limits = limits
        self.limitsOfLane = limitsOfLane ?? { _ in limits }
        self.now = now
        self.oldest = oldest
        self.newest = newest
        self.scheduledSince = scheduledSince
        bytes = limits.overhead
    }

    /// From here on the batch is one of `lane`.
    mutating func narrow(toLane lane: ReadyLane) {
        limits = limitsOfLane(lane.name)
        bytes = limits.overhead
        wakes = lane.wakes
    }

    var count: Int { batch.count + expired.count }
    var isEmpty: Bool { count == 0 }
    var firstID: MessageID? { [batch.first?.id, expired.first?.id].compactMap(\.self).min() }

    /// Expired ones are bounded too: a long outage leaves any number of them.
    var isFull: Bool {
        batch.count >= limits.maxMessages || expired.count >= limits.maxMessages
            || (!batch.isEmpty && bytes >= limits.maxBytes)
    }

    /// A message too large for any batch goes alone.
    func fits(_ count: Int) -> Bool {
        batch.isEmpty || (batch.count < limits.maxMessages && bytes + 1 + count <= limits.maxBytes)
    }

    mutating func looked(at acceptedAt: Timestamp, bytes: Int) {
        lookedMessages += 1
        lookedBytes += bytes
        lastLookedAt = acceptedAt
    }

    /// False when there is no room for it.
    @discardableResult mutating func take(_ row: QueueRow) -> Bool {
        if hasExpired(row) {
            expired.append(row.message)
            return true
        }
        guard fits(row.message.payload.count) else { return false }
        bytes += row.message.payload.count + (batch.isEmpty ? 0 : 1)
        batch.append(row.message)
        return true
    }

    private func hasExpired(_ row: QueueRow) -> Bool {
        row.expiresAt.map { $0 <= now } ?? false || oldest.map { row.message.acceptedAt <= $0 } ?? false
    }
}
