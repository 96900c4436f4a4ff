import Foundation
import GRDB
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

@Suite struct AuditTests {
    @Test(arguments: [
        "DELETE FROM queue_1 WHERE id = (SELECT min(id) FROM queue_1)",
        "DELETE FROM delivered_1 WHERE id = (SELECT max(id) FROM delivered_1)",
        "DELETE FROM ended_1",
        "UPDATE queue_1 SET payload = x'00' WHERE id = (SELECT max(id) FROM queue_1)",
        "UPDATE upstreams SET accepted = accepted + 1",
        "INSERT INTO delivered_1 SELECT id, kind, acceptedAtMs, 0, 1, NULL, NULL FROM queue_1 LIMIT 1",
    ])
    func audit_finds_whatWasChangedBehindItsBack(sql: String) throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(30, to: queue)
        try store.deliver(store.claim(queue, most: 10).messages, of: queue)
        try store.fail(store.claim(queue, most: 10).messages, of: queue)
        #expect(try store.isBalanced())
        try store.change { try $0.db.execute(sql: sql) }
        #expect(try !store.outbox.audit().isBalanced)
        #expect(try !StoreView(path: store.path).audit().isBalanced)
    }

    @Test func settlement_isNotKept_ifItsChangesCannotBeComputed() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(1, to: queue)
        var settlement = store.settlement(.delivered)
        settlement.delivered = try store.claim(queue).messages
        let unreadable = StoreError.failed(detail: "as the test demands")
        let done = SharedValue<Result<[StateChange], StoreError>?>(nil)
        store.outbox.settle(settlement, of: queue) { _ in
            throw unreadable
        } completion: {
            done.set($0)
        }
        try store.settleDown()
        #expect(done.value == .failure(unreadable))
        #expect(try store.state(settlement.delivered[0].id) == .queued)
    }

    @Test func state_throws_whenItCannotBeRead() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.change { transaction in
            for table in ["state", "credentials", "lanes", "queue_\(queue.number.rawValue)"] {
                try transaction.db.execute(sql: "DROP TABLE \(table)")
            }
        }
        let credential = Credential(owner: "a", value: [1])
        let reads: [@Sendable (any UpstreamState) throws -> Void] = [
            { _ = try $0.value(of: "a") }, { _ = try $0.values(below: "a", atMost: 1) },
            { _ = try $0.queued(inLane: "a", atMost: 1) }, { _ = try $0.credential(of: "a") },
            { _ = try $0.wasRefused(credential) },
            { _ = try $0.isQueued(MessageID(sequence: 1, upstream: queue.number)) },
        ]
        for read in reads {
            #expect(throws: StoreError.self) { try store.outbox.withState(of: queue.number, read) }
        }
    }

    @Test func stateChanges_areCommitted_withTheirSettlement_orNotAtAll() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(1, to: queue)
        let claim = try store.claim(queue)
        var settlement = store.settlement(.delivered)
        settlement.delivered = claim.messages
        let first = settlement
        #expect(throws: StoreError.self) {
            try store.change { transaction in
                try transaction.settle(first, of: queue) { _ in [.set(key: "a", value: [1])] }
                throw StoreError.failed(detail: "after all")
            }
        }
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "a") } == nil)
        #expect(try store.state(claim.messages[0].id) == .queued)
        try store.settle(settlement, of: queue, changes: [.set(key: "a", value: [1])])
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "a") } == [1])
        try store.settle(settlement, of: queue, changes: [.remove(key: "a"), .set(key: "b", value: [])])
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "a") } == nil)
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "b") } == [])
        #expect(try store.isBalanced())
    }
}

@Suite struct UpkeepTests {
    @Test func retention_removesReceipts_andTheBooksStayBalanced() throws {
        let store = try TestStore { $0.deliveredRetention = .seconds(100) }
        let queue = try store.register()
        let old = try store.append(5000, to: queue)
        try store.drain(queue)
        store.time.advance(by: .seconds(99))
        let young = try store.append(10, to: queue)
        try store.drain(queue)
        try store.keepUp()
        #expect(try store.state(old[0]) == .delivered)
        store.time.advance(by: .seconds(2))
        try store.keepUp()
        #expect(try store.state(old[4999]) == nil)
        #expect(try store.state(young[0]) == .delivered)
        #expect(store.outbox.ledger(of: queue.number).purgedDelivered == 5000)
        #expect(try store.isBalanced())
        store.time.advance(by: .seconds(100))
        try store.keepUp()
        #expect(try store.integer("SELECT count(*) FROM delivered_1") == 0)
        #expect(store.outbox.ledger(of: queue.number).delivered == 5010)
        #expect(try store.isBalanced())
    }

    @Test func turn_doesALittle_andSaysThatThereIsMore() throws {
        let store = try TestStore { $0.deliveredRetention = .seconds(100) }
        let queue = try store.register()
        try store.append(3000, to: queue)
        try store.drain(queue)
        store.time.advance(by: .seconds(101))
        let upkeep = Upkeep(outbox: store.outbox)
        let hasMore = SharedValue(false)
        try store.change { hasMore.set(try upkeep.run(in: $0)) }
        #expect(hasMore.value)
        #expect(try store.integer("SELECT count(*) FROM delivered_1") == 3000 - Upkeep.rowsPerTurn)
    }

    @Test func deadLetters_areKeptLonger() throws {
        let store = try TestStore { options in
            options.deliveredRetention = .seconds(100)
            options.failedRetention = .seconds(1000)
        }
        let queue = try store.register()
        let ids = try store.append(3, to: queue)
        try store.fail(Array(store.claim(queue, most: 1).messages), of: queue)
        #expect(try store.cancel(ids[1]) == .cancelled)
        store.time.advance(by: .seconds(999))
        try store.keepUp()
        #expect(try store.state(ids[0]) == .failed)
        store.time.advance(by: .seconds(2))
        try store.keepUp()
        #expect(try store.state(ids[0]) == nil)
        #expect(try store.state(ids[1]) == nil)
        #expect(try store.state(ids[2]) == .queued)
        #expect(try store.isBalanced())
    }

    @Test func noRetention_keepsNoReceipts() throws {
        let store = try TestStore { $0.deliveredRetention = .zero }
        let queue = try store.register()
        try store.append(10, to: queue)
        try store.deliver(store.claim(queue, most: 1).messages, of: queue)
        try store.drain(queue)
        #expect(try store.integer("SELECT count(*) FROM delivered_1") == 0)
        #expect(store.outbox.ledger(of: queue.number).delivered == 10)
        #expect(try store.isBalanced())
    }

    @Test func attempts_goWithTheReceipts_pastFailuresThatAreKept() throws {
        let store = try TestStore { options in
            options.deliveredRetention = .seconds(100)
            options.failedRetention = .seconds(1000)
        }
        let queue = try store.register()
        let outcomes = (0..<600).map { $0 < 400 ? Settlement.Outcome.retry : .delivered }
        let time = store.time.now
        let batches = outcomes.map { _ in store.outbox.nextBatch() }
        try store.change { transaction in
            for (batch, outcome) in zip(batches, outcomes) {
                let ids = [MessageID(rawValue: 1)]
                try transaction.openAttempt(AttemptStart(batch: batch, startedAt: time, ids: ids), of: queue)
                try transaction.settle(Settlement(batch: batch, outcome: outcome, endedAt: time), of: queue)
            }
        }
        store.time.advance(by: .seconds(101))
        try store.keepUp()
        #expect(try store.integer("SELECT count(*) FROM attempts") == 400)
        store.time.advance(by: .seconds(1000))
        try store.keepUp()
        #expect(try store.integer("SELECT count(*) FROM attempts") == 0)
    }

    @Test func file_shrinks_afterAFloodIsDeliveredAndPurged() throws {
        let store = try TestStore { $0.deliveredRetention = .seconds(10) }
        let queue = try store.register()
        let text = String(repeating: "x", count: 2000)
        for _ in 0..<10 { try store.append((0..<500).map { _ in store.message(text, to: queue) }) }
        let pages = try store.integer("PRAGMA page_count")
        try store.drain(queue)
        store.time.advance(by: .seconds(11))
        try store.keepUp()
        #expect(try store.integer("PRAGMA page_count") < pages / 4)
        store.outbox.close()
        let size = try FileManager.default.attributesOfItem(atPath: store.path)[.size] as? Int
        #expect(try #require(size) < pages / 4 * 8192)
    }

    @Test(arguments: [
        ("SELECT id FROM queue_1 WHERE expiresAtMs <= 1 ORDER BY expiresAtMs LIMIT 200", "queue_1_expiring"),
        (QueueRows.Query.retrying.sql(for: 1), "queue_1_waiting"),
        (QueueRows.Query.nextScheduled.sql(for: 1), "queue_1_waiting"),
        (QueueRows.Query.scheduled.sql(for: 1), "queue_1_waiting (waiting=? AND nextAttemptAtMs"),
        (QueueRows.Query.readyLanes.sql(for: 1), "lanesReady"),
        (QueueRows.Query.inLane.sql(for: 1), "queue_1_lane (lane=?)"),
        (QueueRows.Query.isBehindOthers.sql(for: 1), "queue_1_lane (lane=? AND id<?)"),
    ])
    func query_usesItsIndex_andSortsNothing(sql: String, index: String) throws {
        let store = try TestStore()
        _ = try store.register(PlainUpstream(laneRule: .separate))
        let plan = try store.outbox.pool.read { db in
            try Row.fetchAll(
                db, sql: "EXPLAIN QUERY PLAN " + sql,
                arguments: StatementArguments([Int](repeating: 1, count: sql.count { $0 == "?" }))
            ).map { $0["detail"] as String }
        }
        #expect(plan.count == 1, "\(plan)")
        #expect(plan[0].contains(index), "\(plan)")
    }
}

@Suite struct ReadingTests {
    @Test func pages_goThroughAllStates_inTheOrderOfAcceptance() throws {
        let store = try TestStore()
        let first = try store.register(PlainUpstream("first"))
        let second = try store.register(PlainUpstream("second"))
        var ids: [MessageID] = []
        for place in 0..<40 { ids.append(try store.append(to: place % 3 == 0 ? second : first, key: "k\(place % 2)")) }
        try store.deliver(store.claim(first, most: 10).messages, of: first)
        try store.fail(store.claim(second, most: 5).messages, of: second)
        func all(_ filter: MessageFilter) throws -> [MessageID] {
            var found: [MessageID] = []
            var cursor: MessageID?
            repeat {
                let page = try store.outbox.messages(filter, after: cursor, limit: 7)
                #expect(page.messages.count <= 7)
                found += page.messages.map(\.id)
                cursor = page.next
            } while cursor != nil
            return found
        }
        #expect(try all(MessageFilter()) == ids)
        #expect(try all(MessageFilter(upstream: second.name)) == ids.indices.filter { $0 % 3 == 0 }.map { ids[$0] })
        #expect(try all(MessageFilter(key: "k1")) == ids.indices.filter { $0 % 2 == 1 }.map { ids[$0] })
        #expect(try all(MessageFilter(state: .delivered)).count == 10)
        #expect(try all(MessageFilter(state: .failed)).count == 5)
        #expect(try all(MessageFilter(state: .queued)).count == 25)
    }

    @Test func attempts_areFound_byTheMessagesTheyCarried() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(6, to: queue)
        for members in [[ids[0], ids[2]], [ids[1]], [ids[2], ids[5]]] {
            let attempt = AttemptStart(batch: store.outbox.nextBatch(), startedAt: store.time.now, ids: members)
            try store.change { try $0.openAttempt(attempt, of: queue) }
        }
        #expect(try store.outbox.attempts(of: ids[2]).map(\.batch.rawValue) == [1, 3])
        #expect(try store.outbox.attempts(of: ids[1]).map(\.messages) == [1])
        #expect(try store.outbox.attempts(of: ids[3]).isEmpty)
    }
}
