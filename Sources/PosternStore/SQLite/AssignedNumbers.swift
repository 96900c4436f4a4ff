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
        (sequence, batch) =
            try sql.first(
                """
                SELECT max(ifnull((SELECT max(sequence) FROM store), 0), ifnull((SELECT max(lastId) >> 8 FROM upstreams), 0)),
                  max(ifnull((SELECT max(batch) FROM store), 0), ifnull((SELECT max(batch) FROM attempts), 0))
                """
            ) { ($0[0], $0[1]) } ?? (0, 0)
    }

    /// Keeps the number of a batch that no attempt shows.
    static func keep(_ batch: BatchID, with sql: SQL) throws {
        try sql.run("UPDATE store SET batch = max(batch, ?)", batch)
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
