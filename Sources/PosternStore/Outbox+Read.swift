public import PosternCore

/// A message as it is stored.
public struct MessageRecord: Sendable, Equatable {
    public var id: MessageID
    public var upstream: String
    public var kind: Kind
    public var state: MessageState
    public var key: String?
    public var attempts: Int
    public var acceptedAt: Timestamp
    public var settledAt: Timestamp?
    public var lastError: AttemptError?
    /// What the upstream answered to a delivered one, as JSON text, where that is kept.
    public var result: [UInt8]?
    /// Nil if it was not requested, or is no longer kept.
    public var payload: [UInt8]?
    /// The lane as the queue knows it, for the question who is in front.
    public var lane: Int64 = 0
    /// For a queued message: what its wait is derived from. Only `StoreView` reads from the rows whether the message is
    /// in flight, and `isHeldUp`: a gateway knows better from its queues.
    public var facts = QueuedFacts()
    /// Whether an earlier message of its lane keeps it waiting.
    public var isHeldUp = false
}

/// What the store and the queue know of a queued message.
public struct QueuedFacts: Sendable, Equatable {
    public var isInFlight = false
    /// Whether its lane, with its group, waits for a credential that a caller has to hand in.
    public var isParked = false
    /// What a plan, or the endpoint, of its lane waits for, and until when.
    public var laneWaitsFor: WaitingFor?
    public var laneWaitsUntil: Timestamp?
    /// Not before then; nil when it waits for nothing of its own.
    public var nextAttemptAt: Timestamp?
    /// Whether `nextAttemptAt` is that of a retry rather than a schedule.
    public var isRetry = false

    public init() {}
}

extension MessageRecord {
    /// About how many bytes it takes, in memory and as text.
    var size: Int { 400 + (key?.utf8.count ?? 0) + (result?.count ?? 0) + (payload?.count ?? 0) }
}

/// One request that carried a message.
public struct AttemptRow: Sendable, Equatable {
    public var batch: BatchID
    public var startedAt: Timestamp
    /// Nil while it is under way.
    public var endedAt: Timestamp?
    public var outcome: String?
    public var status: Int?
    public var detail: String?
    /// How many messages it carried.
    public var messages: Int
}

/// Which messages to list.
public struct MessageFilter: Sendable, Equatable {
    public var upstream: UpstreamName?
    /// The upstreams whose messages are listed at all; nil: all of them.
    public var visible: Set<UpstreamName>?
    public var kind: Kind?
    public var state: MessageState?
    public var key: String?

    public init(
        upstream: UpstreamName? = nil, kind: Kind? = nil, state: MessageState? = nil, key: String? = nil
    ) {
        self.upstream = upstream
        self.kind = kind
        self.state = state
        self.key = key
    }

    func shows(_ name: UpstreamName) -> Bool {
        (upstream == nil || upstream == name) && visible?.contains(name) != false
    }
}

extension Outbox {
    private func readMessages<T>(_ body: (StoreReader) throws -> T) throws(StoreError) -> T {
        try read { sql in try body(StoreReader(sql: sql, kinds: kinds, names: names)) }
    }

    public func message(_ id: MessageID, payload: Bool = false) throws(StoreError) -> MessageRecord? {
        try readMessages { try $0.message(id, payload: payload) }
    }

    public func attempts(of id: MessageID) throws(StoreError) -> [AttemptRow] {
        try readMessages { try $0.attempts(of: id) }
    }

    /// One request to an upstream, with the messages it carried; nil if it is no longer kept, or belongs to another
    /// upstream.
    public func batch(
        _ id: BatchID, of number: UpstreamNumber
    ) throws(StoreError) -> (attempt: AttemptRow, ids: [MessageID])? {
        try readMessages { try $0.batch(id, of: number) }
    }

    /// Messages after `cursor`, oldest first, and the cursor of the next page if there is one. A page may be short of
    /// `limit` when few of very many match, or when `maxBytes` are used up; the cursor goes on from there. A page that
    /// is not empty has at least one message, however large.
    public func messages(
        _ filter: MessageFilter, after cursor: MessageID?, limit: Int, maxBytes: Int = .max, payload: Bool = false
    ) throws(StoreError) -> (messages: [MessageRecord], next: MessageID?) {
        try readMessages {
            try $0.messages(filter, after: cursor, limit: limit, maxBytes: maxBytes, payload: payload)
        }
    }

    /// When the oldest queued message of an upstream was accepted.
    public func oldestQueued(of number: UpstreamNumber) throws(StoreError) -> Timestamp? {
        try readMessages { try $0.oldestQueued(of: number) }
    }

    /// What `body` makes of the lanes with something queued, after `cursor`; those of which it makes nil are left out.
    /// A page may be short of `limit` when few of very many match; `next` goes on from there.
    public func lanes<T>(
        of number: UpstreamNumber, in state: LaneRecord.State?, after cursor: Int64?, limit: Int,
        _ body: @escaping (LaneRecord) -> T?
    ) throws(StoreError) -> (lanes: [T], next: Int64?) {
        let now = time.now
        return try readMessages {
            try $0.lanes(of: number, in: state, after: cursor, limit: limit, now: now, body)
        }
    }

    /// The state an upstream keeps, on one snapshot.
    public func withState<T>(
        of number: UpstreamNumber, _ body: (any UpstreamState) throws -> T
    ) throws(StoreError) -> T {
        try read { sql in try body(StoredState(upstream: number, sql: sql, vault: vault)) }
    }

    /// Messages of an upstream up to `id` that are still queued.
    public func queued(of number: UpstreamNumber, through id: MessageID) throws(StoreError) -> Int {
        try read { sql in
            try sql.value("SELECT count(*) FROM queue_# WHERE id <= ?", of: number, id, as: Int.self) ?? 0
        }
    }
}
