import PosternCore

/// The rows of a file that go to one table when the store is moved to PostgreSQL (`StoreMove`).
struct MovedRows {
    let table: String
    /// Its columns have the names of those in the table.
    let query: String
    /// A column with numbers of named lanes, the one with their names, and their upstream.
    var lanes: (column: String, names: String, upstream: UpstreamNumber)?

    /// Of the file alone: its format, its numbers (`AssignedNumbers`), and its reserve.
    private static let own = ["grdb_migrations", "store", "reserve"]

    /// What is copied. A table that is not mentioned here is the same in both.
    static func all(of upstreams: [UpstreamNumber], with sql: SQL) throws -> [MovedRows] {
        var special = ["lanes": upstreams.map(lanes)]
        for number in upstreams {
            special["queue_\(number.rawValue)"] = [queue(number)]
            special["blocks_\(number.rawValue)"] = [blocks(number)]
            special["receipts_\(number.rawValue)"] = [receipts(number)]
        }
        let names = try sql.all(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name"
        ) { $0[0] as String }
        return names.filter { !own.contains($0) }.flatMap { name in
            special[name] ?? [MovedRows(table: name, query: "SELECT * FROM \(name)")]
        }
    }

    private static func lanes(of number: UpstreamNumber) -> MovedRows {
        MovedRows(
            table: "lanes", query: "SELECT * FROM lanes WHERE upstream = \(number.rawValue)",
            lanes: ("number", "name", number))
    }

    private static func queue(_ number: UpstreamNumber) -> MovedRows {
        MovedRows(
            table: "queue_\(number.rawValue)",
            query: """
                SELECT queue.*, lanes.name AS laneName, lanes.laneGroup AS laneGroup FROM queue_\(number.rawValue) AS queue
                LEFT JOIN lanes ON lanes.number = queue.lane AND lanes.upstream = \(number.rawValue) ORDER BY id
                """, lanes: ("lane", "laneName", number))
    }

    /// PostgreSQL keeps a row for each message. Those of a block have lanes without names.
    private static func blocks(_ number: UpstreamNumber) -> MovedRows {
        MovedRows(
            table: "queue_\(number.rawValue)",
            query: """
                SELECT message.rowid AS id, kind, lane, acceptedAtMs, key, tried,
                  (SELECT turn FROM blocks_\(number.rawValue) WHERE first <= message.rowid ORDER BY first DESC LIMIT 1) AS turn,
                  checksum, payload FROM postern_queued(\(number.rawValue)) AS message
                """)
    }

    private static func receipts(_ number: UpstreamNumber) -> MovedRows {
        MovedRows(
            table: "delivered_\(number.rawValue)",
            query: """
                SELECT rowid AS id, kind, acceptedAtMs, settledAtMs, 1 AS attempts, key, result, tried
                FROM postern_received(\(number.rawValue))
                """)
    }
}
