import PosternCore
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

/// Messages that grow too old expire, whether or not their worker may send.
@Suite(.timeLimit(.minutes(1))) struct AgeTests {
    private static let settings = DeliverySettings(
        maxInFlight: 1, batchMaxMessages: 1, batchMaxWait: .zero, expireAfter: .seconds(3))

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

    @Test func oldMessages_expire_whileTheUpstreamIsPaused() throws {
        let bench = try DeliveryBench(settings: Self.settings)
        bench.worker.pause()
        let ids = try bench.accept(5)
        try bench.run(for: .seconds(4))
        #expect(try eventually { try ids.allSatisfy { try bench.state($0) == .expired } })
        #expect(bench.sent.isEmpty)
    }
}
