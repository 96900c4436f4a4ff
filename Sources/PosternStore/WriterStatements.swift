import GRDB
import PosternCore

/// Values of the `waiting` column of a queue.
enum QueueColumn {
    static let ready: Int64 = 0
    /// Sent before, due again at `nextAttemptAtMs`; holds up later messages of its lane.
    static let retrying: Int64 = 1
    /// Not to be sent before `nextAttemptAtMs`; holds up nothing.
    static let scheduled: Int64 = 2
}

/// The statements of the hot paths, prepared once on the writing connection and used on it alone.
final class WriterStatements {
    private var prepared: [String: Statement] = [:]
    private var perUpstream: [UpstreamNumber: Queue] = [:]

    private struct Queue {
        var insert: Statement?
        var remove: Statement?
        var deliver: Statement?
        var wait: Statement?
    }

    private func statement(_ sql: String, in db: Database) throws -> Statement {
        if let known = prepared[sql] { return known }
        let statement = try db.makeStatement(sql: sql)
        prepared[sql] = statement
        return statement
    }

    private func statement(
        _ path: WritableKeyPath<Queue, Statement?>, of number: UpstreamNumber, in db: Database,
        _ sql: (UInt8) -> String
    ) throws -> Statement {
        if let known = perUpstream[number]?[keyPath: path] { return known }
        let statement = try db.makeStatement(sql: sql(number.rawValue))
        perUpstream[number, default: Queue()][keyPath: path] = statement
        return statement
    }

    func insert(into number: UpstreamNumber, in db: Database) throws -> Statement {
        try statement(\.insert, of: number, in: db) { number in
            """
            INSERT INTO queue_\(number)
              (id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, key, payload)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """
        }
    }

    func remove(from number: UpstreamNumber, in db: Database) throws -> Statement {
        try statement(\.remove, of: number, in: db) { "DELETE FROM queue_\($0) WHERE id = ?" }
    }

    func deliver(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(\.deliver, of: number, in: db) { number in
            """
            INSERT INTO delivered_\(number) (id, kind, acceptedAtMs, settledAtMs, attempts, key, result)
            VALUES (?, ?, ?, ?, ?, ?, ?)
            """
        }
    }

    func wait(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(\.wait, of: number, in: db) { number in
            """
            UPDATE queue_\(number) SET waiting = ?, nextAttemptAtMs = ?, attempts = attempts + ?,
              lastError = coalesce(?, lastError) WHERE id = ?
            """
        }
    }

    func ledger(in db: Database) throws -> Statement {
        let columns = Ledger.columns.map { "\($0.name) = ?" }.joined(separator: ", ")
        return try statement("UPDATE upstreams SET \(columns) WHERE number = ?", in: db)
    }

    func circuit(in db: Database) throws -> Statement {
        try statement("UPDATE upstreams SET circuit = ? WHERE number = ?", in: db)
    }

    func counters(in db: Database) throws -> Statement {
        try statement("UPDATE store SET sequence = ?, batch = ?", in: db)
    }

    func depart(in db: Database) throws -> Statement {
        try statement(
            "INSERT INTO attempts (batch, upstream, startedAtMs, firstId, lastId, ids) VALUES (?, ?, ?, ?, ?, ?)",
            in: db)
    }

    func arrive(in db: Database) throws -> Statement {
        try statement(
            "UPDATE attempts SET endedAtMs = ?, outcome = ?, status = ?, detail = ? WHERE batch = ?", in: db)
    }

    func lane(in db: Database) throws -> Statement {
        // A lane that is ready, waits or is parked stays as it is.
        try statement(
            """
            INSERT INTO lanes (upstream, name, laneGroup, readyAtMs) VALUES (?, ?, ?, ?)
            ON CONFLICT (upstream, name) DO UPDATE SET
              readyAtMs = CASE WHEN isParked THEN NULL ELSE coalesce(readyAtMs, excluded.readyAtMs) END
            RETURNING number
            """, in: db)
    }
}
