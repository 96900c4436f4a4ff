import CSQLite
import PosternCore
import PosternUpstream
import Testing

@testable import PosternStore

/// The read-only connections of a store.
@Suite struct ReadersTests {
    private func sees(_ id: MessageID, _ store: TestStore) throws -> Bool { try store.outbox.message(id) != nil }

    @Test func read_seesItsSnapshot_andTheNextOneWhatWasStoredMeanwhile() throws {
        let store = try TestStore()
        let queue = try store.register()
        let first = try store.append(to: queue)
        let counts = try store.outbox.readers.readSnapshot { sql in
            func count() throws -> Int? { try sql.value("SELECT count(*) FROM queued_1", as: Int.self) }
            let before = try count()
            try store.append(to: queue)
            // A read within a read has a connection of its own.
            return [before, try count(), try sees(first, store) ? 1 : 0]
        }
        #expect(counts == [1, 1, 1])
        let after = try store.outbox.readers.readSnapshot {
            try $0.value("SELECT count(*) FROM queued_1", as: Int.self)
        }
        #expect(after == 2)
    }

    @Test func readers_areReused_untilTheyAreRenewed_alsoDuringARead() throws {
        let store = try TestStore()
        try store.append(to: store.register())
        let readers = store.outbox.readers
        func read(_ meanwhile: () -> Void = {}) throws -> SQL {
            try readers.readSnapshot { sql in
                meanwhile()
                let isThere = try sql.exists("SELECT 1 FROM queued_1")
                #expect(isThere)
                return sql
            }
        }
        let first = try read()
        let same = try read { readers.renew() }
        #expect(same === first)
        let second = try read()
        #expect(second !== first)
        readers.renew()
        let third = try read()
        #expect(third !== second)
    }

    /// One that SQLite could not roll back would show its snapshot to each later read, and keep the log from being reset.
    @Test func readerWithAnOpenTransaction_isNotUsedAgain() throws {
        let store = try TestStore()
        try store.append(to: store.register())
        let readers = store.outbox.readers
        func read(_ body: (SQL) -> Void = { _ in }) throws -> SQL {
            try readers.readSnapshot { sql in
                body(sql)
                return sql
            }
        }
        let first = try read()
        #expect(throws: SQLiteError.self) {
            _ = try read { sql in
                let deny:
                    @convention(c) (
                        UnsafeMutableRawPointer?, Int32, UnsafePointer<CChar>?, UnsafePointer<CChar>?,
                        UnsafePointer<CChar>?, UnsafePointer<CChar>?
                    ) -> Int32 = { _, action, _, _, _, _ in action == SQLITE_TRANSACTION ? SQLITE_DENY : SQLITE_OK }
                sqlite3_set_authorizer(sql.connection.handle, deny, nil)
            }
        }
        #expect(try read() !== first)
        #expect(try store.outbox.read { try $0.value("SELECT count(*) FROM queued_1", as: Int.self) } == 1)
    }

    @Test func stateThatIsNotRead_takesNoConnection_andOneThatIsHasOneSnapshot() throws {
        let store = try TestStore()
        let queue = try store.register()
        store.outbox.readers.close()
        #expect(try store.outbox.withState(of: queue.number) { _ in 1 } == 1)
        #expect(throws: StoreError.self) { try store.outbox.withState(of: queue.number) { $0.value(of: "a") } }

        let other = try TestStore()
        let id = try other.append(to: other.register())
        let second = try other.outbox.withState(of: id.upstream) { state in
            let before = state.isQueued(id)
            let isCancelled = (try? other.cancel(id)) ?? false
            return (before, isCancelled, state.isQueued(id))
        }
        #expect(second == (true, true, true))
        #expect(try other.outbox.withState(of: id.upstream) { $0.isQueued(id) } == false)
    }

    @Test func read_throws_afterTheStoreWasClosed() throws {
        let store = try TestStore()
        let id = try store.append(to: store.register())
        #expect(try sees(id, store))
        store.outbox.close()
        #expect(throws: StoreError.self) { try sees(id, store) }
    }

    @Test func failedRead_leavesItsConnectionUsable() throws {
        struct Stop: Error {}
        let store = try TestStore()
        let id = try store.append(to: store.register())
        #expect(throws: Stop.self) { try store.outbox.readers.readSnapshot { _ in throw Stop() } }
        #expect(try sees(id, store))
    }
}
