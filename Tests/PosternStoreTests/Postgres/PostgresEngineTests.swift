import Foundation
import PosternCore
import PosternMetrics
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// Nodes that share a store: which of them keeps it, and what the others find.
@Suite struct PostgresEngineTests {
    private let store: SharedStore

    init() throws { store = try SharedStore() }

    /// Cuts a node off, so that it can neither work nor beat.
    private func cutOff(_ proxy: PostgresProxy) {
        proxy.isRefusing = true
        proxy.cutAll()
    }

    private func waitInBackground(_ options: PostgresOptions) -> SharedValue<Result<StoreLease?, any Error>?> {
        inBackground { [store] in try store.wait(options) }
    }

    private func isUnavailable(_ failure: StoreError?) -> Bool {
        if case .unavailable = failure { true } else { false }
    }

    // MARK: One keeper

    @Test func secondNode_keepsTheStore_withinASecondOfACleanClose() throws {
        let first = try store.open(store.options("a"))
        let queue = try first.register()
        let ids = try first.append(3, to: queue)
        let waiting = waitInBackground(store.options("b"))
        #expect(eventually { (try? store.run("SELECT count(*) FROM nodes WHERE state = 1")) == 2 })
        #expect(waiting.value == nil)
        first.outbox.close()
        let closed = ContinuousClock.now
        #expect(eventually(within: .seconds(1)) { waiting.value != nil })
        #expect(ContinuousClock.now - closed < .seconds(1))
        let lease = try #require(try waiting.value?.get())
        lease.leave()
        let second = try store.open(store.options("b"))
        #expect(try second.claim(second.register()).messages.map(\.id) == ids)
        #expect(try second.isBalanced())
    }

    /// With millions of messages, to read their lanes takes longer than any commit may.
    @Test func queue_isAdopted_howeverLongItsLanesTakeToRead() throws {
        let node = try store.open(store.options(timeout: 0.5))
        let target = try node.outbox.register(PlainUpstream(laneRule: .perLane), type: "plain", cap: QueueCap())
        let message = NewMessage(
            queue: target, kind: target.upstream.kinds[0], lane: .named("a"), acceptedAt: node.time.now,
            bytes: Array("{}".utf8))
        let ids = try node.threads.result { node.outbox.append([message], completion: $0) }.ids
        try store.run(
            "ALTER TABLE queue_1 RENAME TO rows; CREATE VIEW queue_1 AS SELECT rows.* FROM rows, pg_sleep(1)")
        let outbox = node.outbox
        let adopted = inBackground { try outbox.adopt(target) }
        #expect(eventually { adopted.value != nil })
        try store.run("DROP VIEW queue_1; ALTER TABLE rows RENAME TO queue_1")
        #expect(try node.claim(#require(adopted.value).get()).messages.map(\.id) == ids)
    }

    @Test func silentNode_isReplaced_withinItsLeaseAndTwoSeconds() throws {
        let proxy = try store.server.proxy()
        let first = try store.open(store.options("a", lease: 1.5, through: proxy))
        let queue = try first.register()
        let ids = try first.append(2, to: queue)
        let waiting = waitInBackground(store.options("b", lease: 1.5))
        cutOff(proxy)
        let start = ContinuousClock.now
        #expect(eventually(within: .seconds(3.5)) { waiting.value != nil }, "after \(ContinuousClock.now - start)")
        #expect(ContinuousClock.now - start > .seconds(1))
        try #require(try waiting.value?.get()).leave()

        let second = try store.open(store.options("b", lease: 1.5))
        #expect(try second.claim(second.register()).messages.map(\.id) == ids)
        #expect(!first.outbox.mayStillSend)
        // The first one comes back, and finds out.
        proxy.heal()
        #expect(eventually { first.outbox.failure == .ownershipLost })
        #expect(throws: AppendError.store(.ownershipLost)) { try first.append("late", to: queue) }
        #expect(try store.run("SELECT count(*) FROM queue_1") == 2)
    }

    @Test func waitingNode_canBeCancelled() throws {
        let first = try store.open(store.options("a"))
        var looks = 0
        let lease = try store.wait(store.options("b")) {
            looks += 1
            return looks > 3
        }
        #expect(lease == nil)
        #expect(try store.run("SELECT count(*) FROM nodes WHERE name = 'b' AND state = 1") == 0)
        #expect(first.outbox.mayStillSend)
    }

    @Test func secondNodeWithTheSameName_isRefused_whileTheFirstLives() throws {
        let first = try store.open(store.options("a", lease: 1.5))
        #expect(throws: StoreError.nodeRunning(name: "a")) { try store.wait(store.options("a", lease: 1.5)) }
        #expect(first.outbox.failure == nil)
    }

    /// Its next beat is far away, and its connections are sound.
    @Test func formerOwner_storesNothing_beforeItHasNoticed() throws {
        let first = try store.open(store.options("a"))
        let queue = try first.register()
        try first.append("kept", to: queue)
        let waiting = waitInBackground(store.options("b"))
        try store.run("UPDATE nodes SET state = 3 WHERE name = 'a'")
        #expect(eventually { waiting.value != nil })
        #expect(throws: AppendError.self) { try first.append("late", to: queue) }
        #expect(first.outbox.failure == .ownershipLost)
        #expect(!first.outbox.mayStillSend)
        #expect(try store.run("SELECT count(*) FROM queue_1") == 1)
        try waiting.value?.get()?.leave()
    }

    /// As after `kill -9`.
    @Test func nodeWithTheSameName_replacesTheOneThatIsGone() throws {
        let proxy = try store.server.proxy()
        let first = try store.open(store.options("a", lease: 1, through: proxy))
        cutOff(proxy)
        let second = try store.open(store.options("a", lease: 1))
        #expect(second.outbox.mayStillSend)
        #expect(!first.outbox.mayStillSend)
    }

    @Test func attemptThatWasOpen_isAmbiguous_afterATakeover() throws {
        let proxy = try store.server.proxy()
        let first = try store.open(store.options("a", lease: 1, through: proxy))
        let queue = try first.register()
        try first.append(2, to: queue)
        try first.openAttempt(first.claim(queue).messages, of: queue)
        cutOff(proxy)
        let second = try store.open(store.options("b", lease: 1))
        _ = try second.register()
        #expect(second.outbox.ledger(of: queue.number).ambiguousSends == 1)
        #expect(try second.isBalanced())
    }

    // MARK: The database

    @Test func databaseThatIsAway_isReported_andRequestsAreRefusedAtOnce() throws {
        let proxy = try store.server.proxy()
        let node = try store.open(store.options(lease: 60, timeout: 0.3, through: proxy))
        let queue = try node.register()
        try node.append("before", to: queue)
        cutOff(proxy)
        // The first one finds out.
        #expect(throws: AppendError.self) { try node.append("meanwhile", to: queue) }
        #expect(isUnavailable(node.outbox.failure))
        let start = ContinuousClock.now
        for _ in 0..<100 {
            let error = #expect(throws: AppendError.self) { try node.append("refused", to: queue) }
            guard case .store(let reason) = error else { return _ = Issue.record("\(String(describing: error))") }
            #expect(isUnavailable(reason))
        }
        #expect(ContinuousClock.now - start < .seconds(1))
        #expect(node.outbox.sinceWriterTurned(at: node.time.instant) == .zero)
        proxy.heal()
        #expect(eventually { node.outbox.failure == nil })
        try node.append("after", to: queue)
        let stored = try store.connect().all("SELECT payload FROM queue_1 ORDER BY id") { $0[0] as String }
        #expect(stored.first == "before")
        #expect(stored.last == "after")
        #expect(!stored.contains("refused"))
        #expect(try node.isBalanced())
    }

    @Test func close_returns_withoutTheDatabase() throws {
        let proxy = try store.server.proxy()
        let node = try store.open(store.options(lease: 1, timeout: 0.3, through: proxy))
        let queue = try node.register()
        cutOff(proxy)
        #expect(throws: AppendError.self) { try node.append("lost", to: queue) }
        let start = ContinuousClock.now
        node.outbox.close()
        #expect(ContinuousClock.now - start < .seconds(10))
    }

    @Test func sessionsThatTheServerEnds_areReplaced() throws {
        let node = try store.open(store.options())
        let queue = try node.register()
        for index in 0..<10 {
            try store.terminateSessions()
            try node.append("\(index)", to: queue)
        }
        let stored = try store.connect().all("SELECT payload FROM queue_1 ORDER BY id") { $0[0] as String }
        #expect(stored == (0..<10).map { "\($0)" })
        #expect(try node.isBalanced())
        #expect(try node.isBalanced())
    }

    /// A standby took over that lacked them, or a backup was restored.
    @Test func lostCommits_endTheOwnership() throws {
        let node = try store.open(store.options())
        let queue = try node.register()
        try node.append("kept", to: queue)
        try store.run("DELETE FROM log WHERE n = (SELECT max(n) FROM log)")
        // Found by another node since this one was started.
        try store.run("UPDATE store SET lostCommits = 2")
        #expect(throws: AppendError.store(.ownershipLost)) { try node.append("refused", to: queue) }
        #expect(node.outbox.failure == .ownershipLost)
        #expect(!node.outbox.mayStillSend)
        #expect(try store.run("SELECT count(*) FROM queue_1") == 1)
        #expect(node.metrics.database.lostCommits().value == 3)
        node.outbox.close()
        #expect(try store.open(store.options()).metrics.database.lostCommits().value == 3)
    }

    /// All writers of a node are ended with it.
    @Test func nodeThatWasEnded_getsNoOtherWriter() throws {
        let node = try store.open(store.options())
        let queue = try node.register()
        try node.append("kept", to: queue)
        let writers = try store.run("SELECT count(*) FROM writers")
        try store.run("UPDATE nodes SET state = 3")
        try store.terminateSessions()
        #expect(throws: AppendError.self) { try node.append("refused", to: queue) }
        #expect(node.outbox.failure == .ownershipLost)
        #expect(try store.run("SELECT count(*) FROM writers") == writers)
    }

    /// Otherwise a writer could appear after those of its node were ended.
    @Test func writer_isNotAdded_whileItsNodeIsBeingEnded() throws {
        let node = try store.open(store.options())
        let queue = try node.register()
        try node.append("kept", to: queue)
        let writers = try store.run("SELECT count(*) FROM writers")
        let isHeld = SharedValue(false)
        let ended = inBackground { [store] in
            let other = try store.connect()
            try other.begin(.write)
            try other.run("UPDATE nodes SET state = 3")
            isHeld.set(true)
            let isBlocked = eventually { store.isBlocked }
            try other.run("COMMIT")
            return isBlocked
        }
        #expect(eventually { isHeld.value })
        try store.terminateSessions()
        #expect(throws: AppendError.self) { try node.append("refused", to: queue) }
        #expect(try awaited(ended))
        #expect(try store.run("SELECT count(*) FROM writers") == writers)
    }

    @Test func writerThatWasEnded_storesNothing() throws {
        let node = try store.open(store.options())
        let queue = try node.register()
        try store.run("INSERT INTO log (writer, n, kind) SELECT writer, max(n) + 1, 1 FROM log GROUP BY writer")
        #expect(throws: AppendError.store(.ownershipLost)) { try node.append("refused", to: queue) }
        #expect(try store.run("SELECT count(*) FROM queue_1") == 0)
    }

    @Test func conflicts_areTriedAgain_threeTimes() throws {
        let node = try store.open(store.options())
        try store.run(
            """
            CREATE SEQUENCE attempts_made;
            CREATE FUNCTION conflict(most bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
              IF nextval('attempts_made') <= most THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;
              RETURN 1;
            END $$
            """)
        #expect(
            try node.threads.result {
                node.outbox.writer.change({ try $0.sql.value("SELECT conflict(3)", as: Int.self) }, completion: $0)
            } == 1)
        try store.run("ALTER SEQUENCE attempts_made RESTART")
        #expect(throws: StoreError.self) {
            _ = try node.threads.result {
                node.outbox.writer.change({ try $0.sql.value("SELECT conflict(100)", as: Int.self) }, completion: $0)
            }
        }
        #expect(try store.run("SELECT last_value FROM attempts_made") == 4)
    }

    @Test func ids_continue_fromTheTimeOfTheStart_orTheLatest() throws {
        let first = try store.open(store.options())
        let one = try first.append("1", to: first.register())
        #expect(one.sequence > StoreFile.firstSequence(at: first.time.now))
        first.outbox.close()
        let second = try store.open(store.options())
        #expect(try second.append("2", to: second.register()) > one)
    }

    @Test func log_isTrimmed_exceptForTheLastRow() throws {
        let node = try store.open(store.options(lease: 1))
        let queue = try node.register()
        try node.append(3, to: queue)
        node.outbox.close()
        try store.run("UPDATE log SET at = 0")
        let second = try store.open(store.options(lease: 1))
        #expect(eventually { (try? store.run("SELECT count(*) FROM log WHERE at = 0")) == 0 })
        try second.append("goes on", to: second.register())
    }
}
