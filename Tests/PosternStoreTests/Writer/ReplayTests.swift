import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// Payloads of delivered messages, and what replays make of them.
@Suite(.eachEngine) struct ReplayTests {
    private let store: TestStore
    private let queue: UpstreamQueue

    init() throws {
        store = try TestStore { $0.deliveredPayloadRetention = .seconds(100) }
        queue = try store.register()
    }

    private func text(_ id: MessageID) throws -> String? {
        try store.record(id)?.payload.map { String(decoding: $0, as: UTF8.self) }
    }

    /// Delivered in blocks and in rows, several at once and one alone.
    private func deliverSome() throws -> [MessageID] {
        var ids: [MessageID] = []
        for count in [50, 1, 7, 2] { ids += try store.append(count, to: queue, lane: .digest(Int64(count))) }
        try store.drain(queue, most: 55)
        return ids
    }

    private func replay(_ id: String = "r", to: UpstreamQueue? = nil) throws -> Replay {
        let request = Replay.Request(upstream: queue.target.name, to: (to ?? queue).target.name)
        let newest = MessageID(rawValue: Int64(store.outbox.ledger(of: queue.number).lastID))
        let replay = Replay(id: id, request, by: nil, newest: newest, at: store.time.now)
        return try store.threads.result { store.outbox.begin(replay, completion: $0) }
    }

    /// One step, as the gateway does it.
    @discardableResult private func step(
        _ replay: Replay, limit: Int = 10, to: UpstreamQueue? = nil
    ) throws -> Replay? {
        let target = (to ?? queue).target
        let page = try store.outbox.page(of: replay, after: replay.cursor, limit: limit, maxBytes: 1 << 20)
        var step = Replay.Step(from: replay.cursor, next: page.next)
        for (record, payload) in page.messages {
            switch payload {
            case .kept(let bytes):
                let message = NewMessage(
                    queue: target, kind: record.kind, key: record.key, acceptedAt: store.time.now, bytes: bytes)
                step.messages.append((record.id, message))
            case .missing: step.withoutPayload += 1
            case .damaged: step.refused.append(.init(record.id, "damaged"))
            }
        }
        let made = step
        return try store.threads.result { store.outbox.advance(replay.id, made, into: target, completion: $0) }?.replay
    }

    private func finish(_ replay: Replay, limit: Int = 10) throws -> Replay {
        var replay = replay
        while replay.isRunning { replay = try #require(try step(replay, limit: limit)) }
        return replay
    }

    private func copies() throws -> [(copy: MessageID, original: MessageID)] {
        try store.outbox.read { sql in
            try sql.all("SELECT id, original FROM replayed ORDER BY id") { ($0[0], $0[1]) }
        }
    }

    @Test func payloads_ofDeliveredMessages_areKept_forTheirTime() throws {
        let ids = try deliverSome()
        #expect(try text(ids[0]) == #"{"n":0}"# && text(ids[49]) == #"{"n":49}"#)
        #expect(try text(ids[50]) == #"{"n":0}"# && text(ids[59]) == #"{"n":1}"#)
        #expect(try ids.allSatisfy { try text($0) != nil })
        store.time.advance(by: .seconds(99))
        try store.runMaintenance()
        #expect(try text(ids[3]) != nil)
        store.time.advance(by: .seconds(2))
        try store.runMaintenance()
        #expect(try ids.allSatisfy { try text($0) == nil && store.state($0) == .delivered })
        #expect(try store.count("payloads_1") == 0)
        #expect(try store.isBalanced())
    }

    @Test func payloads_areNotKept_byDefault() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try store.append(10, to: queue)
        try store.drain(queue)
        #expect(try store.record(ids[0])?.payload == nil)
        #expect(try store.count("payloads_1") == 0)
    }

    @Test func payloads_areRemoved_onceTheyAreNoLongerKept() throws {
        _ = try deliverSome()
        store.options.deliveredPayloadRetention = .zero
        store.time.advance(by: .milliseconds(1))
        try store.reopen()
        try store.runMaintenance()
        #expect(try store.count("payloads_1") == 0)
    }

    @Test func purgedMessage_losesItsPayload_andItsNeighborsKeepTheirs() throws {
        let ids = try deliverSome()
        for id in [ids[3], ids[50]] {
            #expect(try store.threads.result { store.outbox.perform(.purge, on: [id], completion: $0) } == [id])
            #expect(try store.record(id) == nil)
            #expect(try store.count("payloads_1 WHERE \(id.rawValue) BETWEEN first AND last") == 0)
        }
        #expect(try text(ids[2]) == #"{"n":2}"# && text(ids[4]) == #"{"n":4}"#)
        #expect(try finish(replay()).done == 58)
    }

    @Test func replay_queuesEachMessageOnce_inTheOrderOfAcceptance() throws {
        let ids = try deliverSome()
        let ended = try finish(replay(), limit: 7)
        #expect(ended.done == 60 && ended.refused == 0 && ended.withoutPayload == 0)
        let copies = try copies()
        #expect(copies.map(\.original) == ids.sorted())
        for (copy, original) in copies {
            let record = try #require(try store.record(copy))
            #expect(record.state == .queued && record.replayOf == original)
            #expect(try record.payload == store.record(original)?.payload)
        }
        try store.drain(queue)
        #expect(try store.outbox.message(copies[0].copy)?.replayOf == ids.min())
        #expect(try store.isBalanced())
        store.time.advance(by: .seconds(1))
        #expect(try finish(replay("other")).done == 60, "copies are not replayed")
    }

    @Test func step_thatIsRepeated_storesNothingAgain() throws {
        _ = try deliverSome()
        let begun = try replay()
        let next = try #require(try step(begun))
        #expect(next.done == 10)
        #expect(try step(begun) == next, "the step of a caller that does not know of the first")
        #expect(try copies().count == 10)
        try store.reopen()
        let queue = try store.register()
        #expect(queue.number == self.queue.number)
        #expect(try store.outbox.replay("r") == next)
        #expect(try replay() == next, "a replay with a known id is that one")
    }

    @Test func stoppedReplay_queuesNothingMore() throws {
        _ = try deliverSome()
        let begun = try step(replay())
        let stopped = try store.threads.result { store.outbox.stopReplay("r", completion: $0) }
        #expect(stopped?.isStopped == true && stopped?.done == 10)
        #expect(try step(#require(begun))?.done == 10)
        #expect(try copies().count == 10)
    }

    @Test func replay_isOnlyAboutWhatMatches() throws {
        let early = try store.append(5, to: queue)
        try store.drain(queue)
        store.time.advance(by: .seconds(10))
        let middle = try store.append("{}", to: queue, key: "k")
        try store.drain(queue)
        let other = try store.append(6, to: queue)
        try store.drain(queue)
        store.time.advance(by: .seconds(10))
        var request = Replay.Request(upstream: queue.target.name, to: queue.target.name)
        func ids(_ request: Replay.Request) throws -> [MessageID] {
            let replay = Replay(
                id: "x", request, by: nil, newest: other[5], at: store.time.now)
            return try store.outbox.page(of: replay, after: nil, limit: 100, maxBytes: .max).messages.map(\.record.id)
        }
        request.settledAfterMs = (store.time.now - .seconds(10)).milliseconds
        #expect(try ids(request) == [middle] + other)
        request.settledBeforeMs = request.settledAfterMs
        #expect(try ids(request) == [])
        request.settledAfterMs = nil
        #expect(try ids(request) == early)
        request.settledBeforeMs = nil
        request.key = "k"
        #expect(try ids(request) == [middle])
        (request.key, request.kind) = (nil, "unknown")
        #expect(try ids(request) == [])
    }

    @Test func page_endsBeforeTooManyBytes_andGoesOnThere() throws {
        let ids = try deliverSome()
        let replay = try replay()
        let page = try store.outbox.page(of: replay, after: nil, limit: 100, maxBytes: 50)
        #expect(page.messages.map(\.record.id) == Array(ids.sorted()[..<7]) && page.next == ids[6])
        let rest = try store.outbox.page(of: replay, after: page.next, limit: 100, maxBytes: 1 << 20)
        #expect(rest.messages.count == 53 && rest.next == nil)
    }

    @Test func missingAndDamagedPayloads_areCounted() throws {
        let ids = try deliverSome()
        try store.execute("DELETE FROM payloads_1 WHERE first = \(ids[50].rawValue)")
        try store.execute("UPDATE payloads_1 SET checksum = 1 WHERE first = \(ids[59].rawValue)")
        let ended = try finish(replay())
        #expect(ended.done == 58 && ended.withoutPayload == 1 && ended.refused == 1)
        #expect(ended.skipped == [.init(ids[59], "damaged")])
    }

    @Test func fullQueue_makesItWait_withoutEvictions() throws {
        var cap = QueueCap()
        (cap.maxMessages, cap.whenFull) = (20, .dropOldest)
        _ = try deliverSome()
        store.outbox.setCap(cap, of: queue.target)
        let begun = try replay()
        let next = try #require(try step(begun))
        #expect(next.done == 10)
        #expect(try step(next) == nil, "20 messages would take the tenth that is left for callers")
        #expect(try step(next, limit: 8)?.done == 18)
        #expect(store.outbox.ledger(of: queue.number).dropped == 0)
    }

    @Test func queuedMessages_ofAReplay_areCounted_inRowsAndBlocks() throws {
        _ = try deliverSome()
        let next = try #require(try step(replay(), limit: 20))
        func queued(_ most: Int) throws -> Int {
            try store.outbox.queued(of: "r", to: queue.number, atMost: most)
        }
        #expect(try queued(100) == 20 && queued(5) == 5)
        try store.deliver(store.claim(queue, most: 15).messages, of: queue)
        #expect(try queued(100) == 5)
        _ = try step(next, limit: 3)
        #expect(try queued(100) == 8)
    }

    @Test func copies_areForgotten_withTheirMessages_andTheReplayAfterThem() throws {
        store.options.deliveredRetention = .seconds(100)
        store.options.failedRetention = .seconds(200)
        try store.reopen()
        let queue = try store.register()
        try store.append(20, to: queue)
        try store.drain(queue)
        let begun = try replay()
        _ = try finish(begun)
        store.time.advance(by: .seconds(150))
        let maintenance = Maintenance(outbox: store.outbox)
        try store.runMaintenance(maintenance)
        #expect(try copies().count == 20, "they are queued")
        try store.drain(queue)
        store.time.advance(by: .seconds(150))
        try store.runMaintenance(maintenance)
        store.time.advance(by: .seconds(100))
        try store.runMaintenance(maintenance)
        #expect(try copies().isEmpty)
        #expect(try store.outbox.replay("r") == nil)
        #expect(try store.isBalanced())
    }

    @Test func fullDisk_takesKeptPayloads_first() throws {
        let ids = try deliverSome()
        _ = store.outbox.health.becomes(.full, because: .full(detail: "as the test wants it"))
        try store.runMaintenance()
        #expect(try store.count("payloads_1") == 0)
        #expect(try ids.allSatisfy { try store.state($0) == .delivered })
    }

    @Test func storeOfAFormerRelease_isRead_andOpened() throws {
        guard !store.options.engine.isPostgres else { return }
        let ids = try deliverSome()
        try store.execute(
            "DROP TABLE payloads_1; DROP TABLE replays; DROP TABLE replayed; DELETE FROM grdb_migrations WHERE identifier = '9 replay'"
        )
        store.outbox.close()
        if store.options.engine == .sqlite {
            let view = try StoreView(path: store.path)
            #expect(try view.message(ids[0], payload: true)?.state == .delivered)
        }
        try store.reopen()
        let queue = try store.register()
        let id = try store.append(to: queue)
        try store.drain(queue)
        #expect(try text(id) == "{}")
    }
}
