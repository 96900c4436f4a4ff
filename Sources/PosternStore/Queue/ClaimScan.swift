import PosternCore
import PosternUpstream

/// The parameters of a claim.
struct ClaimRequest {
    var limits: BatchLimits
    var now: Timestamp
    /// Messages that were accepted up to this time have expired; nil if they do not expire by age.
    var oldest: Timestamp?
    var preference = ClaimPreference.inTurn
    /// Whether a batch with this history and number of messages may be sent again now.
    var mayRepeat: (BatchHistory, Int) -> Bool = { _, _ in true }
    /// What one request of a named lane may carry; nil means `limits`.
    var limitsOfLane: ((String) -> BatchLimits)?
    /// When each kind that may not be sent now may be. A mixed queue whose kinds are sent apart leaves these out.
    var waitingKinds: [Kind: Timestamp] = [:]
    /// What one request of a kind may carry, of those that may carry less than the limits say.
    var maxMessagesOfKind: [Kind: Int] = [:]
    /// The maximum number of messages whatever the limits are.
    var maxMessages = Int.max
    /// The exclusion of a lane. Lanes with the same one have one batch in flight at a time.
    var exclusionOfLane: (String) -> String? = { _ in nil }

    /// What one request may carry, of a named lane or of any.
    func limits(of lane: String? = nil) -> BatchLimits {
        var limits = lane.flatMap { limitsOfLane?($0) } ?? limits
        limits.maxMessages = min(limits.maxMessages, maxMessages)
        return limits
    }
}

/// The state of one scan of the queue.
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
    /// When the next scheduled row, or the next lane, is due; nil if the scan did not determine it.
    var nextDue: Timestamp?
    /// The lane that was claimed from a queue with separate lanes, and the lanes that had nothing to send although they
    /// were ready.
    private(set) var lane: ReadyLane?
    var staleLanes: [Int64] = []
    private var room: BatchRoom

    // The number of new rows that were examined, for the count of arrivals.
    private(set) var lookedMessages = 0
    private(set) var lookedBytes = 0

    init(_ request: ClaimRequest, newest: MessageID = MessageID(rawValue: .max), due: Timestamp = .never) {
        self.request = request
        self.newest = newest
        self.due = due
        limits = request.limits()
        room = BatchRoom(limits)
    }

    /// From now on, the batch is one of `lane`.
    mutating func narrow(to lane: ReadyLane) {
        self.lane = lane
        limits = request.limits(of: lane.name)
        room = BatchRoom(limits)
    }

    var now: Timestamp { request.now }
    /// Of the first message; nil if there is none.
    var kind: Kind? { batch.first?.kind }
    var messages: [Message] { expired.isEmpty ? batch : batch + expired }
    var count: Int { batch.count + expired.count }
    var isEmpty: Bool { count == 0 }

    /// Expired messages are bounded as well: after a long outage, there may be any number of them, and one transaction
    /// settles them.
    @inline(__always) var isFull: Bool { room.isFull || expired.count >= min(limits.maxMessages, Self.maxExpired) }
    private static let maxExpired = 200

    @inline(__always) func fits(_ count: Int) -> Bool { room.fits(count) }

    /// Whether to go on with a block of so many messages and bytes: one that would fit into a batch of its own is left whole
    /// for the next one, because a block of which a part is sent is taken apart.
    func mayBegin(_ count: Int, of bytes: Int) -> Bool {
        batch.isEmpty || room.fits(count, of: bytes) || !BatchRoom(limits).fits(count, of: bytes)
    }

    mutating func countExamined(bytes count: Int) {
        lookedMessages += 1
        lookedBytes += count
    }

    /// Returns false if there is no room for it.
    @discardableResult mutating func take(_ row: __owned QueueRow) -> Bool {
        // A damaged message is not sent either; the transaction that ends it distinguishes the two.
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

    /// Keeps the messages of the first one's kind, except those behind another one of their lane, as many as a request
    /// may carry. Returns the others.
    mutating func keepOneKind() -> [Message] {
        var (kept, others) = batch.sorted { $0.id < $1.id }.dividedByKind()
        if !request.maxMessagesOfKind.isEmpty, let kind = kept.first?.kind,
            let most = request.maxMessagesOfKind[kind], kept.count > most
        {
            others += kept.dropFirst(most)
            kept.removeLast(kept.count - most)
        }
        if !others.isEmpty { batch = kept }
        return others
    }

    /// Keeps only the messages that the queue could lease.
    mutating func keep(_ isLeased: (MessageID) -> Bool) {
        batch.removeAll { !isLeased($0.id) }
        expired.removeAll { !isLeased($0.id) }
    }

    /// The messages that were found, oldest first.
    var claim: Claim {
        // By index, and only if it is necessary, because messages are large.
        let isSorted = batch.indices.dropFirst().allSatisfy { batch[$0 - 1].id < batch[$0].id }
        return Claim(
            messages: isSorted ? batch : batch.sorted { $0.id < $1.id }, expired: expired, isGroup: isGroup,
            history: history,
            wakes: lane?.wakes ?? 0)
    }
}
