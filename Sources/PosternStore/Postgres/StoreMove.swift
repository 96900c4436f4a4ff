import CSQLite
public import Logging
import PosternCore
public import PosternThreads

/// Moves a store from an SQLite file to an empty schema of a PostgreSQL database. At any time, a gateway accepts at most one of
/// the two.
///
/// The steps, each durable before the next: the new store is marked as incomplete (`store.movingFrom`), so that no gateway uses
/// it; one transaction copies everything, and compares it; the file is marked as moved, so that no gateway uses that any more;
/// and the mark of the new store is removed. An interrupted move begins again, because a gateway may have used the file since.
/// Only if the file is marked already is nothing left but the last step.
public struct StoreMove: Sendable, Equatable {
    public let file: String
    public let place: String
    /// Of the new store.
    public let audit: Audit
    /// The rows that were copied, by tables of the new store. Empty if an earlier run has copied them.
    public internal(set) var rows: [String: Int] = [:]

    /// Throws `StoreError.alreadyRunning` or `.inUse` if either store is in use, `.occupied`, `.sealed`, `.moved`, or `.corrupt`
    /// if the file is not sound. Blocks.
    ///
    /// - Parameters:
    ///   - options: The engine is SQLite. The file exists.
    ///   - target: The engine is PostgreSQL.
    ///   - progress: Receives how many messages are copied, and of how many. Must be quick.
    public static func run(
        _ options: OutboxOptions, to target: OutboxOptions, threads: any Threads, logger: Logger,
        progress: @escaping (Int, Int) -> Void = { _, _ in }
    ) throws(StoreError) -> StoreMove {
        guard case .postgres(let database) = target.engine else { preconditionFailure("the engine is another one") }
        var (file, movedTo) = (nil as SQLiteEngine?, "")
        do throws(StoreError) {
            file = try SQLiteEngine(
                options, startFresh: false, recover: false, health: StoreHealth(), time: SystemTime(),
                threads: threads, logger: logger, prepare: { try Ledger.addTails(with: $0) }, read: { _ in })
        } catch .moved(_, let place) {
            movedTo = place
        }
        defer { file?.close() }
        do {
            let sql = SQL(postgres: try PostgresConnection(database))
            defer { try? sql.close() }
            guard let file else { return try complete(options.path, movedTo, with: sql, database) }
            let audit = try check(file, options, target)
            try PostgresSchema.prepare(sql, database)
            try mark(sql, from: options.path, database)
            let copy = StoreCopy(from: file.sql, to: sql, progress)
            let rows = try sql.transaction(.write) { try copy.run(audit) }
            guard sql.postgres?.connection.warnedOfReplication == false else {
                throw StoreError.failed(detail: "the database did not wait for its standby")
            }
            let place = "\(database.place) \(try identity(of: sql))"
            try file.sql.transaction(.write) { try Migrations.markAsMoved(to: place, with: file.sql) }
            try sql.run("UPDATE store SET movingFrom = NULL")
            return StoreMove(file: options.path, place: database.place, audit: audit, rows: rows)
        } catch let error as SQLiteError {
            throw StoreError(error, path: options.path)
        } catch {
            throw StoreError(postgres: error)
        }
    }

    /// Throws unless the file is sound, and both configurations open the credentials.
    private static func check(
        _ file: SQLiteEngine, _ options: OutboxOptions, _ target: OutboxOptions
    ) throws -> Audit {
        guard try IntegrityCheck.isSound(file.path) else {
            throw StoreError.corrupt(path: file.path, detail: "SQLite's integrity check fails")
        }
        let audit = try Audit.run(with: file.sql)
        guard audit.isBalanced else {
            let findings = audit.accounts.flatMap { account in account.findings.map { "\(account.upstream): \($0)" } }
            throw StoreError.corrupt(path: file.path, detail: findings.joined(separator: "; "))
        }
        for (keys, name) in [(options.encryptionKeys, "old"), (target.encryptionKeys, "new")] {
            let count = try KeyRotationReport.unreadable(with: file.sql, vault: Vault(keys))
            guard count == 0 else { throw StoreError.sealed(credentials: count, configuration: name) }
        }
        return audit
    }

    /// Marks the new store as incomplete. Throws unless it is empty, or what an interrupted move from this file has left.
    private static func mark(_ sql: SQL, from path: String, _ options: PostgresOptions) throws {
        try sql.transaction(.write) {
            // No node joins between the looks and the mark.
            try sql.run("LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE")
            let user = try sql.value("SELECT name FROM nodes WHERE state = ?", PostgresSchema.up, as: String.self)
            if let user { throw StoreError.inUse(place: options.place, by: "node \(user)") }
            if let former = try sql.value("SELECT movingFrom FROM store", as: String?.self) ?? nil {
                guard former == path else { throw StoreError.moving(place: options.place, from: former) }
            } else if try sql.exists("SELECT 1 FROM upstreams") {
                throw StoreError.occupied(place: options.place)
            }
            try sql.run("UPDATE store SET movingFrom = ?", path)
        }
    }

    /// Which store it is: what the mark of a file ends with that was moved there.
    private static func identity(of sql: SQL) throws -> String {
        "(store \(try sql.value("SELECT id::text FROM store", as: String.self) ?? ""))"
    }

    /// The last step of a move whose file is marked. Throws `.moved` if nothing is left to be done, or if it is another store.
    private static func complete(
        _ path: String, _ movedTo: String, with sql: SQL, _ options: PostgresOptions
    ) throws -> StoreMove {
        guard try sql.exists("SELECT 1 WHERE to_regclass('store') IS NOT NULL"),
            movedTo.hasSuffix(try identity(of: sql)),
            try sql.run("UPDATE store SET movingFrom = NULL WHERE movingFrom = ?", path) == 1
        else { throw StoreError.moved(path: path, to: movedTo) }
        return StoreMove(file: path, place: options.place, audit: try Audit.run(with: sql))
    }
}

/// The copy of all tables, inside a transaction of the database. Nothing changes the file meanwhile.
private struct StoreCopy {
    private let file: SQL
    private let target: SQL
    private let progress: (Int, Int) -> Void

    /// Bytes that are sent at once.
    private static let partSize = 1 << 18

    init(from file: SQL, to target: SQL, _ progress: @escaping (Int, Int) -> Void) {
        (self.file, self.target, self.progress) = (file, target, progress)
    }

    /// - Parameter audit: Of the file.
    /// - Returns: The number of rows of each table.
    func run(_ audit: Audit) throws -> [String: Int] {
        // What is read from the file meanwhile may take minutes.
        try target.run("SET LOCAL idle_in_transaction_session_timeout = 0")
        // The session of a process that was killed may still commit.
        _ = try target.exists("SELECT 1 FROM store FOR UPDATE")
        let upstreams = try file.all("SELECT number FROM upstreams") { $0[0] as UpstreamNumber }
        for number in upstreams {
            try createTables(of: number)
            try target.run("INSERT INTO queues (number) VALUES (?) ON CONFLICT (number) DO NOTHING", number)
        }
        let sources = try MovedRows.all(of: upstreams, with: file)
        let tables = Set(sources.map(\.table)).sorted()
        // An earlier move may have filled them.
        try target.execute("TRUNCATE \(tables.joined(separator: ", "))")
        let all = audit.accounts.reduce(0) { $1.rows.values.reduce($0, +) }
        var (rows, done) = ([String: Int](), 0)
        for source in sources {
            let isOfMessages = ["queue_", "delivered_", "ended_"].contains { source.table.hasPrefix($0) }
            rows[source.table, default: 0] += try copy(source) {
                guard isOfMessages else { return }
                done += 1
                if done & 0xFFF == 0 { progress(done, all) }
            }
        }
        for number in upstreams { try createIndexes(of: number) }
        try moveNumbers(tables)
        try compare(audit, rows)
        return rows
    }

    // MARK: Tables

    private func createTables(of number: UpstreamNumber) throws {
        try Migrations.createTables(of: number, with: target)
        try Migrations.createBlocks(of: number, with: target)
        try Migrations.createPayloads(of: number, with: target)
        try Migrations.createLaneNames(of: number, with: target)
    }

    /// Those that an upstream has only for a type or a setting.
    private func createIndexes(of number: UpstreamNumber) throws {
        let rule = try LaneRule(stored: number, with: file)
        if rule == .perLane { try Migrations.createLaneIndex(of: number, with: target) }
        try Migrations.dropTurns(of: number, with: target)
        if try Migrations.hasTurns(of: number, with: file) {
            try Migrations.createTurns(of: number, rule, with: target)
        }
    }

    // MARK: Rows

    /// Returns how many rows were copied. Calls `each` for each of them.
    private func copy(_ source: MovedRows, each: () -> Void) throws -> Int {
        let types = try columns(of: source.table)
        let statement = try file.connection.prepare(source.query)
        defer { sqlite3_finalize(statement) }
        let names = (0..<sqlite3_column_count(statement)).map { String(cString: sqlite3_column_name(statement, $0)) }
        let columns = try names.map { name in
            guard let type = types[name.lowercased()] else {
                throw StoreError.failed(detail: "the database has no column \(name) in \(source.table)")
            }
            return type
        }
        func position(_ name: String?) -> Int32 { name.flatMap(names.firstIndex).map(Int32.init) ?? -1 }
        let (lane, laneName) = (position(source.lanes?.column), position(source.lanes?.names))
        var (rows, count) = (CopiedRows(), 0)
        let text = "COPY \(source.table) (\(names.joined(separator: ", "))) FROM STDIN (FORMAT binary)"
        let stored = try target.postgres?.connection.copy(text) { send in
            while true {
                let code = sqlite3_step(statement)
                guard code == SQLITE_ROW else {
                    guard code == SQLITE_DONE else { throw file.connection.error(code) }
                    break
                }
                let row = SQLRow(statement)
                rows.beginRow(of: columns.count)
                for (column, type) in zip(Int32(0)..., columns) {
                    if column == lane, let upstream = source.lanes?.upstream, let name = row[laneName] as String? {
                        rows.add(Lane.number(of: name, in: upstream))
                    } else {
                        rows.add(row, column, as: type)
                    }
                }
                count += 1
                each()
                guard rows.bytes.count >= Self.partSize else { continue }
                try send(rows.bytes)
                rows.removeAll()
            }
            rows.end()
            try send(rows.bytes)
        }
        guard stored == count else {
            throw StoreError.failed(detail: "of \(count) rows of \(source.table), \(stored ?? 0) were stored")
        }
        return count
    }

    /// The types of the columns of a table in PostgreSQL. Empty if there is none.
    private func columns(of table: String) throws -> [String: UInt32] {
        let columns = try target.all(
            """
            SELECT attname::text, atttypid::bigint FROM pg_attribute
            WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped
            """, table
        ) { ($0[0] as String, UInt32(truncatingIfNeeded: $0[1] as Int64)) }
        return Dictionary(uniqueKeysWithValues: columns)
    }

    // MARK: The end

    /// Moves the sequences behind all numbers that were assigned.
    private func moveNumbers(_ tables: [String]) throws {
        let latest = try AssignedNumbers(file)
        let version = try AssignedNumbers.version(file)
        for (sequence, number) in [("ids", latest.sequence), ("batches", latest.batch), ("versions", version)] {
            try target.execute(
                """
                SELECT setval('\(sequence)', CASE WHEN last_value < \(number) THEN \(number) ELSE last_value END)
                FROM \(sequence)
                """)
        }
        // Numbers of lanes follow from their names.
        for table in tables where try table != "lanes" && assignsNumbers(table) {
            try target.execute(
                """
                SELECT setval(pg_get_serial_sequence('\(table)', 'number'), coalesce(max(number), 0) + 1, FALSE) FROM \(table)
                """)
        }
        for table in tables { try target.execute("ANALYZE \(table)") }
    }

    private func assignsNumbers(_ table: String) throws -> Bool {
        try target.exists(
            "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(?) AND attname = 'number' AND attidentity <> ''",
            table)
    }

    /// Throws unless the database has all rows, and the same books.
    private func compare(_ audit: Audit, _ rows: [String: Int]) throws {
        for (table, count) in rows {
            let result = try target.postgres?.connection.query("SELECT count(*) FROM \(table)", PostgresValues())
            let found = result?.integer(0, 0) ?? 0
            guard found == count else {
                throw StoreError.failed(detail: "\(count) rows were copied to \(table), and it has \(found)")
            }
        }
        guard try Audit.run(with: target) == audit else {
            throw StoreError.failed(detail: "the audits of the two stores differ")
        }
    }
}
