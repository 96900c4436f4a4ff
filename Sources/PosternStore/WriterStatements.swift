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

/// The statements of the writer, prepared once on its connection and used on it alone.
final class WriterStatements {
    private enum Name: Int, CaseIterable {
        case ledger, circuit, counters, openAttempt, closeAttempt, setState, removeState
        case findLane, openLane, advanceLane, updateLane, closeLane, parkedOfGroup
    }
    private enum QueueName: Int, CaseIterable {
        case insert, remove, deliver, deliverRun, removeRun, countRun, wait, markTried, progress, laneOf
        case ending, end, ended, requeue, removeEnded, oldest, lane, nthOfLane
    }

    private var prepared = [Statement?](repeating: nil, count: Name.allCases.count)
    private var ofQueues = [[Statement?]](
        repeating: [Statement?](repeating: nil, count: QueueName.allCases.count), count: 256)

    private func statement(_ name: Name, in db: Database, _ sql: @autoclosure () -> String) throws -> Statement {
        if let known = prepared[name.rawValue] { return known }
        let statement = try db.makeStatement(sql: sql())
        prepared[name.rawValue] = statement
        return statement
    }

    private func statement(
        _ name: QueueName, of number: UpstreamNumber, in db: Database, _ sql: (UInt8) -> String
    ) throws -> Statement {
        let place = Int(number.rawValue)
        if let known = ofQueues[place][name.rawValue] { return known }
        let statement = try db.makeStatement(sql: sql(number.rawValue))
        ofQueues[place][name.rawValue] = statement
        return statement
    }

    // MARK: Queues

    func insert(into number: UpstreamNumber, in db: Database) throws -> Statement {
        try statement(.insert, of: number, in: db) { number in
            """
            INSERT INTO queue_\(number)
              (id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, key, payload)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """
        }
    }

    func remove(from number: UpstreamNumber, in db: Database) throws -> Statement {
        try statement(.remove, of: number, in: db) { "DELETE FROM queue_\($0) WHERE id = ?" }
    }

    func deliver(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.deliver, of: number, in: db) { number in
            """
            INSERT INTO delivered_\(number) (id, kind, acceptedAtMs, settledAtMs, attempts, key, result)
            VALUES (?, ?, ?, ?, ?, ?, ?)
            """
        }
    }

    func countRun(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.countRun, of: number, in: db) { "SELECT count(*) FROM queue_\($0) WHERE id BETWEEN ? AND ?" }
    }

    func deliverRun(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.deliverRun, of: number, in: db) { number in
            """
            INSERT INTO delivered_\(number) (id, kind, acceptedAtMs, settledAtMs, attempts, key, result)
            SELECT id, kind, acceptedAtMs, ?, attempts + 1, key, ? FROM queue_\(number) WHERE id BETWEEN ? AND ?
            """
        }
    }

    func removeRun(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.removeRun, of: number, in: db) { "DELETE FROM queue_\($0) WHERE id BETWEEN ? AND ?" }
    }

    func wait(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.wait, of: number, in: db) { number in
            """
            UPDATE queue_\(number) SET waiting = ?, nextAttemptAtMs = ?, attempts = attempts + ?,
              lastError = coalesce(?, lastError), tried = tried OR ? WHERE id = ?
            """
        }
    }

    func markTried(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.markTried, of: number, in: db) { "UPDATE queue_\($0) SET tried = 1 WHERE id = ?" }
    }

    func progress(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.progress, of: number, in: db) { "UPDATE queue_\($0) SET progress = ? WHERE id = ?" }
    }

    func laneOf(_ number: UpstreamNumber, in db: Database) throws -> Statement {
        try statement(.laneOf, of: number, in: db) { "SELECT lane FROM queue_\($0) WHERE id = ?" }
    }

    func ending(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.ending, of: number, in: db) { "SELECT lane, length(payload) FROM queue_\($0) WHERE id = ?" }
    }

    func end(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.end, of: number, in: db) { number in
            """
            INSERT INTO ended_\(number) (id, state, kind, lane, laneGroup, acceptedAtMs, settledAtMs, expiresAtMs,
              attempts, key, lastError, progress, payload, tried, result)
            SELECT id, ?, kind, ?, ?, acceptedAtMs, ?, expiresAtMs, attempts + ?, key, coalesce(?, lastError),
              progress, payload, tried OR ?, ? FROM queue_\(number) WHERE id = ?
            """
        }
    }

    func ended(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.ended, of: number, in: db) { number in
            """
            SELECT state, lane, laneGroup, length(payload) FROM ended_\(number)
            WHERE id = ? AND payload IS NOT NULL AND state IN (2, 4)
            """
        }
    }

    func requeue(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.requeue, of: number, in: db) { number in
            """
            INSERT INTO queue_\(number) (id, kind, lane, acceptedAtMs, expiresAtMs, attempts, key, lastError,
              progress, payload, tried)
            SELECT id, kind, ?, acceptedAtMs, NULL, 0, key, lastError, progress, payload, tried
            FROM ended_\(number) WHERE id = ?
            """
        }
    }

    func removeEnded(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.removeEnded, of: number, in: db) { "DELETE FROM ended_\($0) WHERE id = ?" }
    }

    func oldest(in number: UpstreamNumber, db: Database) throws -> Statement {
        try statement(.oldest, of: number, in: db) { "SELECT id, length(payload) FROM queue_\($0) ORDER BY id" }
    }

    // MARK: Lanes

    /// The rows of a lane, oldest first, as far as they say when it is its turn.
    func lane(of number: UpstreamNumber, in db: Database) throws -> Statement {
        try statement(.lane, of: number, in: db) { number in
            """
            SELECT waiting, nextAttemptAtMs, acceptedAtMs, progress IS NOT NULL FROM queue_\(number)
            WHERE lane = ? ORDER BY id
            """
        }
    }

    func nthOfLane(of number: UpstreamNumber, in db: Database) throws -> Statement {
        try statement(.nthOfLane, of: number, in: db) { number in
            "SELECT id FROM queue_\(number) WHERE lane = ? ORDER BY id LIMIT 1 OFFSET ?"
        }
    }

    func findLane(in db: Database) throws -> Statement {
        try statement(
            .findLane, in: db,
            "SELECT number, readyAtMs, isHeld OR isParked FROM lanes WHERE upstream = ? AND name = ?")
    }

    func openLane(in db: Database) throws -> Statement {
        try statement(
            .openLane, in: db,
            """
            INSERT INTO lanes (upstream, name, laneGroup, readyAtMs, isParked, isHeld, waitingFor)
            VALUES (?, ?, ?, ?, ?, ?6 IS NOT NULL, ?6)
            """)
    }

    func advanceLane(in db: Database) throws -> Statement {
        try statement(.advanceLane, in: db, "UPDATE lanes SET readyAtMs = ? WHERE number = ?")
    }

    /// Of a lane that was not served, only what is sooner counts: it keeps its place.
    func updateLane(in db: Database) throws -> Statement {
        try statement(
            .updateLane, in: db,
            """
            UPDATE lanes SET
              readyAtMs = CASE WHEN isParked THEN NULL
                WHEN ?2 OR ?3 OR isHeld OR readyAtMs IS NULL THEN ?1 ELSE min(readyAtMs, ?1) END,
              isHeld = ?2, waitingFor = NULL, failures = CASE WHEN ?2 THEN failures ELSE 0 END
            WHERE number = ?4
            """)
    }

    func closeLane(in db: Database) throws -> Statement {
        try statement(.closeLane, in: db, "DELETE FROM lanes WHERE number = ? RETURNING laneGroup")
    }

    func parkedOfGroup(in db: Database) throws -> Statement {
        try statement(
            .parkedOfGroup, in: db,
            "SELECT 1 FROM lanes WHERE upstream = ? AND laneGroup = ? AND isParked LIMIT 1")
    }

    // MARK: The rest

    func ledger(in db: Database) throws -> Statement {
        try statement(
            .ledger, in: db,
            "UPDATE upstreams SET \(Ledger.columns.map { "\($0.name) = ?" }.joined(separator: ", ")) WHERE number = ?")
    }

    func circuit(in db: Database) throws -> Statement {
        try statement(.circuit, in: db, "UPDATE upstreams SET circuit = ? WHERE number = ?")
    }

    func counters(in db: Database) throws -> Statement {
        try statement(.counters, in: db, "UPDATE store SET sequence = ?, batch = ?")
    }

    func openAttempt(in db: Database) throws -> Statement {
        try statement(
            .openAttempt, in: db,
            "INSERT INTO attempts (batch, upstream, startedAtMs, firstId, lastId, ids) VALUES (?, ?, ?, ?, ?, ?)")
    }

    func closeAttempt(in db: Database) throws -> Statement {
        try statement(
            .closeAttempt, in: db,
            "UPDATE attempts SET endedAtMs = ?, outcome = ?, status = ?, detail = ? WHERE batch = ?")
    }

    func setState(in db: Database) throws -> Statement {
        try statement(
            .setState, in: db,
            "INSERT OR REPLACE INTO state (upstream, key, value, expiresAtMs, lane) VALUES (?, ?, ?, ?, ?)")
    }

    func removeState(in db: Database) throws -> Statement {
        try statement(.removeState, in: db, "DELETE FROM state WHERE upstream = ? AND key = ?")
    }
}
