import PosternCore

/// What is recorded of a request in the transaction that stores its messages, so that a repeat of it is recognized.
public enum RequestRecord: Sendable {
    /// Its response.
    case response(ResponseRecord)
    /// Each message by itself: an identity for each, in their order.
    case events([EventIdentity])
}

/// The response to a request, to be stored with the request's messages, so that a repeat of the request gets it again.
public final class ResponseRecord: Sendable {
    /// Identifies the request, in 32 bytes.
    let key: [UInt8]
    /// Differs for a different request under the same key.
    let fingerprint: [UInt8]
    private let response: @Sendable (AppendReceipt) -> [UInt8]

    /// - Parameter response: Called in the transaction that stores the messages, on the writer's thread.
    public init(
        key: [UInt8], fingerprint: [UInt8], response: @escaping @Sendable (AppendReceipt) -> [UInt8]
    ) {
        self.key = key
        self.fingerprint = fingerprint
        self.response = response
    }

    /// Replaces a response whose retention has passed.
    func write(_ receipt: AppendReceipt, at now: Timestamp, with sql: SQL) throws {
        try sql.store(response(receipt), under: key, fingerprint, at: now)
    }
}

extension SQL {
    /// Stores a response, or what identifies an event, in place of an older one with the same key.
    func store(_ response: [UInt8], under key: [UInt8], _ fingerprint: [UInt8], at now: Timestamp) throws {
        try run(
            """
            INSERT INTO responses (key, fingerprint, createdAtMs, response) VALUES (?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, createdAtMs = excluded.createdAtMs,
              response = excluded.response
            """, key, fingerprint, now, response)
    }
}

/// The stored response of an earlier request.
public struct StoredResponse: Sendable, Equatable {
    /// Compared with that of a repeat.
    public let fingerprint: [UInt8]
    public let bytes: [UInt8]
}

extension Outbox {
    /// The response under `key`; nil if there is none, or `OutboxOptions.idempotencyRetention` has passed. Blocks.
    public func storedResponse(_ key: [UInt8]) throws(StoreError) -> StoredResponse? {
        try read { sql in
            try sql.first(
                "SELECT fingerprint, response FROM responses WHERE key = ? AND createdAtMs > ?",
                key, time.now - options.idempotencyRetention
            ) { StoredResponse(fingerprint: $0[0], bytes: $0[1]) }
        }
    }

    /// Stores another response under `key`, or removes it if `bytes` is nil. `completion` is called on the writer's thread
    /// once that is on disk, or has failed.
    public func replaceResponse(
        _ key: [UInt8], with bytes: [UInt8]?, completion: @escaping @Sendable (Result<Void, StoreError>) -> Void
    ) {
        writer.change { transaction in
            if let bytes {
                try transaction.sql.run("UPDATE responses SET response = ? WHERE key = ?", bytes, key)
            } else {
                try transaction.sql.run("DELETE FROM responses WHERE key = ?", key)
            }
        } completion: {
            completion($0.map { _ in })
        }
    }
}
