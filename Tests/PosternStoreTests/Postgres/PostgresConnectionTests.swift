import PosternTestKit
import PosternThreads
import Testing

@testable import PosternStore

/// About the connection itself, with a real server.
@Suite struct PostgresConnectionTests {
    private let server: PostgresServer
    private let schema: String

    init() throws {
        server = try PostgresServer.shared()
        schema = server.schema()
    }

    private func connect(_ url: String? = nil, password: String = "") throws -> PostgresConnection {
        var options = PostgresOptions(url: url ?? server.url)
        options.schema = schema
        options.password = password
        return try PostgresConnection(options)
    }

    /// A connection whose schema has a table `things` with the key `id`, and the statement `put`, which inserts an id.
    private func connectToThings(_ url: String? = nil) throws -> PostgresConnection {
        let connection = try connect(url)
        try connection.execute("CREATE SCHEMA \(schema); CREATE TABLE things (id bigint PRIMARY KEY)")
        try connection.prepare("put", "INSERT INTO things VALUES ($1)", types: [PostgresType.bigint])
        return connection
    }

    private func put(_ id: Int64) -> PostgresValues {
        var values = PostgresValues()
        values.add(id)
        return values
    }

    private func count(_ connection: PostgresConnection) throws -> Int64 {
        try connection.execute("SELECT count(*) FROM things").integer(0, 0)
    }

    /// Runs `work`, which blocks, while the server's process of `connection` is ended from another connection.
    private func whileTerminated(_ connection: PostgresConnection, _ work: () -> Void) throws {
        let pid = connection.backendPID
        let thread = try DedicatedThread(name: "terminating") { [url = server.url] in
            guard let other = try? PostgresConnection(PostgresOptions(url: url)) else { return }
            let isSleeping = "SELECT count(*) FROM pg_stat_activity WHERE pid = \(pid) AND wait_event = 'PgSleep'"
            _ = eventually { (try? other.execute(isSleeping).integer(0, 0)) == 1 }
            _ = try? other.execute("SELECT pg_terminate_backend(\(pid))")
        }
        work()
        thread.join()
    }

    private func error(_ body: () throws -> Void) -> PostgresError? {
        #expect(throws: PostgresError.self, performing: body)
    }

    // MARK: Values

    @Test(arguments: [0, 1, -1, 255, -256, .max, .min] as [Int64]) func integer_comesBackAsItWas(value: Int64) throws {
        let connection = try connect()
        try connection.prepare("same", "SELECT $1", types: [PostgresType.bigint])
        let result = try connection.run("same", put(value))
        #expect(result.integer(0, 0) == value)
        #expect(!result.isNull(0, 0))
    }

    @Test func truthValuesTextsAndBytes_comeBackAsTheyWere() throws {
        let connection = try connect()
        let texts = ["", "a", "ä€😀", String(repeating: "x", count: 100_000)]
        let blobs = [[], [0], Array(0...255), Array(repeating: 0, count: 100_000)] as [[UInt8]]
        var values = PostgresValues()
        for text in texts { values.add(text: text) }
        for blob in blobs { blob.withUnsafeBytes { values.add(bytes: $0) } }
        values.add(true)
        values.add(false)
        #expect(values.types == [25, 25, 25, 25, 17, 17, 17, 17, 16, 16])
        try connection.prepare("same", "SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10", types: values.types)
        let result = try connection.run("same", values)
        #expect([result.rowCount, result.columnCount, result.changedRows] == [1, 10, 1])
        #expect((0..<4).map { String(decoding: result.bytes(0, $0), as: UTF8.self) } == texts)
        #expect((4..<8).map { Array(result.bytes(0, $0)) } == blobs)
        #expect((8..<10).map { result.integer(0, $0) } == [1, 0])
        #expect((0..<10).allSatisfy { !result.isNull(0, $0) })
    }

    @Test func null_ofEachType_isNull_andReadsAsZeroOrEmpty() throws {
        let connection = try connect()
        var values = PostgresValues()
        let types = [PostgresType.bigint, PostgresType.bool, PostgresType.text, PostgresType.bytea]
        for type in types { values.addNull(type) }
        try connection.prepare("same", "SELECT $1, $2, $3, $4, NULL::numeric", types: values.types)
        let result = try connection.run("same", values)
        for column in 0..<5 {
            #expect(result.isNull(0, column))
            #expect(result.integer(0, column) == 0)
            #expect(result.bytes(0, column).isEmpty)
        }
    }

    @Test(arguments: [0, 1, -1, 9999, 10_000, -10_001, 100_000_000, 120_034_000_056, .max - 1, .min + 1] as [Int64])
    func sumOfIntegers_isAnInteger(value: Int64) throws {
        let connection = try connect()
        let text = "SELECT sum(v), $1::integer, $1::smallint FROM (VALUES ($1), ($2)) AS t (v)"
        try connection.prepare(
            "sum", text.replacing("$1::", with: "(-7)::"), types: [PostgresType.bigint, PostgresType.bigint])
        var values = put(value < 0 ? value + 1 : value - 1)
        values.add(value < 0 ? -1 : 1)
        let result = try connection.run("sum", values)
        #expect((0..<3).map { result.integer(0, $0) } == [value, -7, -7])
    }

    @Test func script_runsAllStatements_andReturnsTheLastResult_asText() throws {
        let connection = try connect()
        let result = try connection.execute("SELECT 1; SELECT -12, true, false, 'a'")
        #expect((0..<3).map { result.integer(0, $0) } == [-12, 1, 0])
        #expect(String(decoding: result.bytes(0, 3), as: UTF8.self) == "a")
    }

    @Test func changedRows_areCounted() throws {
        let connection = try connectToThings()
        #expect(try connection.run("put", put(1)).changedRows == 1)
        #expect(try connection.execute("INSERT INTO things VALUES (2), (3); DELETE FROM things").changedRows == 3)
        #expect(try connection.execute("DELETE FROM things").changedRows == 0)
    }

    // MARK: Pipelines

    @Test func statementsThatAreNotWaitedFor_haveRun_whenTheNextOneReturns() throws {
        let connection = try connectToThings()
        try connection.execute("BEGIN")
        for id in 1...1000 { try connection.send("put", put(Int64(id))) }
        #expect(connection.isInTransaction)
        #expect(try count(connection) == 1000)
        try connection.execute("COMMIT")
        try connection.send("put", put(1001))
        #expect(try connection.run("put", put(1002)).changedRows == 1)
        #expect(!connection.isInTransaction)
        #expect(try count(connection) == 1002)
    }

    @Test func firstError_isThrownByTheNextCallThatWaits_andWhatFollowsIsSkipped() throws {
        let connection = try connectToThings()
        try connection.execute("BEGIN")
        for id in [1, 1, 2] as [Int64] { try connection.send("put", put(id)) }
        let first = error { _ = try connection.run("put", put(3)) }
        #expect(first?.state == "23505")
        #expect(first?.constraint == "things_pkey")
        #expect(first?.isConnectionLost == false)
        #expect(connection.isInTransaction)
        #expect(error { _ = try connection.run("put", put(4)) }?.state == "25P02")
        try connection.execute("ROLLBACK")
        #expect(!connection.isInTransaction)
        #expect(try count(connection) == 0)
        try connection.send("put", put(5))
        try connection.flush()
        #expect(try count(connection) == 1)
    }

    @Test func errorOfWhatWasSent_isThrownByAScript_whichDoesNotRun() throws {
        let connection = try connectToThings()
        try connection.send("put", put(1))
        try connection.flush()
        try connection.send("put", put(1))
        #expect(error { try connection.execute("DELETE FROM things") }?.state == "23505")
        #expect(try count(connection) == 1)
    }

    @Test func unansweredStatements_areLimited_byTheirNumberAndTheirBytes() throws {
        let connection = try connectToThings()
        try connection.execute("INSERT INTO things VALUES (0); CREATE TABLE texts (text text)")
        try connection.prepare("putText", "INSERT INTO texts VALUES ($1)", types: [PostgresType.text])
        for _ in 0..<255 { try connection.send("put", put(0)) }
        #expect(error { try connection.send("put", put(0)) }?.state == "23505")
        try connection.send("put", put(0))
        #expect(
            error {
                var values = PostgresValues()
                values.add(text: String(repeating: "x", count: 1 << 20))
                try connection.send("putText", values)
            }?.state == "23505")
    }

    @Test func errorOfAStatementThatIsPrepared_leavesTheConnectionUsable() throws {
        let connection = try connectToThings()
        #expect(error { try connection.prepare("bad", "SELEC 1", types: []) }?.state == "42601")
        #expect(error { _ = try connection.run("unknown", PostgresValues()) }?.state == "26000")
        #expect(!connection.isLost)
        #expect(try connection.run("put", put(1)).changedRows == 1)
    }

    // MARK: Losses

    @Test func connection_endedDuringAStatement_isLost_withTheReasonOfTheServer() throws {
        let connection = try connectToThings()
        try connection.prepare("sleep", "SELECT pg_sleep(1000)", types: [])
        try whileTerminated(connection) {
            let lost = error { _ = try connection.run("sleep", PostgresValues()) }
            #expect(lost?.state == "57P01")
            #expect(lost?.isConnectionLost == true)
        }
        #expect(connection.isLost)
        #expect(!connection.isInTransaction)
        #expect(error { try connection.execute("SELECT 1") }?.isConnectionLost == true)
        #expect(error { _ = try connection.run("put", put(1)) }?.isConnectionLost == true)
        #expect(error { try connection.send("put", put(1)) }?.isConnectionLost == true)
    }

    @Test func connection_endedDuringAPipeline_isLost() throws {
        let connection = try connectToThings()
        try connection.prepare("sleep", "SELECT pg_sleep(1000)", types: [])
        try connection.execute("BEGIN")
        try connection.send("put", put(1))
        try connection.send("sleep", PostgresValues())
        try connection.send("put", put(2))
        try whileTerminated(connection) {
            #expect(error { try connection.flush() }?.isConnectionLost == true)
        }
        #expect(try count(connect()) == 0)
    }

    @Test func connection_endedWhileIdle_isLostAtTheNextStatement() throws {
        let connection = try connectToThings()
        try connect().execute("SELECT pg_terminate_backend(\(connection.backendPID), 60000)")
        let lost = error { _ = try connection.run("put", put(1)) }
        #expect(lost?.isConnectionLost == true)
        #expect(lost?.state == "57P01")
    }

    @Test func connection_isLost_whenThereIsNoAnswerInTime() throws {
        let connection = try connect()
        connection.patience = .milliseconds(20)
        let lost = error { try connection.execute("SELECT pg_sleep(1000)") }
        #expect(lost == PostgresError(message: "no answer within 0.02 seconds", isConnectionLost: true))
        #expect(connection.isLost)
    }

    @Test func connection_thatIsClosed_isLost_andItsTransactionRolledBack() throws {
        let connection = try connectToThings()
        try connection.execute("BEGIN")
        _ = try connection.run("put", put(1))
        connection.close()
        #expect(error { try connection.execute("COMMIT") }?.message == "the connection is closed")
        #expect(try count(connect()) == 0)
    }

    // MARK: Connecting

    @Test func connectionToNothing_fails() async throws {
        #expect(error { _ = try connect("postgresql:///x?host=/nowhere") }?.isConnectionLost == true)
        await withRefusingPort { port in
            let refused = error { _ = try connect("postgresql://127.0.0.1:\(port)/x") }
            #expect(refused?.isConnectionLost == true)
            #expect(refused?.message.contains("Connection refused") == true)
        }
    }

    @Test func connectionToASilentHost_failsInTime() throws {
        let proxy = try server.proxy()
        proxy.partition()
        let options = PostgresOptions(url: proxy.url)
        let failed = error { _ = try PostgresConnection(options, connectTimeout: .milliseconds(20)) }
        #expect(failed?.message == "no connection to 127.0.0.1 within 0.02 seconds")
        #expect(failed?.isConnectionLost == true)
    }

    @Test func secondHost_isUsed_ifTheFirstOneIsUnavailable() async throws {
        let proxy = try server.proxy()
        try await withRefusingPort { port in
            let url = "postgresql://postgres@127.0.0.1:\(port),127.0.0.1:\(proxy.port)/postgres"
            let result = try connect(url).execute("SELECT 7")
            #expect(result.integer(0, 0) == 7)
        }
        #expect(proxy.forwarded(.toServer) > 0)
    }

    @Test func wrongPassword_fails_withoutBeingShown() throws {
        let user = PostgresServer.userWithPassword
        try connect().execute("CREATE ROLE \(user) LOGIN PASSWORD 'right-7Q'")
        let url = "postgresql://\(user)@/postgres?host=\(server.folder)"
        #expect(try connect(url, password: "right-7Q").execute("SELECT 1").rowCount == 1)
        #expect(try connect(url.replacing("@", with: ":right-7Q@")).execute("SELECT 1").rowCount == 1)
        for failed in [
            error { _ = try connect(url, password: "wrong-7Q") },
            error { _ = try connect(url.replacing("@", with: ":wrong-7Q@")) },
        ] {
            #expect(failed?.message.contains("password authentication failed") == true)
            #expect(failed?.description.contains("wrong-7Q") == false)
        }
    }

    @Test func session_hasTheSettingsThatTheStoreNeeds() throws {
        let connection = try connect()
        for (setting, value) in [
            ("synchronous_commit", "on"), ("lock_timeout", "2s"), ("idle_in_transaction_session_timeout", "5s"),
            ("statement_timeout", "0"), ("search_path", schema), ("client_encoding", "UTF8"),
            ("application_name", "postern"),
        ] {
            let result = try connection.execute("SHOW \(setting)")
            #expect(String(decoding: result.bytes(0, 0), as: UTF8.self) == value, "\(setting)")
        }
        #expect(connection.serverVersion >= 130_000)
        #expect(try connection.execute("SELECT pg_backend_pid()").integer(0, 0) == Int64(connection.backendPID))
    }

    @Test func nameOfTheSchema_isQuoted() throws {
        var options = PostgresOptions(url: server.url)
        options.schema = "\(schema) \"x\""
        let result = try PostgresConnection(options).execute("SELECT current_setting('search_path')")
        #expect(String(decoding: result.bytes(0, 0), as: UTF8.self) == "\"\(schema) \"\"x\"\"\"")
    }

    // MARK: Warnings

    @Test func warning_isNoted_untilTheNextCall_andANoticeIsNot() throws {
        let connection = try connect()
        try connection.execute("DO $$ BEGIN RAISE NOTICE 'a'; END $$")
        #expect(!connection.warnedOfReplication)
        try connection.execute("DO $$ BEGIN RAISE WARNING 'a'; END $$")
        #expect(connection.warnedOfReplication)
        try connection.execute("SELECT 1")
        #expect(!connection.warnedOfReplication)
    }

    @Test func commitThatNoLongerWaitsForAStandby_isWarnedOf() throws {
        let server = try PostgresServer(
            settings: ["wal_level=replica", "max_wal_senders=1", "synchronous_standby_names=missing"])
        let options = PostgresOptions(url: server.url)
        let connection = try PostgresConnection(options)
        let pid = connection.backendPID
        let thread = try DedicatedThread(name: "canceling") {
            guard let other = try? PostgresConnection(options) else { return }
            let isWaiting = "SELECT count(*) FROM pg_stat_activity WHERE pid = \(pid) AND wait_event = 'SyncRep'"
            _ = eventually { (try? other.execute(isWaiting).integer(0, 0)) == 1 }
            _ = try? other.execute("SELECT pg_cancel_backend(\(pid))")
        }
        try connection.execute("CREATE SCHEMA here")
        thread.join()
        #expect(connection.warnedOfReplication)
        #expect(!connection.isLost)
    }
}
