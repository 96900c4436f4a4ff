import Logging
import PosternCore
import PosternMetrics
@testable import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternDelivery

/// An upstream whose queue passes from one worker to another, and what works while there is none.
@Suite(.timeLimit(.minutes(10))) struct ServedUpstreamTests {
    private static let settings = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (1, 10, .zero)
    }

    private let harness: DeliveryHarness
    private let served: ServedUpstream

    init() throws {
        harness = try DeliveryHarness(settings: Self.settings)
        served = ServedUpstream(type: "plain", queue: harness.queue.target, client: harness.worker.client)
    }

    private func endWorker() {
        harness.worker.beginStopping()
        harness.worker.join()
        _ = harness.worker.turn()
        harness.outbox.drop(harness.queue)
    }

    private func beginWorker() throws -> UpstreamWorker {
        try UpstreamWorker(
            queue: harness.outbox.adopt(harness.queue.target), client: served.client, settings: Self.settings,
            dependencies: .init(
                outbox: harness.outbox, transport: harness.transport, time: harness.time, metrics: harness.metrics,
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }))
    }

    private func turn(_ worker: UpstreamWorker) {
        for _ in 0..<4 {
            _ = worker.turn()
            harness.commit()
        }
    }

    @Test func requestThatWasGivenUp_isSentAgainByTheNextWorker_andCountsAsInDoubt() throws {
        try harness.accept(["{\"n\":1}"], lane: .digest(1))
        try harness.turn()
        #expect(harness.open.count == 1)
        endWorker()
        try harness.accept(["{\"n\":2}"], lane: .digest(1))
        let next = try beginWorker()
        #expect(harness.ledger.ambiguousSends == 1)
        // The response reaches a worker that is gone.
        #expect(harness.transport.answer(.status(200)))
        turn(next)
        #expect(harness.ledger.delivered == 0)
        #expect(harness.open == [#"{"n":1},{"n":2}"#])
        #expect(harness.transport.answer(.status(200)))
        turn(next)
        #expect(harness.ledger.delivered == 2)
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func resultThatWasSubmitted_isKept_whenTheWorkerEnds() throws {
        try harness.accept(1)
        try harness.turn()
        #expect(harness.transport.answer(.status(200)))
        // The settlement waits for the writer, which `drop` waits for.
        _ = harness.worker.turn()
        endWorker()
        #expect(harness.ledger.delivered == 1)
        turn(try beginWorker())
        #expect(harness.sent.count == 1)
        #expect(harness.ledger.ambiguousSends == 0)
    }

    @Test func upstreamWithoutAWorker_isShownAsStored() throws {
        harness.worker.pause()
        try harness.turn()
        endWorker()
        let snapshot = served.snapshot(in: harness.outbox, now: harness.time.now)
        #expect(snapshot.health == .paused)
        #expect(!snapshot.isDisabled)
    }

    @Test(arguments: [false, true]) func pauseWithoutAWorker_isInForceForTheNext(isKnown: Bool) throws {
        // A request may have found the worker before it ended.
        let served = isKnown ? ServedUpstream(type: "plain", worker: harness.worker) : served
        endWorker()
        served.steer(.pause, in: harness.outbox)
        try harness.accept(1)
        let next = try beginWorker()
        turn(next)
        #expect(next.snapshot.isPaused)
        #expect(harness.sent.isEmpty)
        served.steer(.resume, in: harness.outbox)
        harness.commit()
        turn(next)
        #expect(!next.snapshot.isPaused)
        #expect(harness.sent.count == 1)
    }

    @Test func flushWithoutAWorker_endsTheWaitOfRetries() throws {
        try harness.accept(1)
        try harness.turn()
        try harness.answer(.status(503))
        endWorker()
        served.steer(.flush, in: harness.outbox)
        harness.commit()
        let summary = try #require(try harness.outbox.summary(of: harness.queue.number))
        #expect(summary.flushedThrough.rawValue == Int64(harness.ledger.lastID))
        turn(try beginWorker())
        #expect(harness.sent.count == 2)
    }

    @Test func settings_areThoseOfRequests_withoutAWorker() throws {
        endWorker()
        served.apply(DeliverySettings.with { $0.transfer.requestTimeout = .seconds(7) })
        #expect(served.client.options.requestTimeout == .seconds(7))
        #expect(served.client.options.connections.renewedAt == harness.time.instant)
        #expect(served.client.options.connections.name == "plain")
    }
}
