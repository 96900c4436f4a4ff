import Foundation
import PosternCore
import PosternMetrics
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

@Suite struct StoreFileTests {
    private func options(_ folder: ScratchFolder, _ name: String = "store.sqlite") -> OutboxOptions {
        OutboxOptions(path: folder.file(name))
    }

    @Test func newStore_makesItsFolder() throws {
        let folder = ScratchFolder()
        let store = try TestStore.open(options(folder, "a/b/store.sqlite"))
        store.close()
        #expect(FileManager.default.fileExists(atPath: folder.file("a/b/store.sqlite")))
    }

    @Test func secondOne_isRefused_untilTheFirstCloses() throws {
        let store = try TestStore()
        #expect(throws: StoreError.alreadyRunning(path: store.path)) { try TestStore.open(store.options) }
        store.outbox.close()
        try TestStore.open(store.options).close()
    }

    @Test func foreignDatabase_isLeftAlone() throws {
        let folder = ScratchFolder()
        let path = folder.file("store.sqlite")
        let other = try SQLiteConnection(path)
        try other.execute("CREATE TABLE theirs (x)")
        try other.close()
        let before = try Data(contentsOf: URL(fileURLWithPath: path))
        for startFresh in [false, true] {
            #expect(throws: StoreError.foreign(path: path)) {
                try TestStore.open(options(folder), startFresh: startFresh)
            }
        }
        #expect(try Data(contentsOf: URL(fileURLWithPath: path)) == before)
    }

    @Test func storeOfALaterVersion_isLeftAlone() throws {
        let store = try TestStore()
        try store.execute("INSERT INTO grdb_migrations VALUES ('99 the future')")
        store.outbox.close()
        #expect(throws: StoreError.newer(path: store.path)) { try TestStore.open(store.options) }
        #expect(throws: StoreError.newer(path: store.path)) { try StoreView(path: store.path) }
    }

    @Test func storeOfTheFirstVersion_isOpened_withItsAttempts() throws {
        let store = try TestStore()
        let queue = try store.register()
        let id = try store.append(to: queue)
        try store.openAttempt(try store.claim(queue).messages, of: queue)
        try store.execute("ALTER TABLE attempts DROP COLUMN step")
        try store.execute("DELETE FROM grdb_migrations WHERE identifier = '2 steps'")
        try store.reopen()
        #expect(try store.outbox.attempts(of: id).map(\.step) == [nil])
        try store.openAttempt(
            store.outbox.nextBatch(), carrying: [id], step: "second", of: try store.register())
        #expect(try store.outbox.attempts(of: id).map(\.step) == [nil, "second"])
    }

    @Test func pauseOfAnEarlierVersion_isKept_withoutItsOrigin() throws {
        let store = try TestStore()
        let number = try store.register().number
        try store.execute("UPDATE upstreams SET isPaused = 1")
        for column in ["pausedBy", "pausedAtMs"] { try store.execute("ALTER TABLE upstreams DROP COLUMN \(column)") }
        try store.execute("DELETE FROM grdb_migrations WHERE identifier = '5 pauses'")
        try store.reopen()
        #expect(try store.outbox.summary(of: number)?.pause == Pause())
        try store.threads.result { store.outbox.setPause(nil, of: number, completion: $0) }
        #expect(try store.outbox.summary(of: number)?.pause == nil)
        let order = Pause(by: "ops", at: store.time.now)
        try store.threads.result { store.outbox.setPause(order, of: number, completion: $0) }
        try store.reopen()
        #expect(try store.outbox.summary(of: number)?.pause == order)
    }

    @Test func storeWithLargerPages_keepsThem_andWorksAsBefore() throws {
        let store = try TestStore()
        try store.append(100, to: store.register())
        store.outbox.close()
        let former = try SQLiteConnection(store.path)
        try former.execute("PRAGMA journal_mode = DELETE; PRAGMA page_size = 16384; VACUUM")
        try former.close()
        try store.reopen()
        #expect(store.sqlite.pageSize == 16384)
        let queue = try store.register()
        // Enough for several checkpoints and allocations.
        let text = String(repeating: "x", count: 20_000)
        for _ in 0..<40 { try store.append((0..<10).map { _ in store.message(text, to: queue) }) }
        try store.drain(queue)
        try store.append(7, to: queue)
        #expect(try store.survivors() == 7)
        try store.reopen()
        #expect(try store.outbox.audit().isBalanced)
        #expect(try store.integer("PRAGMA page_size") == 16384)
    }

    @Test func storeOfVersion010_isOpened_andTakesWhatItHadNoColumnsFor() throws {
        let store = try TestStore()
        let id = try store.append(to: store.register())
        try store.execute("DROP VIEW queued_1; DROP VIEW received_1; DROP TABLE blocks_1; DROP TABLE receipts_1")
        for table in ["queue_1", "ended_1"] { try store.execute("ALTER TABLE \(table) DROP COLUMN traceParent") }
        for table in ["queue_1", "lanes"] { try store.execute("ALTER TABLE \(table) DROP COLUMN turn") }
        try store.execute("DROP TABLE payloads_1; DROP TABLE replays; DROP TABLE replayed")
        try store.execute("ALTER TABLE delivered_1 DROP COLUMN tried")
        try store.execute("ALTER TABLE attempts DROP COLUMN step; DROP TABLE responses")
        for column in ["pausedBy", "pausedAtMs"] { try store.execute("ALTER TABLE upstreams DROP COLUMN \(column)") }
        try store.execute("DELETE FROM grdb_migrations WHERE identifier <> '1 outbox'")
        try store.reopen()
        let queue = try store.register()
        try store.openAttempt(store.claim(queue).messages, of: queue)
        #expect(try store.outbox.message(id)?.state == .queued)
        #expect(try store.count("responses") == 0)
        #expect(try store.count("queue_1 WHERE traceParent IS NULL") == 1)
        try store.reopen()
        #expect(try store.outbox.message(id) != nil)
    }

    @Test func garbage_isReported_andLeftAsItIs() throws {
        let folder = ScratchFolder()
        let garbage = Data((0..<8192).map { UInt8(truncatingIfNeeded: $0 * 31 + 7) })
        try garbage.write(to: URL(fileURLWithPath: folder.file("store.sqlite")))
        let error = #expect(throws: StoreError.self) { try TestStore.open(options(folder)) }
        guard case .foreign = error else { return #expect(Bool(false), "\(String(describing: error))") }
        #expect(try Data(contentsOf: URL(fileURLWithPath: folder.file("store.sqlite"))) == garbage)
    }

    @Test func damagedPage_isFound_beforeAnythingStarts() throws {
        let store = try damaged()
        let error = #expect(throws: StoreError.self) { try TestStore.open(store.options) }
        guard case .corrupt(let path, _) = error else { return #expect(Bool(false), "\(String(describing: error))") }
        #expect(path == store.path)
    }

    @Test func startFresh_keepsTheDamagedFile_underANewName() throws {
        let store = try damaged()
        let damage = try Data(contentsOf: URL(fileURLWithPath: store.path))
        let fresh = try TestStore.open(store.options, startFresh: true, time: store.time)
        defer { fresh.close() }
        #expect(fresh.ledgers.isEmpty)
        let kept = store.path + ".damaged-\(store.time.now.milliseconds)"
        #expect(try Data(contentsOf: URL(fileURLWithPath: kept)) == damage)
    }

    /// The check of every start does not see it, and a statement that changes the row fails.
    @Test func startFresh_findsARowThatIsMissingInAnIndex() throws {
        let store = try TestStore()
        try store.append(3, to: store.register())
        store.outbox.close()
        let name = "attemptsOfMessages"
        var (text, page) = ("", 0)
        try changeSchema(of: store) { sql in
            text = try sql.value("SELECT sql FROM sqlite_master WHERE name = ?", name, as: String.self) ?? ""
            page = try sql.value("SELECT rootpage FROM sqlite_master WHERE name = ?", name, as: Int.self) ?? 0
            try sql.run("DELETE FROM sqlite_master WHERE name = ?", name)
        }
        try changeSchema(of: store) { sql in
            try sql.run(
                "INSERT INTO attempts (batch, upstream, startedAtMs, firstId, lastId, ids) VALUES (1, 1, 0, 1, 1, x'')")
            try sql.run("INSERT INTO sqlite_master VALUES ('index', ?, 'attempts', ?, ?)", name, page, text)
        }
        let damage = try Data(contentsOf: URL(fileURLWithPath: store.path))
        #expect(try IntegrityCheck.isSound(store.path))
        let fresh = try TestStore.open(store.options, startFresh: true, time: store.time)
        defer { fresh.close() }
        #expect(fresh.ledgers.isEmpty)
        let kept = store.path + ".damaged-\(store.time.now.milliseconds)"
        #expect(try Data(contentsOf: URL(fileURLWithPath: kept)) == damage)
    }

    private func changeSchema(of store: TestStore, _ change: (SQL) throws -> Void) throws {
        let sql = SQL(try SQLiteConnection(store.path, preparing: "PRAGMA writable_schema = ON"))
        try change(sql)
        try sql.close()
    }

    @Test func startFresh_leavesASoundStoreAlone() throws {
        let store = try TestStore()
        try store.append(3, to: store.register())
        store.outbox.close()
        let again = try TestStore.open(store.options, startFresh: true, time: store.time)
        defer { again.close() }
        #expect(again.ledgers.values.map(\.queued) == [3])
    }

    /// A closed store with some hundred pages, one of which in the middle is overwritten.
    private func damaged() throws -> TestStore {
        let store = try TestStore()
        let queue = try store.register()
        let text = String(repeating: "x", count: 1000)
        try store.append((0..<500).map { _ in store.message(text, to: queue) })
        store.outbox.close()
        let file = try FileHandle(forUpdating: URL(fileURLWithPath: store.path))
        let size = try file.seekToEnd()
        try file.seek(toOffset: size / 16384 * 8192)
        try file.write(contentsOf: Data(repeating: 0xA5, count: 8192))
        try file.close()
        return store
    }

    @Test func placeThatCannotBeWritten_isNamed() throws {
        let folder = ScratchFolder()
        try Data("no folder".utf8).write(to: URL(fileURLWithPath: folder.file("file")))
        try FileManager.default.createDirectory(atPath: folder.file("store"), withIntermediateDirectories: true)
        for name in ["file/store.sqlite", "store"] {
            let error = #expect(throws: StoreError.self) { try TestStore.open(options(folder, name)) }
            guard case .cannotCreate(folder.file(name), _) = error else {
                #expect(Bool(false), "\(String(describing: error))")
                continue
            }
        }
    }

    @Test func view_ofNoStore_saysSo() throws {
        let folder = ScratchFolder()
        let error = #expect(throws: StoreError.self) { try StoreView(path: folder.file("none.sqlite")) }
        guard case .cannotCreate = error else { return #expect(Bool(false), "\(String(describing: error))") }
        #expect(!FileManager.default.fileExists(atPath: folder.file("none.sqlite")))
    }

    @Test func upstream_keepsItsNumber_andItsName_isNeverReused() throws {
        let store = try TestStore()
        let first = try store.register(PlainUpstream("first")).number
        let second = try store.register(PlainUpstream("second")).number
        #expect(first != second)
        try store.reopen()
        #expect(try store.register(PlainUpstream("third")).number.rawValue == 3)
        #expect(try store.register(PlainUpstream("second")).number == second)
        #expect(store.outbox.names[first] == UpstreamName("first"))
    }

    @Test func writer_isSetToFullSynchronous() throws {
        let store = try TestStore()
        let level = SharedValue<Int?>(nil)
        try store.transact { level.set(try $0.sql.value("PRAGMA synchronous", as: Int.self)) }
        #expect(level.value == 2)
    }
}

@Suite struct DiskFullTests {
    @Test func fullDisk_turnsMessagesAway_whileDeliveriesGoOn() throws {
        let store = try TestStore()
        let queue = try store.register()
        let text = String(repeating: "x", count: 2000)
        func fill(_ count: Int) throws { try store.append((0..<count).map { _ in store.message(text, to: queue) }) }
        try fill(500)
        try store.transact { transaction in
            let pages = try transaction.sql.value("PRAGMA page_count", as: Int.self) ?? 0
            try transaction.sql.connection.execute("PRAGMA max_page_count = \(pages + 4)")
        }
        let refusal = #expect(throws: AppendError.self) { try fill(500) }
        guard case .store(.full) = refusal else { return #expect(Bool(false), "\(String(describing: refusal))") }
        #expect(store.outbox.failure?.description == "no room to store more: database or disk is full")
        #expect(store.outbox.ledger(of: queue.number).accepted == 500)
        let claim = try store.claim(queue, most: 100)
        try store.deliver(claim.messages, of: queue)
        // While the disk is full, claims are small, so that their settlement needs little room.
        #expect(claim.messages.count == 32)
        #expect(store.outbox.ledger(of: queue.number).delivered == 32)
        try store.execute("PRAGMA max_page_count = 1000000")
        store.sqlite.checkForSpace()
        #expect(store.outbox.failure == nil)
        try fill(500)
        #expect(try store.isBalanced())
    }

    @Test func fullDisk_costsTheOldest_ofAQueueThatDropsThem() throws {
        let store = try TestStore()
        let queue = try store.register(cap: QueueCap.with { $0.whenFull = .dropOldest })
        let text = String(repeating: "x", count: 2000)
        let ids = try store.append((0..<500).map { _ in store.message(text, to: queue) }).ids
        try store.transact { transaction in
            let pages = try transaction.sql.value("PRAGMA page_count", as: Int.self) ?? 0
            try transaction.sql.connection.execute("PRAGMA max_page_count = \(pages + 4)")
        }
        // One that is being sent stays. The others of its block are removed with those that make room.
        let claim = try store.claim(queue, most: 1)
        let receipt = try store.append((0..<20).map { _ in store.message(text, to: queue) })
        #expect(receipt.ids.count == 20)
        #expect(receipt.evicted == Array(ids[1..<32]))
        #expect(try store.state(ids[1]) == .dropped)
        #expect(try store.record(ids[0])?.payload == store.record(ids[32])?.payload)
        #expect(try store.requeue([ids[1]]).isEmpty)
        // Larger than all other messages together: nothing is dropped to make space for it.
        let ledger = store.outbox.ledger(of: queue.number)
        #expect(throws: AppendError.self) { try store.append((0..<2000).map { _ in store.message(text, to: queue) }) }
        #expect(store.outbox.ledger(of: queue.number) == ledger)
        try store.deliver(claim.messages, of: queue)
        #expect(try store.isBalanced())
    }

    @Test func fullDisk_takesNothingThatMayBeLost() throws {
        let store = try TestStore()
        let queue = try store.register()
        func cache(_ key: String) throws {
            try store.change([.cache(key: key, value: [1], until: store.time.now + .seconds(60))], of: queue)
        }
        try cache("cache/a/1")
        store.sqlite.enterFull(.full(detail: "test"))
        try cache("cache/a/2")
        #expect(try store.count("state") == 1)
        try store.change([.set(key: "s", value: [1])], of: queue)
        #expect(try store.count("state") == 2, "what must not be lost is stored")
        store.sqlite.checkForSpace()
        try cache("cache/a/2")
        #expect(try store.count("state") == 3)
    }

    @Test func reserve_isGivenBack_whenTheDiskIsFull_andTakenAgain() throws {
        let store = try TestStore()
        let queue = try store.register()
        let reserve = store.path + ".reserve"
        func size() -> Int? {
            (try? FileManager.default.attributesOfItem(atPath: reserve))?[.size] as? Int
        }
        #expect(size() == DiskReserve.bytes)
        store.sqlite.enterFull(.full(detail: "test"))
        #expect(size() == DiskReserve.bytesForStart)
        #expect(throws: AppendError.self) { try store.append(to: queue) }
        store.sqlite.checkForSpace()
        #expect(size() == DiskReserve.bytes)
        try store.append(to: queue)
        // The file remains after a stop, because the next start may need it.
        store.outbox.close()
        #expect(size() == DiskReserve.bytes)
    }
}
