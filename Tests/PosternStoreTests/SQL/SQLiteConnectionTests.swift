import CSQLite
import Foundation
import PosternTestKit
import Testing

@testable import PosternStore

/// About SQLite itself: connections, their errors, and what they set.
@Suite struct SQLiteConnectionTests {
    private let folder = ScratchFolder()
    private var path: String { folder.file("test.sqlite") }

    private func open(_ script: String = "") throws -> SQL {
        let sql = SQL(try SQLiteConnection(path))
        try sql.connection.execute(script)
        return sql
    }

    private func kind(_ body: () throws -> Void) -> Int32? { #expect(throws: SQLiteError.self, performing: body)?.kind }

    // MARK: Errors

    @Test func error_hasTheExtendedCode_andTheTextOfSQLite() throws {
        let sql = try open("CREATE TABLE things (id TEXT PRIMARY KEY) STRICT; INSERT INTO things VALUES ('a')")
        let error = #expect(throws: SQLiteError.self) { try sql.run("INSERT INTO things VALUES (?)", "a") }
        #expect(error == SQLiteError(SQLITE_CONSTRAINT | 6 << 8, "UNIQUE constraint failed: things.id"))
        #expect(error?.kind == SQLITE_CONSTRAINT)
        #expect(error.map { "\($0)" } == "SQLite error 19: UNIQUE constraint failed: things.id")
        #expect(
            error.map { StoreError($0, path: path).description }
                == "the store failed: 19 (constraint failed): UNIQUE constraint failed: things.id")
    }

    @Test func fileThatIsNotADatabase_isRefused_andClosed() throws {
        try Data(repeating: 0x5A, count: 4096).write(to: URL(fileURLWithPath: path))
        let error = #expect(throws: SQLiteError.self) { try SQLiteConnection(path, isReadOnly: true) }
        #expect(error == SQLiteError(SQLITE_NOTADB, "file is not a database"))
        let descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
        let files = descriptors.compactMap {
            try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
        }
        #expect(!files.contains(path))
    }

    // MARK: Settings

    @Test func readOnlyConnection_writesNothing_andCreatesNoFile() throws {
        let missing = folder.file("missing.sqlite")
        #expect(kind { _ = try SQLiteConnection(missing, isReadOnly: true) } == SQLITE_CANTOPEN)
        #expect(!FileManager.default.fileExists(atPath: missing))
        try open("CREATE TABLE things (id)").close()
        let reader = SQL(try SQLiteConnection(path, isReadOnly: true))
        #expect(kind { try reader.run("INSERT INTO things VALUES (1)") } == SQLITE_READONLY)
        let store = try TestStore()
        let readers = store.outbox.readers
        #expect(kind { _ = try readers.readSnapshot { try $0.run("DELETE FROM store") } } == SQLITE_READONLY)
    }

    @Test func foreignKeys_areOn_andQuotedTextIsRefused() throws {
        let sql = try open(
            "CREATE TABLE parents (id INTEGER PRIMARY KEY); CREATE TABLE children (id REFERENCES parents)")
        #expect(kind { try sql.run("INSERT INTO children VALUES (7)") } == SQLITE_CONSTRAINT)
        #expect(kind { _ = try sql.exists("SELECT 1 FROM parents WHERE id = \"nothing\"") } == SQLITE_ERROR)
    }

    @Test func lockOfAnotherConnection_isAnError_withoutATimeout() throws {
        let (one, other) = (try open(), try open())
        try one.transaction(.write) {
            #expect(kind { try other.transaction(.write) {} } == SQLITE_BUSY)
        }
        try other.transaction(.write) {}
    }

    // MARK: Transactions

    @Test func commitThatFails_isRolledBack_andItsConnectionWritesAgain() throws {
        let sql = try open(
            "CREATE TABLE parents (id INTEGER PRIMARY KEY); CREATE TABLE children (id REFERENCES parents)")
        func insert(_ id: Int) throws {
            try sql.transaction(.write) {
                try sql.run("PRAGMA defer_foreign_keys = ON")
                try sql.run("INSERT INTO children VALUES (?)", id)
                if id == 2 { try sql.run("INSERT INTO parents VALUES (?)", id) }
            }
        }
        for _ in 0..<2 {
            #expect(kind { try insert(1) } == SQLITE_CONSTRAINT)
            #expect(!sql.connection.isInTransaction)
        }
        try insert(2)
        #expect(try sql.all("SELECT id FROM children") { $0[0] as Int } == [2])
    }

    /// SQLite cannot roll back without memory.
    @Test func transactionThatWasNotRolledBack_isUndone_beforeTheNextOneBegins() throws {
        let sql = try open("CREATE TABLE things (id)")
        try sql.begin(.write)
        try sql.run("INSERT INTO things VALUES (1)")
        #expect(sql.hasLeftTransaction)
        _ = try sql.transaction(.write) { try sql.run("INSERT INTO things VALUES (2)") }
        #expect(!sql.hasLeftTransaction)
        #expect(try sql.all("SELECT id FROM things") { $0[0] as Int } == [2])
    }

    @Test func valueThatCannotBeBound_isAnError_notNull() throws {
        let sql = try open("CREATE TABLE things (text TEXT, bytes BLOB)")
        try sql.run("INSERT INTO things VALUES (?, ?)", "short", [1] as [UInt8])
        sqlite3_limit(sql.connection.handle, SQLITE_LIMIT_LENGTH, 100)
        let long = String(repeating: "x", count: 101)
        #expect(kind { try sql.run("INSERT INTO things VALUES (?, ?)", long, nil as [UInt8]?) } == SQLITE_TOOBIG)
        #expect(
            kind { try sql.run("INSERT INTO things VALUES (?, ?)", nil as String?, Array(long.utf8)) } == SQLITE_TOOBIG)
        #expect(kind { try sql.each("SELECT 1 WHERE ? IS NULL", long) { _ in } } == SQLITE_TOOBIG)
        #expect(try sql.value("SELECT count(*) FROM things", as: Int.self) == 1)
    }

    @Test func savepoint_undoesWhatItsBodyDid_andNothingElse() throws {
        struct Stop: Error {}
        let sql = try open("CREATE TABLE things (id)")
        try sql.transaction(.write) {
            try sql.run("INSERT INTO things VALUES (1)")
            for isKept in [true, false] {
                try sql.savepoint {
                    try sql.run("INSERT INTO things VALUES (?)", isKept ? 2 : 3)
                    return isKept
                }
            }
            #expect(throws: Stop.self) {
                try sql.savepoint {
                    try sql.run("INSERT INTO things VALUES (4)")
                    throw Stop()
                }
            }
            try sql.run("INSERT INTO things VALUES (5)")
        }
        #expect(try sql.all("SELECT id FROM things") { $0[0] as Int } == [1, 2, 5])
    }

    @Test func interruptedStatement_fails_andRunsAgain() throws {
        let sql = try open()
        func count(to end: Int, _ body: () -> Void = {}) throws {
            try sql.each(
                "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n", end
            ) {
                _ in body()
            }
        }
        #expect(kind { try count(to: 1000) { sql.connection.interrupt() } } == SQLITE_INTERRUPT)
        try count(to: 1000)
    }

    // MARK: Closing

    @Test func connection_closesWithItsStatements_andThenRunsNone() throws {
        let sql = try open("CREATE TABLE things (id)")
        try sql.run("INSERT INTO things VALUES (1)")
        try sql.close()
        #expect(kind { try sql.run("INSERT INTO things VALUES (1)") } == SQLITE_MISUSE)
        #expect(try open().value("SELECT count(*) FROM things", as: Int.self) == 1)
        let connection = try SQLiteConnection(path)
        let statement = try connection.prepare("SELECT 1")
        #expect(kind { try connection.close() } == SQLITE_BUSY)
        sqlite3_finalize(statement)
        try connection.close()
    }

    // MARK: Copying

    @Test func copy_isTakenInSteps_untilItIsCompleteOrAnErrorEndsIt() throws {
        struct Stop: Error {}
        let sql = try open(
            "PRAGMA page_size = 512; CREATE TABLE things (id); INSERT INTO things VALUES (zeroblob(10000))")
        let target = try SQLiteConnection(folder.file("copy.sqlite"))
        var steps: [Int] = []
        #expect(throws: Stop.self) {
            try sql.connection.copy(to: target, pagesPerStep: 8) { copied, _ in
                steps.append(copied)
                if copied == 16 { throw Stop() }
            }
        }
        #expect(steps == [8, 16])
        var last = (0, 0)
        try sql.connection.copy(to: target, pagesPerStep: 8) { last = ($0, $1) }
        let pages = try sql.value("PRAGMA page_count", as: Int.self)
        #expect(last.0 == pages && last.1 == pages)
        #expect(try SQL(target).value("SELECT length(id) FROM things", as: Int.self) == 10_000)
        try open().transaction(.write) {
            #expect(kind { try target.copy(to: sql.connection, pagesPerStep: 8) { _, _ in } } == SQLITE_BUSY)
        }
    }
}

/// About SQLite itself: the versions of the schema, as every release has recorded them.
@Suite struct MigrationsTests {
    private let sql: SQL

    init() throws { sql = SQL(try SQLiteConnection(":memory:")) }

    private func identifiers() throws -> [String] {
        try sql.all("SELECT identifier FROM grdb_migrations ORDER BY identifier") { $0[0] as String }
    }

    private func hasTable(_ name: String) throws -> Bool {
        try sql.exists("SELECT 1 FROM sqlite_master WHERE name = ?", name)
    }

    @Test func newStore_isRecorded_asByEarlierReleases() throws {
        #expect(try !Migrations.isNewer(sql))
        try Migrations.apply(with: sql)
        try Migrations.apply(with: sql)
        #expect(
            try identifiers() == [
                "1 outbox", "10 long lanes", "11 move", "12 SDKs", "2 steps", "3 lanes", "4 traces", "5 pauses",
                "6 tails",
                "7 blocks",
                "8 turns", "9 replay",
            ])
        let text = try sql.value("SELECT sql FROM sqlite_master WHERE name = 'grdb_migrations'", as: String.self)
        #expect(text == "CREATE TABLE grdb_migrations (identifier TEXT NOT NULL PRIMARY KEY)")
        #expect(try sql.value("PRAGMA foreign_keys", as: Bool.self) == true)
    }

    @Test func migrations_ofAnEarlierRelease_areNotAppliedAgain_andThoseOfALaterOneAreSeen() throws {
        try sql.connection.execute(
            """
            CREATE TABLE grdb_migrations (identifier TEXT NOT NULL PRIMARY KEY);
            INSERT INTO grdb_migrations VALUES ('1 outbox'), ('2 steps'), ('3 lanes'), ('4 traces'),
              ('5 pauses'), ('6 tails'), ('7 blocks'), ('8 turns'), ('9 replay'),
              ('10 long lanes'), ('12 SDKs')
            """)
        try Migrations.apply(with: sql)
        #expect(try !hasTable("upstreams"))
        #expect(try !Migrations.isNewer(sql))
        try sql.run("INSERT INTO grdb_migrations VALUES ('99 the future')")
        #expect(try Migrations.isNewer(sql))
    }

    @Test(arguments: [
        "CREATE TABLE kinds (id)",
        """
        CREATE TABLE parents (id INTEGER PRIMARY KEY);
        CREATE TABLE children (id REFERENCES parents);
        PRAGMA foreign_keys = OFF;
        INSERT INTO children VALUES (7)
        """,
    ])
    func migrationThatFails_leavesNothing(obstacle: String) throws {
        try sql.connection.execute(obstacle)
        #expect(throws: (any Error).self) { try Migrations.apply(with: sql) }
        #expect(try !hasTable("upstreams"))
        #expect(try identifiers() == [])
    }
}
