public import PosternCore

/// The message counts of one upstream: accepted, and how each one ended. Changed in the same transaction as the
/// messages.
///
/// `accepted == queued + delivered + failed + cancelled + dropped + expired` holds after every transaction; the audit
/// counts the rows and compares.
@dynamicMemberLookup
public struct Ledger: Sendable, Equatable {
    /// A number of messages for each state.
    public struct Counts: Sendable, Equatable {
        public var queued = 0
        public var delivered = 0
        public var failed = 0
        public var cancelled = 0
        public var dropped = 0
        public var expired = 0

        /// The count of one state.
        public subscript(state: MessageState) -> Int {
            get {
                switch state {
                case .queued: queued
                case .delivered: delivered
                case .failed: failed
                case .cancelled: cancelled
                case .dropped: dropped
                case .expired: expired
                }
            }
            set {
                switch state {
                case .queued: queued = newValue
                case .delivered: delivered = newValue
                case .failed: failed = newValue
                case .cancelled: cancelled = newValue
                case .dropped: dropped = newValue
                case .expired: expired = newValue
                }
            }
        }

        /// The sum over all states.
        var total: Int { queued + delivered + failed + cancelled + dropped + expired }
    }

    /// The id that was assigned last; 0 before the first.
    public var lastID = 0
    /// Messages that were ever accepted; never decreases.
    public var accepted = 0
    /// The payload bytes of the queued messages.
    public var queuedBytes = 0
    public var counts = Counts()
    /// How many of those rows retention has removed since; always 0 for queued messages.
    public var purged = Counts()
    /// The number of requests whose outcome is unknown, so that their messages were sent again.
    public var ambiguousSends = 0

    /// The counts by their names.
    public subscript(dynamicMember path: WritableKeyPath<Counts, Int>) -> Int {
        get { counts[keyPath: path] }
        set { counts[keyPath: path] = newValue }
    }

    /// The messages that are stored.
    public var kept: Counts {
        var kept = counts
        for state in MessageState.allCases { kept[state] -= purged[state] }
        return kept
    }

    /// 0 unless the ledger itself is wrong.
    public var balance: Int { accepted - counts.total }

    mutating func purge(_ amount: Int, of state: MessageState) {
        precondition(state != .queued, "retention leaves queued messages alone")
        purged[state] += amount
    }
}

extension Ledger {
    /// That of an upstream without messages.
    public static let empty = Ledger()

    /// Adds what a transaction has changed.
    static func + (former: Ledger, change: Ledger) -> Ledger {
        Ledger(
            lastID: max(former.lastID, change.lastID), accepted: former.accepted + change.accepted,
            queuedBytes: former.queuedBytes + change.queuedBytes, counts: former.counts + change.counts,
            purged: former.purged + change.purged, ambiguousSends: former.ambiguousSends + change.ambiguousSends)
    }

    /// Adds this change to the figures that an upstream has in the store.
    ///
    /// Most transactions accept and deliver messages and do nothing else. Each column that a statement computes takes time, so
    /// these have a statement of their own.
    func add(to number: UpstreamNumber, with sql: SQL) throws {
        let flow = Ledger(
            lastID: lastID, accepted: accepted, queuedBytes: queuedBytes,
            counts: Counts(queued: counts.queued, delivered: counts.delivered))
        if self == flow {
            try sql.send(
                """
                UPDATE upstreams SET lastId = CASE WHEN lastId < ?1 THEN ?1 ELSE lastId END, accepted = accepted + ?2,
                  queued = queued + ?3, queuedBytes = queuedBytes + ?4, delivered = delivered + ?5 WHERE number = ?6
                """, lastID, accepted, counts.queued, queuedBytes, counts.delivered, number)
        } else {
            try sql.send(
                """
                UPDATE upstreams SET lastId = CASE WHEN lastId < ?1 THEN ?1 ELSE lastId END, accepted = accepted + ?2,
                  queued = queued + ?3, queuedBytes = queuedBytes + ?4, delivered = delivered + ?5, failed = failed + ?6,
                  cancelled = cancelled + ?7, dropped = dropped + ?8, expired = expired + ?9,
                  purgedDelivered = purgedDelivered + ?10, purgedFailed = purgedFailed + ?11,
                  purgedCancelled = purgedCancelled + ?12, purgedDropped = purgedDropped + ?13,
                  purgedExpired = purgedExpired + ?14, ambiguousSends = ambiguousSends + ?15
                WHERE number = ?16
                """,
                lastID, accepted, counts.queued, queuedBytes, counts.delivered, counts.failed, counts.cancelled,
                counts.dropped, counts.expired, purged.delivered, purged.failed, purged.cancelled, purged.dropped,
                purged.expired, ambiguousSends, number)
        }
    }
}

/// The messages that the row of an upstream does not count yet: those of its queue with ids above `lastId`.
///
/// A transaction that only accepts messages leaves that row alone: its page would be written to the log again with each
/// commit. One that does anything else to messages of the upstream adds the tail first, so that no message leaves the queue
/// uncounted.
extension Ledger {
    /// A tail is at most this long, so that it is counted quickly.
    static let longestTail = 1000

    /// The tail of an upstream whose row has this `lastId`.
    static func tail(of number: UpstreamNumber, after lastID: Int, with sql: SQL) throws -> Ledger {
        if sql.isPostgres { return try unheard(of: number, with: sql) }
        func read(_ row: borrowing SQLRow) -> Ledger {
            Ledger(lastID: row[0], accepted: row[1], queuedBytes: row[2], counts: Counts(queued: row[1]))
        }
        let rows = try sql.first(
            "SELECT max(id), count(*), sum(length(payload)) FROM queue_# WHERE id > ?", of: number, lastID, read: read)
        let blocks = try sql.first(
            "SELECT max(last), sum(count), sum(bytes) FROM blocks_# WHERE first > ?", of: number, lastID, read: read)
        return (rows ?? .empty) + (blocks ?? .empty)
    }

    /// The tails of all upstreams.
    static func tails(with sql: SQL) throws -> [(number: UpstreamNumber, ledger: Ledger)] {
        try sql.all("SELECT number, lastId FROM upstreams") { ($0[0] as UpstreamNumber, $0[1] as Int) }
            .map { number, lastID in (number, try tail(of: number, after: lastID, with: sql)) }
    }

    /// Adds the tails that the last run has left.
    static func addTails(with sql: SQL) throws {
        for (number, tail) in try tails(with: sql) where tail != .empty { try tail.add(to: number, with: sql) }
    }
}

extension Ledger.Counts {
    static func + (former: Self, change: Self) -> Self {
        Self(
            queued: former.queued + change.queued, delivered: former.delivered + change.delivered,
            failed: former.failed + change.failed, cancelled: former.cancelled + change.cancelled,
            dropped: former.dropped + change.dropped, expired: former.expired + change.expired)
    }
}

/// The stored health of an upstream, so that a restart does not begin by overloading it.
public struct CircuitRecord: Sendable, Equatable, Codable {
    /// The number of upstream failures in a row.
    public var failures = 0
    /// When a request may be sent again; nil if nothing is wrong.
    public var reopensAtMs: Int64?
    /// `credentials` or `configuration` while held for that.
    public var hold: String?
    public var lastError: AttemptError?
    /// Wall-clock time in milliseconds since 1970; nil if there was none.
    public var lastSuccessAtMs: Int64?
    /// The names of endpoints that wait although the upstream does not; nil if there are none.
    public var waitingEndpoints: [String]?
    /// `credentials`, `configuration` or `guard` for those of them that are held for that; nil if there are none.
    public var endpointHolds: [String: String]?
    /// An operator has said that rejections of messages up to this one are right; nil if none has.
    public var rejectionsAllowedThrough: Int64?
    /// Nil if the upstream requires none.
    public var token: TokenRecord?
    /// Nil if the gateway sends.
    public var obstacle: DeliveryBlock?

    /// Why the gateway does not send.
    public enum DeliveryBlock: String, Sendable, Codable {
        /// The upstream is disabled, or no longer configured.
        case disabled
        case missingSettings
    }

    public init() {}
}

/// The stored status of an upstream's token. The token itself is only in memory.
public struct TokenRecord: Sendable, Equatable, Codable {
    /// The number of fetches in a row that returned none.
    public var failures: Int
    /// Whether the last fetch failed because of the credentials.
    public var credentialsRefused: Bool
    /// When the next fetch is made; nil if the last one succeeded.
    public var retryAtMs: Int64?
    /// The time until which the token can be used; nil if there is none.
    public var validUntilMs: Int64?

    public init(failures: Int, credentialsRefused: Bool, retryAtMs: Int64? = nil, validUntilMs: Int64? = nil) {
        self.failures = failures
        self.credentialsRefused = credentialsRefused
        self.retryAtMs = retryAtMs
        self.validUntilMs = validUntilMs
    }
}
