import PosternTestKit
import Testing

@testable import PosternStore

/// The end mark against every state of a transaction.
@Suite struct FenceTests {
    private let store: SharedStore
    private let sql: SQL

    init() throws {
        store = try SharedStore()
        sql = try store.connect()
        try PostgresSchema.prepare(sql, store.options())
        try sql.run("INSERT INTO writers (writer, node, kind) VALUES (1, 1, 3)")
        try commit(0)
        try commit(1)
    }

    private func commit(_ n: Int64) throws { try sql.run("INSERT INTO log (writer, n, kind) VALUES (1, ?, 0)", n) }

    private func end(_ sql: SQL) throws -> Int64 { try Fence(sql: sql, options: store.options()).end(1) }

    /// A transaction of the writer, which has inserted its row.
    private func begin(_ n: Int64) throws -> SQL {
        let other = try store.connect()
        try other.begin(.write)
        try other.run("INSERT INTO log (writer, n, kind) VALUES (1, ?, 0)", n)
        return other
    }

    private func endInBackground() -> SharedValue<Result<Int64, any Error>?> {
        inBackground { [store] in
            let sql = try store.connect()
            return try Fence(sql: sql, options: store.options()).end(1)
        }
    }

    private func marks() throws -> Int { try store.run("SELECT count(*) FROM log WHERE kind = 1") }

    @Test func transactionThatHasNotBegun_isRefused() throws {
        #expect(try end(sql) == 1)
        #expect(try store.run("SELECT n FROM log WHERE kind = 1") == 2)
        #expect(try sql.value("SELECT isEnded FROM writers", as: Bool.self) == true)
        let error = #expect(throws: PostgresError.self) { try commit(2) }
        #expect(error?.constraint == "log_pkey")
    }

    @Test func writer_isEndedOnce_howeverOften() throws {
        #expect(try end(sql) == 1)
        #expect(try end(sql) == 1)
        #expect(try marks() == 1)
    }

    @Test func openTransactionThatCommits_isStored() throws {
        let open = try begin(2)
        let ended = endInBackground()
        #expect(eventually { store.isBlocked })
        try open.run("COMMIT")
        #expect(try awaited(ended) == 2)
        #expect(try store.run("SELECT n FROM log WHERE kind = 1") == 3)
    }

    @Test func openTransactionThatEndsOtherwise_isNotStored() throws {
        let open = try begin(2)
        let ended = endInBackground()
        #expect(eventually { store.isBlocked })
        open.rollBack()
        #expect(try awaited(ended) == 1)
        #expect(try store.run("SELECT n FROM log WHERE kind = 1") == 2)
    }

    /// Its process may be stopped, or its machine gone.
    @Test func frozenTransaction_isTerminated() throws {
        let open = try begin(2)
        #expect(try end(sql) == 1)
        let error = #expect(throws: PostgresError.self) { try open.run("COMMIT") }
        #expect(error?.isConnectionLost == true)
    }
}
