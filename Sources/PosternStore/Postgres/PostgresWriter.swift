import Glibc
import Logging
import PosternCore
import PosternMetrics

/// Commits to PostgreSQL. Each connection is a writer of its own, with a row of `log` for each transaction: so a transaction is
/// refused once the writer was ended, and if it is not known whether one was committed, ending the writer tells (`Fence`).
final class PostgresWriter: StoreWriter {
    private let engine: PostgresEngine
    /// Nil while there is no connection.
    private var session: Session?
    /// The former one, until it is ended.
    private var former: Session?
    /// How often the same jobs were run again after a conflict with another transaction.
    private var conflicts = 0
    private var isMaintenance = false
    /// False while a transaction is run again in which a record was not new.
    private(set) var expectsNewRecords = true
    /// Numbers that the transaction has drawn and not returned, from the last ones to the first.
    private var drawn: [ClosedRange<Int64>] = []
    /// Until then, locks are waited for only briefly.
    private var hurriesUntil = MonotonicInstant.distantPast

    private struct Session {
        let sql: SQL
        let connection: PostgresConnection
        let writer: Int64
        /// The life that it belongs to.
        let node: Int64
        /// The number of its last transaction that was committed.
        var last: Int64 = 0
    }

    /// Nothing was stored: the same may be done again.
    private struct Again: Error {}

    /// The same, and the writer was ended. A node that has had nothing goes on with another one.
    private struct Ended: Error {}

    private static let mostConflicts = 3
    /// How long locks are waited for only briefly, after one that was not released in time: its holder may be frozen, and all
    /// jobs of a transaction wait with it.
    private static let hurry = Duration.seconds(5)
    private static let pause = useconds_t(100_000)
    /// What `writers.kind` says of a writer for everything.
    private static let everything = 3

    private var metrics: DatabaseMetrics { engine.metrics.database }

    init(of engine: PostgresEngine) { self.engine = engine }

    func begin() {}

    func end() {
        session?.connection.close()
        session = nil
    }

    // MARK: Commits

    func commit(_ body: (SQL) throws -> Growth?) throws {
        if session == nil { _ = try replaceSession() }
        guard let current = session else { throw StoreError.closed }
        let (sql, number) = (current.sql, current.last + 1)
        drawn = []
        try sql.send("BEGIN")
        do {
            if SystemTime().instant < hurriesUntil {
                try current.connection.sendQuery("SET LOCAL lock_timeout = \(lockTimeout / 20)", PostgresValues())
            }
            _ = try body(sql)
            try engine.reserveBatches(with: sql)
            // Maintenance that has found nothing to do leaves nothing behind.
            guard try !isMaintenance || hasWritten(sql) else { return sql.rollBack() }
            try sql.send(Self.log, current.writer, number - 1)
        } catch {
            sql.rollBack()
            throw meaning(of: error, in: current)
        }
        do {
            // Sent with what was not waited for: if any of it fails, the server skips the rest, and nothing is committed.
            try sql.run("COMMIT")
        } catch let error as PostgresError {
            guard !error.isConnectionLost else { return try resolve(error) }
            sql.rollBack()
            throw meaning(of: error, in: current)
        }
        // The server did not wait for the standby as it should.
        guard !current.connection.warnedOfReplication else {
            return try resolve(PostgresError(message: "the wait for a standby was cancelled", isConnectionLost: true))
        }
        session?.last = number
        (conflicts, expectsNewRecords) = (0, true)
    }

    /// How long a transaction waits for a lock, in milliseconds: less than half of the time in which its jobs are answered.
    private var lockTimeout: Int { Int(engine.options.commitTimeoutSeconds * 400) }

    private func hasWritten(_ sql: SQL) throws -> Bool {
        try sql.exists("SELECT 1 WHERE txid_current_if_assigned() IS NOT NULL")
    }

    /// The row of a transaction requires that of the one before: if a failover has lost that, nothing may follow. Then the
    /// number is NULL, which fails.
    private static let log: Statement =
        "INSERT INTO log (writer, n, kind) VALUES (?1, (SELECT n + 1 FROM log WHERE writer = ?1 AND n = ?2), 0)"

    /// What it means that a transaction has failed, if that was at its row of `log`. It was rolled back.
    private func meaning(of error: any Error, in session: Session) -> any Error {
        guard let error = error as? PostgresError, error.table == "log" else { return error }
        if error.state == PostgresError.notNull { return lostCommits(session.sql) }
        guard error.constraint == "log_pkey" else { return error }
        engine.logger.error(
            "another node has ended this writer", metadata: ["writer": .stringConvertible(session.writer)])
        guard engine.lease.isFinal else { return Ended() }
        engine.loseOwnership()
        return StoreError.ownershipLost
    }

    /// The process ends soon: the next keeper reports the count.
    private func lostCommits(_ sql: SQL) -> any Error {
        let counter = metrics.lostCommits()
        counter.add()
        do {
            let stored = try sql.value(
                "UPDATE store SET lostCommits = lostCommits + 1 RETURNING lostCommits", as: Int.self)
            // Others may have counted since this gateway opened the store.
            counter.add(max(0, (stored ?? 0) - counter.value))
        } catch {
            engine.logger.error("the loss is not counted", metadata: ["error": "\(StoreError(postgres: error))"])
        }
        engine.logger.critical(
            "the database has lost commits that it had confirmed; it was restored, or a standby without them took over")
        guard engine.lease.isFinal else { return Ended() }
        engine.loseOwnership()
        return StoreError.ownershipLost
    }

    /// Finds out whether the transaction was stored whose `COMMIT` got no answer. Returns if it was.
    private func resolve(_ error: PostgresError) throws {
        let isStored: Bool
        do {
            isStored = try replaceSession(because: error)
        } catch {
            throw StoreError.unresolved(detail: "\(StoreError(postgres: error))")
        }
        metrics.unknownCommits(isStored ? "stored" : "notStored").add()
        guard isStored else { throw Again() }
    }

    // MARK: Connections

    /// Connects, and ends the former writer, for as long as that takes. Returns whether the last transaction of that one was
    /// stored.
    private func replaceSession(because cause: PostgresError? = nil) throws -> Bool {
        former = former ?? session
        former?.connection.close()
        session = nil
        if let cause { engine.writerHas(StoreError(postgres: cause)) }
        while true {
            do {
                let (new, isStored) = try connect()
                if former != nil { metrics.reconnects.add() }
                (session, former) = (new, nil)
                engine.writerHas(nil)
                return isStored
            } catch let error as PostgresError where error.isOfConnection || error.isConflict {
                engine.writerHas(.unavailable(detail: error.message))
                guard !engine.waitsNoLonger else { throw error }
                usleep(Self.pause)
            }
        }
    }

    private func connect() throws -> (Session, isStored: Bool) {
        guard let node = try engine.lease.liveNode() else {
            throw PostgresError(message: "the node has not joined the others yet", isConnectionLost: true)
        }
        let connection = try PostgresConnection(engine.options)
        let patience = Duration.seconds(engine.options.commitTimeoutSeconds)
        connection.patience = max(patience, Fence.lockPatience)
        let sql = SQL(postgres: connection)
        let writer = try sql.transaction(.write) {
            // If a failover loses the writer, its first transaction finds no predecessor.
            try sql.run("SET LOCAL synchronous_commit = off")
            return try makeWriter(for: node, with: sql)
        }
        var isStored = false
        if let former {
            guard try sql.exists("SELECT 1 FROM log WHERE writer = ? AND n = ?", former.writer, former.last) else {
                self.former = nil
                throw lostCommits(sql)
            }
            isStored = try Fence(sql: sql, options: engine.options).end(former.writer) > former.last
        }
        try connection.execute("SET lock_timeout = \(lockTimeout)")
        connection.patience = patience
        return (Session(sql: sql, connection: connection, writer: writer, node: node), isStored)
    }

    /// Adds a writer under the lock of its node, so that all of its writers are ended with the node.
    private func makeWriter(for node: Int64, with sql: SQL) throws -> Int64 {
        let isUp = try sql.exists(
            "SELECT 1 FROM nodes WHERE node = ? AND state <> ? FOR UPDATE", node, PostgresSchema.dead)
        guard isUp else {
            guard !engine.lease.isFinal else {
                engine.loseOwnership()
                throw StoreError.ownershipLost
            }
            engine.lease.check()
            throw PostgresError(message: "another node has ended this one", isConnectionLost: true)
        }
        let writer = try sql.value(
            """
            INSERT INTO writers (writer, node, kind, session) VALUES (nextval('writerNumbers'), ?, ?,
              (SELECT pid || ' ' || backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())) RETURNING writer
            """, node, Self.everything, as: Int64.self)
        guard let writer else { throw StoreError.failed(detail: "the writer has no number") }
        try sql.run("INSERT INTO log (writer, n, kind) VALUES (?, 0, 0)", writer)
        return writer
    }

    // MARK: Failures

    func recover(from cause: any Error) -> CommitFailure {
        switch cause {
        case is Again: return .again
        case is Ended:
            // Its outcome is known.
            session?.connection.close()
            session = nil
            return replace(nil)
        case StoreError.unresolved: return .broken(isUndone: false)
        case StoreError.ownershipLost: return .broken(isUndone: true)
        case let error as PostgresError where error.isOfConnection:
            // `COMMIT` was not sent.
            return replace(error)
        case let error as PostgresError where error.state == PostgresError.lockTimeout:
            // All together would wait for the same lock again.
            conflicts = 0
            hurriesUntil = SystemTime().instant + Self.hurry
            metrics.retries(error.state).add()
            return .other
        case let error as PostgresError
        where error.state == PostgresError.uniqueViolation && error.table == "responses":
            expectsNewRecords = false
            return .again
        case let error as PostgresError where error.isConflict && conflicts < Self.mostConflicts:
            conflicts += 1
            metrics.retries(error.state).add()
            return .again
        default:
            conflicts = 0
            return .other
        }
    }

    /// Nothing was stored.
    private func replace(_ cause: PostgresError?) -> CommitFailure {
        guard !engine.waitsNoLonger else { return .broken(isUndone: true) }
        do {
            _ = try replaceSession(because: cause)
            return .again
        } catch {
            return .broken(isUndone: true)
        }
    }

    func undoFailedCommit() -> Bool { true }
    func didReply(isQuiet: Bool) {}

    func maintain(_ work: () -> Void) {
        isMaintenance = true
        defer { isMaintenance = false }
        work()
    }

    /// There is nothing that could be overwritten from here: `PostgresEngine.keepsDeleted`.
    func overwriteUnused(from position: Int?) -> OverwriteProgress { .done }

    // MARK: Numbers

    func nextSequences(_ count: Int, in sql: SQL) throws -> ClosedRange<Int64> {
        if drawn.isEmpty {
            // In the transaction that stores the messages: the order of ids is that of commits.
            let size = Int64(PostgresSchema.idsPerBlock)
            let start = SystemTime().instant
            drawn = try sql.all(
                "SELECT nextval('ids') FROM generate_series(1, ?)", max(1, (Int64(count) + size - 1) / size)
            ) { $0[0]...$0[0] + size - 1 }.reversed()
            metrics.roundTrip.observe((SystemTime().instant - start).inSeconds)
        }
        guard let next = drawn.popLast() else { throw StoreError.closed }
        return next
    }

    func didAssign(through sequence: Int64) {}

    func nextVersion(in sql: SQL) throws -> Int64 { try sql.value("SELECT nextval('versions')", as: Int64.self) ?? 0 }

    func tell(of arrival: Arrival, in sql: SQL) throws {
        guard let session else { return }
        try sql.send(
            """
            INSERT INTO arrivals
              (writer, n, upstream, firstId, lastId, accepted, acceptedBytes, ready, readyBytes, dueAtMs)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """, session.writer, session.last + 1, arrival.upstream, arrival.first, arrival.last, arrival.accepted,
            arrival.acceptedBytes, arrival.ready, arrival.readyBytes, arrival.dueAt)
    }

    func keepBatch(in sql: SQL) {}

    // MARK: Queues

    /// The queue belongs to the life of this session. If another node ends that, the transaction fails with it.
    func own(_ number: UpstreamNumber, in sql: SQL) throws {
        guard let session else { return }
        engine.lease.takes()
        let isMine =
            try sql.run(
                "UPDATE queues SET owner = ?1 WHERE number = ?2 AND coalesce(owner, ?1) = ?1", session.node, number)
            == 1
        guard isMine else { throw StoreError.notOwner }
    }

    func disown(_ number: UpstreamNumber, in sql: SQL) throws {
        guard let session else { return }
        try sql.send("UPDATE queues SET owner = NULL WHERE number = ? AND owner = ?", number, session.node)
    }

    func borrow(_ number: UpstreamNumber, in sql: SQL) throws {
        guard let session else { return }
        let isOthers = try sql.exists(
            "SELECT 1 FROM (SELECT owner FROM queues WHERE number = ? FOR UPDATE) AS queue WHERE owner <> ?", number,
            session.node)
        guard !isOthers else { throw StoreError.notOwner }
    }

    func lock(_ number: UpstreamNumber, in sql: SQL) throws {
        try sql.send("SELECT 1 FROM queues WHERE number = ? FOR UPDATE", number)
    }

    func beginKeeping(in sql: SQL) throws { try engine.beginKeeping(at: engine.time.now, in: sql) }

    // MARK: Space

    func spareBytes(in sql: SQL) -> Int { 0 }
    func shrink(_ sql: SQL) -> Bool { false }
}
