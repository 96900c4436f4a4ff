import PosternCore

/// What is recorded of a request in the transaction that stores its messages, so that a repeat of it is recognized.
public enum RequestRecord: Sendable {
    /// Its response.
    case response(ResponseRecord)
    /// Each message by itself: an identity for each, in their order; nil for a message that has none.
    case events([EventIdentity?])
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

    func row(for receipt: AppendReceipt) -> RecordRow {
        RecordRow(key: key, fingerprint: fingerprint, response: response(receipt))
    }
}

/// A row of `responses`: a response, or the id of an event's message.
struct RecordRow {
    let key: [UInt8]
    let fingerprint: [UInt8]
    let response: [UInt8]
}

extension Transaction {
    /// Stores a record, in place of one whose retention has passed. Returns false if another node has stored one with the key
    /// that is still kept. Waits for the end of a transaction that has stored one and is not committed. A single writer has
    /// looked before.
    func store(_ record: RecordRow) throws -> Bool {
        let now = outbox.time.now
        if writer.expectsNewRecords {
            try sql.send(
                "INSERT INTO responses (key, fingerprint, createdAtMs, response) VALUES (?, ?, ?, ?)", record.key,
                record.fingerprint, now, record.response)
            return true
        }
        let count = try sql.run(
            """
            INSERT INTO responses (key, fingerprint, createdAtMs, response) VALUES (?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, createdAtMs = excluded.createdAtMs,
              response = excluded.response WHERE responses.createdAtMs <= ?
            """, record.key, record.fingerprint, now, record.response,
            sql.admitsLate ? now - outbox.options.idempotencyRetention : .never)
        return count > 0
    }

    /// Those that are stored, by their keys.
    func stored(_ keys: [[UInt8]]) throws -> [[UInt8]: StoredResponse] {
        var found: [[UInt8]: StoredResponse] = [:]
        guard let postgres = sql.postgres else {
            for key in keys { found[key] = try stored(key) }
            return found
        }
        var array = PostgresArray.bytea
        var values = PostgresValues()
        for key in keys { key.withUnsafeBytes { array.append(bytes: $0) } }
        values.add(array)
        (outbox.time.now - outbox.options.idempotencyRetention).add(to: &values)
        try postgres.each(
            "SELECT key, fingerprint, response FROM responses WHERE key = ANY (?) AND createdAtMs > ?", of: nil, values
        ) { found[$0[0]] = StoredResponse(fingerprint: $0[1], bytes: $0[2]) }
        return found
    }

    func stored(_ key: [UInt8]) throws -> StoredResponse? {
        try sql.storedResponse(key, since: outbox.time.now - outbox.options.idempotencyRetention)
    }
}

extension SQL {
    fileprivate func storedResponse(_ key: [UInt8], since: Timestamp) throws -> StoredResponse? {
        try first(
            "SELECT fingerprint, response FROM responses WHERE key = ? AND createdAtMs > ?", key, since
        ) { StoredResponse(fingerprint: $0[0], bytes: $0[1]) }
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
        try read { try $0.storedResponse(key, since: time.now - options.idempotencyRetention) }
    }

    /// Stores another response under `key`, or removes it if `bytes` is nil. `completion` is called on the writer's thread
    /// once that is on disk, or has failed. Any node may do that.
    public func replaceResponse(
        _ key: [UInt8], with bytes: [UInt8]?, completion: @escaping @Sendable (Result<Void, StoreError>) -> Void
    ) {
        writer.change(inTime: true) { transaction in
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
