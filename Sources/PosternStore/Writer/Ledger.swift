public import PosternCore

/// The books of one upstream: what came in and what became of it. Changed in the same transaction as the messages.
///
/// `accepted == queued + delivered + failed + cancelled + dropped + expired` holds after every transaction; the audit
/// counts the rows anew and compares.
public struct Ledger: Sendable, Equatable {
    /// The id given out last, 0 before the first.
    public var lastID = 0
    public var accepted = 0
    public var queued = 0
    /// Payload bytes of what is queued.
    public var queuedBytes = 0
    public var delivered = 0
    public var failed = 0
    public var cancelled = 0
    public var dropped = 0
    public var expired = 0
    /// Of those above, how many rows retention has removed since.
    public var purgedDelivered = 0
    public var purgedFailed = 0
    public var purgedCancelled = 0
    public var purgedDropped = 0
    public var purgedExpired = 0
    /// Requests whose outcome is unknown, so that their messages were sent again.
    public var ambiguousSends = 0

    public var balance: Int { accepted - queued - delivered - failed - cancelled - dropped - expired }

    public func count(_ state: MessageState) -> Int {
        switch state {
        case .queued: queued
        case .delivered: delivered
        case .failed: failed
        case .cancelled: cancelled
        case .dropped: dropped
        case .expired: expired
        }
    }

    mutating func add(_ amount: Int, to state: MessageState) {
        switch state {
        case .queued: queued += amount
        case .delivered: delivered += amount
        case .failed: failed += amount
        case .cancelled: cancelled += amount
        case .dropped: dropped += amount
        case .expired: expired += amount
        }
    }

    public func purged(_ state: MessageState) -> Int {
        switch state {
        case .queued: 0
        case .delivered: purgedDelivered
        case .failed: purgedFailed
        case .cancelled: purgedCancelled
        case .dropped: purgedDropped
        case .expired: purgedExpired
        }
    }

    mutating func purge(_ amount: Int, of state: MessageState) {
        switch state {
        case .queued: preconditionFailure("retention leaves queued messages alone")
        case .delivered: purgedDelivered += amount
        case .failed: purgedFailed += amount
        case .cancelled: purgedCancelled += amount
        case .dropped: purgedDropped += amount
        case .expired: purgedExpired += amount
        }
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
            lastID, accepted, queued, queuedBytes, delivered, failed, cancelled, dropped, expired, purgedDelivered,
            purgedFailed, purgedCancelled, purgedDropped, purgedExpired, ambiguousSends, number)
    }

    /// The ledgers of all upstreams that the store knows.
    static func all(with sql: SQL) throws -> [UpstreamNumber: Ledger] {
        let ledgers = try sql.all(
            """
            SELECT number, lastId, accepted, queued, queuedBytes, delivered, failed, cancelled, dropped, expired,
              purgedDelivered, purgedFailed, purgedCancelled, purgedDropped, purgedExpired, ambiguousSends
            FROM upstreams
            """
        ) { row in
            let ledger = Ledger(
                lastID: row[1], accepted: row[2], queued: row[3], queuedBytes: row[4], delivered: row[5],
                failed: row[6], cancelled: row[7], dropped: row[8], expired: row[9], purgedDelivered: row[10],
                purgedFailed: row[11], purgedCancelled: row[12], purgedDropped: row[13], purgedExpired: row[14],
                ambiguousSends: row[15])
            return (row[0] as UpstreamNumber, ledger)
        }
        return Dictionary(uniqueKeysWithValues: ledgers)
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
    public var lastError: ErrorRecord?
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

/// An `AttemptError` as it is stored.
public struct ErrorRecord: Sendable, Equatable, Codable {
    public var errorClass: String
    public var status: Int?
    public var detail: String
    public var atMs: Int64

    public init(_ error: AttemptError) {
        errorClass = error.errorClass.rawValue
        status = error.status
        detail = error.detail
        atMs = error.at.milliseconds
    }

    private enum CodingKeys: String, CodingKey {
        case errorClass = "class"
        case status, detail
        case atMs = "at"
    }
}
