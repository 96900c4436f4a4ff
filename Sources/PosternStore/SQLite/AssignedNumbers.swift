import PosternCore

/// The numbers that a store has assigned last.
///
/// Most rows show their numbers themselves, so that a commit of messages does not have to write a page only for them. The
/// table `store` holds at least the numbers that no row shows: those of a store that this one has replaced, of batches
/// without an attempt, and of batches whose attempts have been deleted.
struct AssignedNumbers {
    /// Of the latest message, see `MessageID.sequence`.
    let sequence: Int64
    let batch: Int64

    init(_ sql: SQL) throws {
        let uncounted = try Ledger.tails(with: sql).map { MessageID(rawValue: Int64($0.ledger.lastID)).sequence }
        (sequence, batch) =
            try sql.first(
                """
                SELECT (SELECT max(sequence) FROM store), (SELECT max(lastId) >> 8 FROM upstreams),
                  (SELECT max(batch) FROM store), (SELECT max(batch) FROM attempts)
                """
            ) { (max($0[0], $0[1], uncounted.max() ?? 0), max($0[2], $0[3])) } ?? (0, 0)
    }

    /// Keeps the number of a batch that no attempt shows.
    static func keep(_ batch: BatchID, with sql: SQL) throws {
        try sql.run("UPDATE store SET batch = ?1 WHERE batch < ?1", batch)
    }

    /// The highest version of a credential.
    static func version(_ sql: SQL) throws -> Int64 {
        try sql.value(
            """
            SELECT ifnull(max(version), 0)
            FROM (SELECT version FROM credentials UNION SELECT version FROM formerCredentials)
            """, as: Int64.self) ?? 0
    }
}
