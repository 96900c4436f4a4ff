import CSQLite
import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// About SQLite: what the queries read, and what maintenance does to the file.
@Suite struct SQLiteQueryTests {
    /// The queries that workers and maintenance run repeatedly, word for word.
    @Test func queries_useTheirIndexes_andSortNothing() throws {
        let store = try TestStore()
        _ = try store.register(PlainUpstream(laneRule: .perLane))
        let now = Timestamp(milliseconds: 1)
        let asked: [(index: String, ask: (QueueRows) throws -> Void)] = [
            ("queue_1_waiting", { _ = try $0.leftovers() }),
            ("queue_1_waiting", { _ = try $0.nextScheduled(after: now) }),
            (
                "queue_1_waiting (waiting=? AND nextAttemptAtMs",
                { _ = try $0.scheduled(after: .beginning, until: now, limit: 1) }
            ),
            ("lanesReady", { try $0.forEachReadyLane { _ in true } }),
            ("queue_1_lane (lane=? AND waiting=? AND nextAttemptAtMs<?", { _ = try $0.nextScheduled(inLane: 1) }),
        ]
        try store.outbox.readers.readSnapshot { sql in
            for (index, ask) in asked {
                let texts = try trace(sql) {
                    try ask(QueueRows(sql: sql, kinds: store.outbox.kinds, number: UpstreamNumber(rawValue: 1)))
                }
                #expect(!texts.isEmpty)
                for text in texts {
                    let plan: [String] = try sql.column(3, of: "EXPLAIN QUERY PLAN " + text)
                    #expect(plan.count == 1, "\(text): \(plan)")
                    #expect(plan.first?.contains(index) == true, "\(text): \(plan)")
                }
            }
        }
    }

    /// The overview of the console asks for this every two seconds: the rest of it is in memory.
    @Test func oldestMessage_costsAsMuchToFind_howeverManyAreQueued() throws {
        let store = try TestStore()
        let queue = try store.register()
        func steps() throws -> Int {
            let now = store.time.now
            return try store.outbox.readers.readSnapshot { sql in
                let reader = StoreReader(sql: sql, kinds: store.outbox.kinds, names: [:])
                return try countSteps(on: sql) { _ = try reader.oldestQueued(of: queue.number, at: now) }
            }
        }
        try store.append(5, to: queue)
        let few = try steps()
        try store.append(5000, to: queue)
        let many = try steps()
        #expect(many == few)
    }

    @Test func requests_areListedByTheirKey_withoutSorting() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.outbox.readers.readSnapshot { sql in
            let reader = StoreReader(sql: sql, kinds: store.outbox.kinds, names: [:])
            for text in try trace(sql, { _ = try reader.batches(of: queue.number, before: nil, limit: 1) }) {
                let plan: [String] = try sql.column(3, of: "EXPLAIN QUERY PLAN " + text)
                #expect(plan == ["SEARCH attempts USING INTEGER PRIMARY KEY (rowid<?)"])
            }
        }
    }

    /// A lane may have tens of thousands of messages that wait for their time. To claim, to settle, and to show one
    /// that is due takes as many steps as with few.
    @Test func scheduledMessages_costTheirLaneNothing_untilTheyAreDue() throws {
        let few = try stepsOfALane(scheduled: 3)
        let many = try stepsOfALane(scheduled: 5000)
        #expect(few.count == 7)
        #expect(many == few)
    }

    /// How many steps each query about a lane takes in which one message is due, and `count` others before and after it
    /// are not.
    private func stepsOfALane(scheduled count: Int) throws -> [Int] {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let number = queue.number
        let lane = Lane.named("a")
        let later = store.time.now + .seconds(3600)
        func schedule() throws {
            try store.append((0..<count).map { store.message(to: queue, lane: lane, notBefore: later + .seconds($0)) })
        }
        try schedule()
        let due = try store.append(to: queue, lane: lane, notBefore: store.time.now + .seconds(1))
        try schedule()
        store.time.advance(by: .seconds(1))
        let now = store.time.now
        let laneNumber = try #require(try store.record(due)).lane
        let steps = SharedValue<[Int]>([])
        let found = SharedValue<[MessageID]>([])
        try store.transact { transaction in
            let rows = QueueRows(sql: transaction.sql, kinds: transaction.outbox.kinds, number: number)
            let asked: [() throws -> Void] = [
                { _ = try rows.scheduled(inLane: laneNumber, until: now, limit: 1000) },
                {
                    try rows.forEach(inLane: laneNumber, with: [due], through: MessageID(rawValue: .max), expecting: 1)
                    { row in
                        found.set(found.value + [row.id])
                        return true
                    }
                },
                { _ = try rows.begunMessage(inLane: laneNumber) },
                { _ = try rows.isBehindOthers(due, lane: laneNumber, now: now) },
                { _ = try rows.nextScheduled(inLane: laneNumber) },
                { _ = try rows.nextScheduled(inLane: laneNumber, through: due, by: now + .seconds(60)) },
                {
                    transaction.touch(laneNumber, of: queue.target, isServed: true)
                    try transaction.settleLanes(of: transaction.writeStates[number])
                },
            ]
            steps.set(try asked.map { try countSteps(on: transaction.sql, $0) })
        }
        #expect(found.value == [due])
        return steps.value
    }

    /// Those that are due are read once, not once for each that is sent.
    @Test func dueMessages_areNotReadForEachClaim() throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        let due = store.time.now + .seconds(1)
        try store.append((0..<5000).map { _ in store.message(to: queue, lane: .named("a"), notBefore: due) })
        store.time.advance(by: .seconds(1))
        let now = store.time.now
        let steps = try store.outbox.readers.readSnapshot { sql in
            let rows = QueueRows(sql: sql, kinds: store.outbox.kinds, number: queue.number)
            var claims = PerLaneClaims()
            return try (0..<3).map { _ in
                var scan = ClaimScan(ClaimRequest(limits: BatchLimits(maxMessages: 1, maxBytes: 1 << 20), now: now))
                let steps = try countSteps(on: sql) { try claims.look(&scan, from: rows) { _ in false } }
                #expect(scan.count == 1)
                return steps
            }
        }
        #expect(steps[0] > 5000)
        #expect(steps[1...].allSatisfy { $0 < 500 }, "\(steps)")
    }

    /// An upstream that limits its lanes asks for each message how many there are.
    @Test func lane_isCountedOnce_whateverHappensToIt() throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        // Equal as texts, not as bytes.
        let (name, other) = ("\u{E9}", "e\u{301}")
        let ids = try store.append(500, to: queue, lane: .named(name))
        try store.append(2, to: queue, lane: .named(other))
        let more = (0..<3).map { _ in store.message(to: queue, lane: .named(name)) }
        let now = store.time.now
        let counts = SharedValue<[Int]>([])
        let steps = SharedValue<[Int]>([])
        try store.transact { transaction in
            let state = transaction.state(of: queue.target)
            func ask(_ name: String, atMost most: Int = 4000) throws {
                let taken = try countSteps(on: transaction.sql) {
                    counts.set(counts.value + [try state.queued(inLane: name, atMost: most)])
                }
                steps.set(steps.value + [taken])
            }
            try ask(other, atMost: 1)
            try ask(other)
            try ask(name)
            for message in more {
                _ = try transaction.append([message])
                try ask(name)
            }
            try ask(name, atMost: 100)
            try transaction.inSavepoint {
                _ = try transaction.append([more[0]])
                try ask(name)
                return false
            }
            try ask(name)
            _ = try transaction.cancel(ids[0], in: queue.target, at: now)
            try ask(name)
            try ask(other)
        }
        #expect(counts.value == [1, 2, 500, 501, 502, 503, 100, 504, 503, 502, 2])
        #expect(steps.value[2] > 500)
        #expect(steps.value[3...].allSatisfy { $0 == 0 })
        // Not in later transactions, either.
        try store.deliver(try store.claim(queue).messages, of: queue)
        try store.transact { transaction in
            let state = transaction.state(of: queue.target)
            let taken = try countSteps(on: transaction.sql) {
                counts.set(try [name, other].map { try state.queued(inLane: $0, atMost: 4000) })
            }
            steps.set([taken])
        }
        #expect(counts.value == [2, 2] && steps.value == [0])
        #expect(throws: StoreError.self) {
            try store.transact { transaction in
                _ = try transaction.append(more)
                throw StoreError.failed(detail: "after all")
            }
        }
        try store.transact { counts.set([try $0.state(of: queue.target).queued(inLane: name, atMost: 4000)]) }
        #expect(counts.value == [2])
    }

    @Test func olderStore_getsTheIndexByLane_withTimes() throws {
        let store = try TestStore()
        _ = try store.register(PlainUpstream(laneRule: .perLane))
        try store.execute(
            """
            DROP INDEX queue_1_lane;
            CREATE INDEX queue_1_lane ON queue_1 (lane, id);
            DELETE FROM grdb_migrations WHERE identifier = '3 lanes'
            """)
        try store.reopen()
        let columns = try store.outbox.readers.readSnapshot { sql in
            try sql.all("PRAGMA index_info(queue_1_lane)") { $0[2] as String }
        }
        #expect(columns == ["lane", "waiting", "nextAttemptAtMs"])
    }

    @Test func expiry_readsNoMoreThanItEnds() throws {
        let store = try TestStore()
        _ = try store.register()
        let plans = try ["expiresAtMs <= 1 ORDER BY expiresAtMs", "1 ORDER BY id"].map { condition in
            try store.outbox.readers.readSnapshot { sql in
                let text = "EXPLAIN QUERY PLAN SELECT id, acceptedAtMs FROM queue_1 WHERE \(condition)"
                return try sql.column(3, of: text) as [String]
            }
        }
        // The second stops at the first row that is young enough.
        #expect(plans == [["SEARCH queue_1 USING INDEX queue_1_expiring (expiresAtMs<?)"], ["SCAN queue_1"]])
    }

    @Test func manyLanes_costNoMemory_andEachClaimLooksAtFew() throws {
        let store = try TestStore()
        let queue = try store.register(PlainUpstream(laneRule: .perLane))
        for part in 0..<50 {
            try store.append((0..<1000).map { store.message(to: queue, lane: .named("visitor-\(part * 1000 + $0)")) })
        }
        #expect(try store.count("lanes") == 50_000)
        // Under way, waiting and idle lanes all in between.
        var claims: [Claim] = []
        for _ in 0..<100 { claims.append(try store.claim(queue)) }
        for claim in claims[50...] {
            try store.sendLater(claim.messages, of: queue, at: store.time.now + .seconds(60))
        }
        let steps = try store.outbox.readers.readSnapshot { sql in
            let rows = QueueRows(sql: sql, kinds: store.outbox.kinds, number: queue.number)
            var looked = 0
            try rows.forEachReadyLane { _ in
                looked += 1
                return looked < 60
            }
            return looked
        }
        #expect(steps == 60)
        #expect(queue.countInMemory == 50)
        for claim in claims[..<50] { try store.deliver(claim.messages, of: queue) }
        #expect(queue.countInMemory == 0)
    }

    @Test func turn_doesALittle_andSaysThatThereIsMore() throws {
        let store = try TestStore {
            $0.deliveredRetention = .seconds(100)
            // Receipts of blocks are removed in fewer turns.
            $0.storesBlocks = false
        }
        let queue = try store.register()
        try store.append(3000, to: queue)
        try store.drain(queue)
        store.time.advance(by: .seconds(101))
        let maintenance = Maintenance(outbox: store.outbox)
        let hasMore = SharedValue(false)
        try store.transact { hasMore.set(try maintenance.run(in: $0)) }
        #expect(hasMore.value)
        #expect(try store.kept(.delivered) == 3000 - Maintenance.rowsPerTurn)
    }

    @Test func file_shrinks_afterAFloodIsDeliveredAndPurged() throws {
        let store = try TestStore { $0.deliveredRetention = .seconds(10) }
        let queue = try store.register()
        let text = String(repeating: "x", count: 2000)
        for _ in 0..<20 { try store.append((0..<500).map { _ in store.message(text, to: queue) }) }
        let pages = try store.integer("PRAGMA page_count")
        try store.drain(queue)
        store.time.advance(by: .seconds(11))
        try store.runMaintenance()
        #expect(try store.integer("PRAGMA page_count") < pages / 4)
        store.outbox.close()
        let size = try FileManager.default.attributesOfItem(atPath: store.path)[.size] as? Int
        #expect(try #require(size) < pages / 4 * 8192)
    }
}

/// Runs `body`. Returns how often SQLite went from one row to another meanwhile, or began a statement.
private func countSteps(on sql: SQL, _ body: () throws -> Void) rethrows -> Int {
    let count = UnsafeMutablePointer<Int>.allocate(capacity: 1)
    count.initialize(to: 0)
    defer { count.deallocate() }
    let connection = sql.connection.handle
    sqlite3_progress_handler(
        connection, 1,
        { count in
            count?.assumingMemoryBound(to: Int.self).pointee += 1
            return 0
        }, count)
    defer { sqlite3_progress_handler(connection, 0, nil, nil) }
    try body()
    return count.pointee
}

/// Runs `body`. Returns the text of each statement that began meanwhile.
private func trace(_ sql: SQL, _ body: () throws -> Void) throws -> [String] {
    let texts = UnsafeMutablePointer<[String]>.allocate(capacity: 1)
    texts.initialize(to: [])
    defer {
        texts.deinitialize(count: 1)
        texts.deallocate()
    }
    let connection = sql.connection.handle
    sqlite3_trace_v2(
        connection, UInt32(SQLITE_TRACE_STMT),
        { _, context, statement, _ in
            let text = sqlite3_sql(statement.map { OpaquePointer($0) }).map { String(cString: $0) }
            context?.assumingMemoryBound(to: [String].self).pointee.append(text ?? "")
            return 0
        }, texts)
    defer { sqlite3_trace_v2(connection, 0, nil, nil) }
    try body()
    return texts.pointee
}
