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

        public subscript(state: MessageState) -> Int {
            get { self[keyPath: Self.path(to: state)] }
            set { self[keyPath: Self.path(to: state)] = newValue }
        }

        private static func path(to state: MessageState) -> WritableKeyPath<Self, Int> {
            switch state {
            case .queued: \.queued
            case .delivered: \.delivered
            case .failed: \.failed
            case .cancelled: \.cancelled
            case .dropped: \.dropped
            case .expired: \.expired
            }
        }
    }

    /// The id given out last, 0 before the first.
    public var lastID = 0
    public var accepted = 0
    /// Payload bytes of what is queued.
    public var queuedBytes = 0
    public var counts = Counts()
    /// Of those, how many rows retention has removed since; never of what is queued.
    public var purged = Counts()
    /// Requests whose outcome is unknown, so that their messages were sent again.
    public var ambiguousSends = 0

    /// The counts by their names.
    public subscript(dynamicMember path: WritableKeyPath<Counts, Int>) -> Int {
        get { counts[keyPath: path] }
        set { counts[keyPath: path] = newValue }
    }

    public var balance: Int { accepted - MessageState.allCases.reduce(0) { $0 + counts[$1] } }

    mutating func purge(_ amount: Int, of state: MessageState) {
        precondition(state != .queued, "retention leaves queued messages alone")
        purged[state] += amount
    }
}

extension Ledger {
    func write(of number: UpstreamNumber, with sql: SQL) throws {
        try sql.run(
            """
            UPDATE upstreams SET lastId = ?, accepted = ?, queued = ?, queuedBytes = ?, delivered = ?, failed = ?,
              cancelled = ?, dropped = ?, expired = ?, purgedDelivered = ?, purgedFailed = ?, purgedCancelled = ?,
              purgedDropped = ?, purgedExpired = ?, ambiguousSends = ? WHERE number = ?
            """,
            lastID, accepted, counts.queued, queuedBytes, counts.delivered, counts.failed, counts.cancelled,
            counts.dropped, counts.expired, purged.delivered, purged.failed, purged.cancelled, purged.dropped,
            purged.expired, ambiguousSends, number)
    }
}

/// What is remembered of an upstream's health, so that a restart does not begin by hammering it.
public struct CircuitRecord: Sendable, Equatable, Codable {
    /// Upstream failures in a row.
    public var failures = 0
    /// When a request may be tried again; nil while nothing is wrong.
    public var reopensAtMs: Int64?
    /// `credentials` or `configuration` while held for that.
    public var hold: String?
    public var lastError: AttemptError?
    public var lastSuccessAtMs: Int64?
    /// Names of endpoints that wait although the upstream does not; nil if there are none.
    public var waitingEndpoints: [String]?
    /// Nil if the upstream requires none.
    public var token: TokenRecord?
    /// Nil if the gateway would send.
    public var obstacle: Obstacle?

    /// Why the gateway does not even try.
    public enum Obstacle: String, Sendable, Codable {
        /// It is disabled, or no longer configured.
        case disabled
        case missingSettings
    }

    public init() {}
}

/// What is remembered of an upstream's token, which itself is only in memory.
public struct TokenRecord: Sendable, Equatable, Codable {
    /// Fetches in a row that brought none.
    public var failures: Int
    public var credentialsRefused: Bool
    public var retryAtMs: Int64?
    /// Until when the token can be used; nil if there is none.
    public var validUntilMs: Int64?

    public init(failures: Int, credentialsRefused: Bool, retryAtMs: Int64? = nil, validUntilMs: Int64? = nil) {
        self.failures = failures
        self.credentialsRefused = credentialsRefused
        self.retryAtMs = retryAtMs
        self.validUntilMs = validUntilMs
    }
}
