import PosternCore
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

/// Messages that grow too old expire, whether or not their worker may send.
@Suite(.timeLimit(.minutes(10))) struct AgeTests {
    private static let settings = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait, $0.expireAfter) = (1, 1, .zero, .seconds(3))
    }

    @Test func oldMessages_expire_whileTheCircuitIsOpen() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        harness.transport.answerAll { _ in .status(429, headers: [("Retry-After", "60")]) }
        let ids = try harness.accept(5)
        try harness.run(for: .seconds(2))
        #expect(harness.worker.snapshot.circuit != .closed)
        #expect(try ids.allSatisfy { try harness.state($0) == .queued })
        try harness.run(for: .seconds(2))
        #expect(try eventually { try ids.allSatisfy { try harness.state($0) == .expired } })
        #expect(try harness.outbox.audit().isBalanced)
    }

    /// An operator who retries a dead letter of last week has not asked for its end.
    @Test func age_countsFromTheRetry_ofADeadLetter() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        harness.transport.answerAll { _ in .status(410) }
        let old = try harness.accept(1)[0]
        try harness.run(for: .seconds(1))
        #expect(try harness.state(old) == .failed)
        harness.time.advance(by: .seconds(3600))
        harness.worker.pause()
        let young = try harness.accept(1)[0]
        try harness.run(for: .seconds(2))
        try harness.requeue(old)
        try harness.run(for: .seconds(2))
        #expect(try eventually { try harness.state(young) == .expired })
        #expect(try harness.state(old) == .queued)
        try harness.run(for: .seconds(2))
        #expect(try eventually { try harness.state(old) == .expired })
        #expect(try harness.outbox.audit().isBalanced)
    }

    /// The worker does not expire it before then, either, and sends it.
    @Test func retriedDeadLetter_isSent_howeverOldItIs() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        harness.transport.answerAll { _ in .status(410) }
        let old = try harness.accept(1)[0]
        try harness.run(for: .seconds(1))
        harness.time.advance(by: .seconds(3600))
        harness.transport.answerAll { _ in .status(200) }
        try harness.requeue(old)
        try harness.run(for: .seconds(1))
        #expect(try harness.state(old) == .delivered)
    }

    @Test func oldMessages_expire_whileTheUpstreamIsPaused() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        harness.worker.pause()
        let ids = try harness.accept(5)
        try harness.run(for: .seconds(4))
        #expect(try eventually { try ids.allSatisfy { try harness.state($0) == .expired } })
        #expect(harness.sent.isEmpty)
    }
}
