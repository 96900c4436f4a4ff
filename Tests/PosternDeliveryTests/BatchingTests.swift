import PosternCore
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

@Suite(.timeLimit(.minutes(10))) struct BatchingTests {
    @Test func batch_goesAtOnce_whenItIsFull() throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.batchMaxMessages = 3 })
        try bench.accept(7)
        try bench.turn()
        #expect(bench.sizes.prefix(2) == [3, 3])
        bench.time.advance(by: .milliseconds(50))
        try bench.turn()
        #expect(bench.sent == [#"{"n":1},{"n":2},{"n":3}"#, #"{"n":4},{"n":5},{"n":6}"#, #"{"n":7}"#])
    }

    @Test func batch_isFull_atItsBytes() throws {
        // Seven bytes each, and a comma between two: 23 for three.
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.batchMaxBytes = 24 })
        try bench.accept(7)
        try bench.run(for: .seconds(1))
        #expect(bench.sizes == [3, 3, 1])
    }

    @Test func message_goesAlone_whenLargerThanABatch() throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.batchMaxBytes = 24 })
        let large = "{\"n\":\"\(String(repeating: "x", count: 100))\"}"
        try bench.accept([#"{"n":1}"#, large, #"{"n":2}"#])
        try bench.run(for: .seconds(1))
        #expect(bench.sent == [#"{"n":1}"#, large, #"{"n":2}"#])
    }

    @Test func messages_collect_untilTheWaitIsOver() throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.batchMaxWait = .seconds(3) })
        try bench.accept(1)
        #expect(try bench.turn() == .seconds(3))
        bench.time.advance(by: .seconds(2))
        try bench.accept(1)
        #expect(try bench.turn() == .seconds(1))
        #expect(bench.sent.isEmpty)
        bench.time.advance(by: .seconds(1))
        try bench.turn()
        #expect(bench.sizes == [2])
    }

    @Test func wait_beginsAnew_withTheNextMessage() throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.batchMaxWait = .seconds(3) })
        bench.transport.answerAll { _ in .status(200) }
        try bench.accept(1)
        try bench.run(for: .seconds(10))
        #expect(bench.sizes == [1])
        try bench.accept(1)
        #expect(try bench.turn() == .seconds(3))
    }

    @Test func flush_endsTheWait() throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.batchMaxWait = .seconds(3) })
        try bench.accept(2)
        try bench.turn()
        bench.worker.flush()
        try bench.turn()
        #expect(bench.sizes == [2])
        try bench.accept(1)
        #expect(try bench.turn() == .seconds(3))
    }

    @Test func requests_goSideBySide_upToTheLimit() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (3, 1) })
        let ids = try bench.accept(5)
        try bench.turn()
        #expect(bench.open.count == 3)
        #expect(bench.worker.snapshot.inFlight == 3)
        try bench.answer(.status(200))
        #expect(bench.open.count == 3)
        #expect(try bench.state(ids[0]) == .delivered)
        for _ in 1...4 { try bench.answer(.status(200)) }
        #expect(bench.ledger.delivered == 5)
        #expect(bench.worker.snapshot.inFlight == 0)
    }

    @Test func scheduledMessage_goesAtItsTime() throws {
        let bench = try DeliveryBench()
        try bench.accept([#"{"n":1}"#], notBefore: bench.time.now + .seconds(60))
        try bench.run(for: .milliseconds(59_990))
        #expect(bench.sent.isEmpty)
        try bench.run(for: .milliseconds(20))
        #expect(bench.sizes == [1])
    }

    @Test func oldMessages_expireUnsent_andTheOthersGo() throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.expireAfter = .seconds(60) })
        let old = try bench.accept(3)
        bench.time.advance(by: .seconds(61))
        let young = try bench.accept(1)
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(1))
        #expect(bench.sizes == [1])
        #expect(try old.map(bench.state) == [.expired, .expired, .expired])
        #expect(try bench.state(young[0]) == .delivered)
        #expect(try bench.outbox.audit().isBalanced)
    }

    @Test func body_isCompressed_whenTheUpstreamWantsIt() throws {
        let bench = try DeliveryBench(CompressedUpstream())
        try bench.accept(1)
        try bench.run(for: .seconds(1))
        let request = try #require(bench.transport.requests.first)
        #expect(request.headers.contains { $0.name == "Content-Encoding" && $0.value == "gzip" })
        #expect(request.body.starts(with: [0x1f, 0x8b]))
    }
}
