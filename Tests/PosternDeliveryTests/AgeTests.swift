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
        let bench = try DeliveryBench(settings: Self.settings)
        bench.transport.answerAll { _ in .status(429, headers: [("Retry-After", "60")]) }
        let ids = try bench.accept(5)
        try bench.run(for: .seconds(2))
        #expect(bench.worker.snapshot.circuit != .closed)
        #expect(try ids.allSatisfy { try bench.state($0) == .queued })
        try bench.run(for: .seconds(2))
        #expect(try eventually { try ids.allSatisfy { try bench.state($0) == .expired } })
        #expect(try bench.outbox.audit().isBalanced)
    }

    /// An operator who retries a dead letter of last week has not asked for its end.
    @Test func age_countsFromTheRetry_ofADeadLetter() throws {
        let bench = try DeliveryBench(settings: Self.settings)
        bench.transport.answerAll { _ in .status(410) }
        let old = try bench.accept(1)[0]
        try bench.run(for: .seconds(1))
        #expect(try bench.state(old) == .failed)
        bench.time.advance(by: .seconds(3600))
        bench.worker.pause()
        let young = try bench.accept(1)[0]
        try bench.run(for: .seconds(2))
        try bench.requeue(old)
        try bench.run(for: .seconds(2))
        #expect(try eventually { try bench.state(young) == .expired })
        #expect(try bench.state(old) == .queued)
        try bench.run(for: .seconds(2))
        #expect(try eventually { try bench.state(old) == .expired })
        #expect(try bench.outbox.audit().isBalanced)
    }

    /// The worker, too, leaves it alone until then, and sends it.
    @Test func retriedDeadLetter_isSent_howeverOldItIs() throws {
        let bench = try DeliveryBench(settings: Self.settings)
        bench.transport.answerAll { _ in .status(410) }
        let old = try bench.accept(1)[0]
        try bench.run(for: .seconds(1))
        bench.time.advance(by: .seconds(3600))
        bench.transport.answerAll { _ in .status(200) }
        try bench.requeue(old)
        try bench.run(for: .seconds(1))
        #expect(try bench.state(old) == .delivered)
    }

    @Test func oldMessages_expire_whileTheUpstreamIsPaused() throws {
        let bench = try DeliveryBench(settings: Self.settings)
        bench.worker.pause()
        let ids = try bench.accept(5)
        try bench.run(for: .seconds(4))
        #expect(try eventually { try ids.allSatisfy { try bench.state($0) == .expired } })
        #expect(bench.sent.isEmpty)
    }
}
