/// What a node sees of the others at one look, in one statement: it is taken many times a second.
struct Glance {
    /// Each live writer of another node with the number of its last transaction. The same as before: nothing was committed.
    let writers: String
    /// Whether other nodes have added messages to queues of this one, or relay requests to it.
    let hasArrivals: Bool
    let hasRequests: Bool
    /// Whether clients listen to events at another node.
    let isListenedTo: Bool

    init?(as node: Int64, isKeeper: Bool, with sql: SQL) throws {
        let found = try sql.first(
            """
            SELECT coalesce((SELECT string_agg(writer || ' ' || last, ' ' ORDER BY writer) FROM (
                SELECT writer, (SELECT max(n) FROM log WHERE log.writer = writers.writer) AS last
                FROM writers WHERE NOT isEnded AND node <> ?1) AS live), ''),
              EXISTS (SELECT 1 FROM arrivals WHERE upstream IN (SELECT number FROM queues WHERE owner = ?1)),
              EXISTS (SELECT 1 FROM requests WHERE owner IS NULL AND
                CASE WHEN queue IN (SELECT number FROM queues WHERE owner IS NOT NULL)
                  THEN queue IN (SELECT number FROM queues WHERE owner = ?1) ELSE ?2 END),
              EXISTS (SELECT 1 FROM nodes WHERE isListening AND state <> ?3 AND node <> ?1)
            """, node, isKeeper, PostgresSchema.dead
        ) { (writers: $0[0] as String, arrivals: $0[1] as Bool, requests: $0[2] as Bool, isListenedTo: $0[3] as Bool) }
        guard let found else { return nil }
        (writers, hasArrivals) = (found.writers, found.arrivals)
        (hasRequests, isListenedTo) = (found.requests, found.isListenedTo)
    }
}
