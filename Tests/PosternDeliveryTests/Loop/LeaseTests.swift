import Logging
import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternDelivery
@testable import PosternStore

/// A worker whose gateway shares the store with others, and was stopped for longer than its lease.
@Suite(.timeLimit(.minutes(10))) struct LeaseTests {
    private let engine: @Sendable (String) -> StoreEngineKind
    private static let settings = DeliverySettings.with { $0.batchMaxWait = .zero }

    init() throws {
        let server = try PostgresServer.shared()
        let schema = server.schema()
        engine = { node in
            var options = PostgresOptions(url: server.url)
            // No step that is to happen within a lease takes as long as this one.
            (options.schema, options.node, options.leaseSeconds) = (schema, node, 3)
            options.acceptsUnsafeServer = true
            return .postgres(options)
        }
    }

    /// A harness whose worker has stored that it sends a message, and is to send it in its next turn.
    private func claimed() throws -> DeliveryHarness {
        let harness = try DeliveryHarness(settings: Self.settings, engine: engine("a"))
        harness.threads.turn("postern-lease")
        try harness.accept(1)
        _ = harness.worker.turn()
        harness.commit()
        try #require(harness.outbox.mayStillSend)
        #expect(try harness.outbox.latestAttempt() != nil)
        return harness
    }

    @Test func requestThatWaitedLongerThanTheLease_isSentOnlyAfterTheNextBeat() throws {
        let harness = try claimed()
        #expect(eventually { !harness.outbox.mayStillSend })
        try harness.turn()
        #expect(harness.transport.requests.isEmpty)
        #expect(harness.ledger.queued == 1)
        try harness.run(for: .seconds(5))
        #expect(harness.sent.count == 1)
        #expect(harness.logged("a request was not sent") == 1)
        #expect(harness.ledger.ambiguousSends == 0)
    }

    @Test func requestThatWaitedLongerThanTheLease_isNeverSent_ifAnotherGatewayHasTakenOver() throws {
        let harness = try claimed()
        let options = OutboxOptions.with { [engine] in $0.engine = engine("b") }
        let other = try Outbox(
            options, time: harness.time, threads: DedicatedThreads(), metrics: harness.metrics,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        defer { other.close() }
        _ = harness.worker.turn()
        #expect(harness.transport.requests.isEmpty)
        try harness.run(for: .seconds(10))
        #expect(harness.outbox.failure == .ownershipLost && harness.transport.requests.isEmpty)
        let queue = try other.adopt(other.register(PlainUpstream(), type: "plain", cap: QueueCap()))
        #expect(other.ledger(of: queue.number).queued == 1)
    }

    /// A request for a token, too, is one that only the owner makes.
    @Test func nothingIsClaimed_andNoTokenFetched_whileTheLeaseIsOver() throws {
        let harness = try DeliveryHarness(
            PlainUpstream(tokenSource: PlainTokens()), settings: Self.settings, engine: engine("a"))
        try harness.accept(1)
        #expect(eventually { !harness.outbox.mayStillSend })
        for _ in 0..<5 { _ = harness.worker.turn() }
        #expect(harness.transport.requests.isEmpty)
        #expect(harness.logged("nothing is sent") == 1)
        try harness.run(for: .seconds(5))
        #expect(harness.tokenRequests.count == 1)
    }
}
