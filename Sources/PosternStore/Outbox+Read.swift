public import PosternCore
public import PosternUpstream

/// A message as it is stored.
public struct MessageRecord: Sendable, Equatable {
    public var id: MessageID
    public var upstream: String
    public var kind: Kind
    public var state: MessageState
    /// The caller's own key; nil if it gave none.
    public var key: String?
    /// The delivered message of which a replay has made this one; nil if it is no copy.
    public var replayOf: MessageID?
    /// Attempts that count against the message.
    public var attempts: Int
    /// The time that the response to its sender named; retries by an operator do not change it.
    public var acceptedAt: Timestamp
    /// Nil while it is queued.
    public var settledAt: Timestamp?
    /// The last failure; nil if no attempt has failed.
    public var lastError: AttemptError?
    /// The upstream's response to a delivered message, as JSON text, if it is kept.
    public var result: [UInt8]?
    /// Nil if it was not requested, or is no longer kept.
    public var payload: [UInt8]?
    /// Whether an SDK has posted it.
    public var isFromSDK = false
    /// Whether its content was erased (`Outbox.erase`). Not known of a delivered message.
    public var isErased = false
    /// The number of its lane in the queue, to find earlier messages of the lane.
    public var lane: Int64 = 0
    /// The name of its lane. The store knows that of a separate lane; of a mixed one it knows only the digest.
    public var laneName: String?
    /// The digest of the name of its mixed lane, as long as the name is not known.
    public var laneDigest: Int64? { laneName == nil && lane != 0 ? lane : nil }
    /// The lane as it is shown: the name, or the digest. Nil if it has none, or was delivered: receipts do not have it.
    public var laneText: String? { laneName ?? laneDigest.map(Lane.text(ofDigest:)) }
    /// When a queued message expires; nil if it does not.
    public var expiresAt: Timestamp?
    /// The facts from which the wait of a queued message is derived. Only `StoreView` derives from the rows whether the
    /// message is in flight, and `isHeldUp`: a gateway takes both from its queues, which are more accurate.
    public var facts = QueuedFacts()
    /// Whether an earlier message of its lane keeps it waiting.
    public var isHeldUp = false
}

/// The facts about a queued message, from the store and the queue.
public struct QueuedFacts: Sendable, Equatable {
    /// Nil if what is known of single kinds does not matter.
    public var kind: Kind?
    /// Whether a request that carries it has been sent and not been answered.
    public var isInFlight = false
    /// Whether its lane, with its group, waits for a credential that a caller has to hand in.
    public var isParked = false
    /// The reason why its lane waits, because of a plan or of its endpoint.
    public var laneWaitsFor: WaitReason?
    /// The time until which its lane waits; nil if no time ends the wait, for example that for a credential.
    public var laneWaitsUntil: Timestamp?
    /// The time before which it is not sent; nil if it does not wait for a time.
    public var nextAttemptAt: Timestamp?
    /// Whether `nextAttemptAt` is that of a retry rather than a schedule.
    public var isRetry = false

    public init() {}

    /// Adds why messages of its kind wait.
    public mutating func add(_ wait: KindWait) {
        laneWaitsFor = wait.reason
        laneWaitsUntil = wait.until.map { max($0, nextAttemptAt ?? $0) }
    }
}

/// Why all messages of a kind wait in a mixed queue, whose rows do not say so: for what they need, not for a time of
/// their own.
public struct KindWait: Sendable, Equatable {
    let reason: WaitReason
    /// Nil if no time is known.
    let until: Timestamp?

    public init(_ reason: WaitReason, until: Timestamp?) {
        self.reason = reason
        self.until = until
    }
}

extension MessageRecord {
    /// The approximate number of bytes that it takes, in memory and as text.
    var size: Int { 400 + (key?.utf8.count ?? 0) + (result?.count ?? 0) + (payload?.count ?? 0) }
}

/// A request that carried a message.
public struct AttemptRow: Sendable, Equatable {
    public var batch: BatchID
    /// When the attempt was recorded; its request is sent after that is on disk.
    public var startedAt: Timestamp
    /// Nil while it is in flight.
    public var endedAt: Timestamp?
    /// A `Settlement.Outcome`, or that of a later version. Nil while it is in flight.
    public var outcome: String?
    /// The HTTP status; nil if there was no response.
    public var status: Int?
    /// Why it did not deliver; nil if it did.
    public var detail: String?
    /// The number of messages that it carried.
    public var messages: Int
    /// The step of its message's sequence; nil if the type of upstream has no steps.
    public var step: String?
}

/// The receipt of one request.
public struct AttemptReceipt: Sendable {
    public let attempt: AttemptRow
    /// The messages that it carried.
    public let ids: [MessageID]
    /// The kind of the first one; nil if that is no longer kept.
    public let kind: Kind?
}

extension Outbox {
    func readMessages<T>(_ body: (StoreReader) throws -> T) throws(StoreError) -> T {
        try read { sql in try body(StoreReader(sql: sql, kinds: kinds, names: names)) }
    }

    /// Nil if there is no such message, or it is no longer kept. Blocks.
    public func message(_ id: MessageID, payload: Bool = false) throws(StoreError) -> MessageRecord? {
        try readMessages { try $0.message(id, payload: payload) }
    }

    /// A queued message, or one that could be queued again, as a worker would claim it. Nil if there is none, or its
    /// payload is no longer kept. Blocks.
    public func unsent(_ id: MessageID) throws(StoreError) -> Message? { try readMessages { try $0.unsent(id) } }

    /// The requests that carried it, oldest first. The more messages a page has, the fewer requests are examined for
    /// each. Blocks.
    public func attempts(of id: MessageID, onPageOf messages: Int = 1) throws(StoreError) -> [AttemptRow] {
        let most = min(StoreReader.maxAttempts, StoreReader.rowsPerPage / max(1, messages))
        return try readMessages { try $0.attempts(of: id, examining: most) }
    }

    /// A request to an upstream, with the messages that it carried; nil if it is no longer kept, or belongs to another
    /// upstream.
    public func batch(
        _ id: BatchID, of number: UpstreamNumber
    ) throws(StoreError) -> AttemptReceipt? {
        try readMessages { try $0.batch(id, of: number) }
    }

    /// The requests to an upstream before `cursor`, the newest first, and the cursor of the next page if there is one. A
    /// page may have fewer than `limit` if most of the requests went to other upstreams.
    public func batches(
        of number: UpstreamNumber, before cursor: BatchID?, limit: Int
    ) throws(StoreError) -> (batches: [AttemptRow], next: BatchID?) {
        try readMessages { try $0.batches(of: number, before: cursor, limit: limit) }
    }

    /// Messages after `cursor` in that order, and the cursor of the next page if there is one. A page may have fewer
    /// than `limit` if few of very many match, or if `maxBytes` are used up; the cursor continues from there. A page
    /// has at least one message if any matches, however large it is.
    public func messages(
        _ filter: MessageFilter, order: MessageOrder = .oldest, after cursor: MessageID?, limit: Int,
        maxBytes: Int = .max, payload: Bool = false
    ) throws(StoreError) -> (messages: [MessageRecord], next: MessageID?) {
        try readMessages {
            try $0.messages(filter, order: order, after: cursor, limit: limit, maxBytes: maxBytes, payload: payload)
        }
    }

    /// Groups the failed messages of an upstream by their errors, from the newest one before `cursor` on. Of the
    /// filter, `kind`, `key` and the times apply.
    public func failures(
        of number: UpstreamNumber, _ filter: MessageFilter, before cursor: MessageID?
    ) throws(StoreError) -> FailurePage {
        try readMessages { try $0.failures(of: number, filter, before: cursor) }
    }

    /// Since when the oldest queued message of an upstream has been due: since it was accepted, or since its
    /// `notBefore`. Nil if none is due.
    public func oldestQueued(of number: UpstreamNumber) throws(StoreError) -> Timestamp? {
        let now = time.now
        return try readMessages { try $0.oldestQueued(of: number, at: now) }
    }

    /// The results of `body` for the lanes with queued messages, after `cursor`; lanes for which it returns nil are
    /// omitted. A page may have fewer than `limit` if few of very many match; `next` continues from there. `waits`: why
    /// messages of a kind wait, if rows do not say so.
    public func lanes<T>(
        of number: UpstreamNumber, in state: LaneRecord.State?, after cursor: Int64?, limit: Int,
        waits: @escaping (Kind) -> KindWait?, _ body: @escaping (LaneRecord) -> T?
    ) throws(StoreError) -> (lanes: [T], next: Int64?) {
        let now = time.now
        return try readMessages {
            try $0.lanes(of: number, in: state, after: cursor, limit: limit, now: now, waits: waits, body)
        }
    }

    /// The state of an upstream, on one snapshot. Reads nothing, and does not block, unless `body` does.
    public func withState<T>(
        of number: UpstreamNumber, _ body: (any UpstreamState) -> T
    ) throws(StoreError) -> T {
        do {
            return try readers.readLazily { snapshot in
                try StoredState(upstream: number, snapshot: snapshot, vault: vault).decide(body)
            }
        } catch {
            throw engine.error(error)
        }
    }

    /// The number of messages of an upstream up to `id` that are still queued.
    public func queued(of number: UpstreamNumber, through id: MessageID) throws(StoreError) -> Int {
        try read { sql in
            try sql.value("SELECT count(*) FROM queued_# WHERE id <= ?", of: number, id, as: Int.self) ?? 0
        }
    }
}
