import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

@Suite(.timeLimit(.minutes(10))) struct BatchingTests {
    @Test func batch_isSentAtOnce_whenItIsFull() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxMessages = 3 })
        try harness.accept(7)
        try harness.turn()
        #expect(harness.sizes.prefix(2) == [3, 3])
        harness.time.advance(by: .milliseconds(50))
        try harness.turn()
        #expect(harness.sent == [#"{"n":1},{"n":2},{"n":3}"#, #"{"n":4},{"n":5},{"n":6}"#, #"{"n":7}"#])
    }

    @Test func batch_isFull_atItsBytes() throws {
        // Seven bytes each, and a comma between two: 23 for three.
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxBytes = 24 })
        try harness.accept(7)
        try harness.run(for: .seconds(1))
        #expect(harness.sizes == [3, 3, 1])
    }

    @Test func message_isSentAlone_whenLargerThanABatch() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxBytes = 24 })
        let large = "{\"n\":\"\(String(repeating: "x", count: 100))\"}"
        try harness.accept([#"{"n":1}"#, large, #"{"n":2}"#])
        try harness.run(for: .seconds(1))
        #expect(harness.sent == [#"{"n":1}"#, large, #"{"n":2}"#])
    }

    @Test func messages_collect_untilTheWaitIsOver() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxWait = .seconds(3) })
        try harness.accept(1)
        #expect(try harness.turn() == .seconds(3))
        harness.time.advance(by: .seconds(2))
        try harness.accept(1)
        #expect(try harness.turn() == .seconds(1))
        #expect(harness.sent.isEmpty)
        harness.time.advance(by: .seconds(1))
        try harness.turn()
        #expect(harness.sizes == [2])
    }

    @Test func collectionTime_beginsAgain_withTheNextMessage() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxWait = .seconds(3) })
        harness.transport.answerAll { _ in .status(200) }
        try harness.accept(1)
        try harness.run(for: .seconds(10))
        #expect(harness.sizes == [1])
        try harness.accept(1)
        #expect(try harness.turn() == .seconds(3))
    }

    @Test func flush_endsTheWait() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxWait = .seconds(3) })
        try harness.accept(2)
        try harness.turn()
        harness.worker.flush()
        try harness.turn()
        #expect(harness.sizes == [2])
        try harness.accept(1)
        #expect(try harness.turn() == .seconds(3))
    }

    @Test func requests_goSideBySide_upToTheLimit() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (3, 1) })
        let ids = try harness.accept(5)
        try harness.turn()
        #expect(harness.open.count == 3)
        #expect(harness.worker.snapshot.inFlight == 3)
        try harness.answer(.status(200))
        #expect(harness.open.count == 3)
        #expect(try harness.state(ids[0]) == .delivered)
        for _ in 1...4 { try harness.answer(.status(200)) }
        #expect(harness.ledger.delivered == 5)
        #expect(harness.worker.snapshot.inFlight == 0)
    }

    @Test func scheduledMessage_goesAtItsTime() throws {
        let harness = try DeliveryHarness()
        try harness.accept([#"{"n":1}"#], notBefore: harness.time.now + .seconds(60))
        try harness.run(for: .milliseconds(59_990))
        #expect(harness.sent.isEmpty)
        try harness.run(for: .milliseconds(20))
        #expect(harness.sizes == [1])
    }

    @Test func oldMessages_expireUnsent_andTheOthersGo() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.expireAfter = .seconds(60) })
        let old = try harness.accept(3)
        harness.time.advance(by: .seconds(61))
        let young = try harness.accept(1)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(1))
        #expect(harness.sizes == [1])
        #expect(try old.map(harness.state) == [.expired, .expired, .expired])
        #expect(try harness.state(young[0]) == .delivered)
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func body_isCompressed_whenTheUpstreamWantsIt() throws {
        let harness = try DeliveryHarness(CompressedUpstream())
        try harness.accept(1)
        try harness.run(for: .seconds(1))
        let request = try #require(harness.transport.requests.first)
        #expect(request.headers.contains { $0.name == "Content-Encoding" && $0.value == "gzip" })
        #expect(request.body.starts(with: [0x1f, 0x8b]))
    }
}

/// An upstream whose requests are compressed.
private struct CompressedUpstream: PlainAtHeart {
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        guard case .send(var request, let count) = plain.plan(for: messages, in: context) else {
            preconditionFailure("a plain upstream always sends")
        }
        request.gzip = true
        return .send(request, count: count)
    }
}
