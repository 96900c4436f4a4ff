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

    private func beginWorker(on queue: UpstreamQueue? = nil) throws -> UpstreamWorker {
        try UpstreamWorker(
            queue: queue ?? harness.outbox.adopt(harness.queue.target), client: served.client, settings: Self.settings,
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
        let order = Pause(by: "ops", at: harness.time.now)
        harness.worker.pause(order)
        harness.worker.pause(Pause(by: "other", at: harness.time.now + .seconds(1)))
        try harness.turn()
        endWorker()
        let snapshot = served.snapshot(in: harness.outbox, now: harness.time.now)
        #expect(snapshot.health == .paused)
        #expect(snapshot.pause == order)
        #expect(!snapshot.isDisabled)
    }

    @Test(arguments: [false, true]) func pauseWithoutAWorker_isInForceForTheNext(isKnown: Bool) throws {
        // A request may have found the worker before it ended.
        let served = isKnown ? ServedUpstream(type: "plain", worker: harness.worker) : served
        endWorker()
        served.steer(.pause, in: harness.outbox, by: "ops", at: harness.time.now)
        try harness.accept(1)
        let next = try beginWorker()
        turn(next)
        #expect(next.snapshot.pause?.key == "ops")
        #expect(harness.sent.isEmpty)
        served.steer(.resume, in: harness.outbox, at: harness.time.now)
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
        served.steer(.flush, in: harness.outbox, at: harness.time.now)
        harness.commit()
        let summary = try #require(try harness.outbox.summary(of: harness.queue.number))
        #expect(summary.flushedThrough.rawValue == Int64(harness.ledger.lastID))
        turn(try beginWorker())
        #expect(harness.sent.count == 2)
    }

    /// The end of a flush that this process does not carry out is not known to it.
    @Test(arguments: [false, true]) func flushWithoutAWorker_isStored_andNotWaitedFor(isKnown: Bool) throws {
        let served = isKnown ? ServedUpstream(type: "plain", worker: harness.worker) : served
        endWorker()
        let reports = Inbox<FlushReport?>()
        served.steer(.flush, in: harness.outbox, at: harness.time.now) { reports.put($0) }
        #expect(reports.takeAll().isEmpty)
        harness.commit()
        #expect(reports.takeAll() == [nil])
    }

    @Test func flush_isNotWaitedFor_onceItsWorkerEnds() throws {
        try harness.accept(1)
        try harness.turn()
        let reports = Inbox<FlushReport?>()
        harness.worker.flush { reports.put($0) }
        try harness.turn()
        #expect(reports.takeAll().isEmpty)
        endWorker()
        #expect(reports.takeAll() == [nil])
        turn(try beginWorker())
        #expect(harness.sent.count == 2)
    }

    /// Between the end of the former worker and the beginning of its own, the queue has loaded when retries are due.
    @Test(arguments: [false, true]) func flush_endsTheWaitOfRetries_thatTheNextOwnerHasLoaded(hasBegun: Bool) throws {
        try harness.accept(1)
        try harness.turn()
        try harness.answer(.status(503))
        endWorker()
        let queue = try harness.outbox.adopt(harness.queue.target)
        let early = hasBegun ? try beginWorker(on: queue) : nil
        served.steer(.flush, in: harness.outbox, at: harness.time.now)
        harness.commit()
        turn(try early ?? beginWorker(on: queue))
        #expect(harness.sent.count == 2)
    }

    /// The request of an operator is carried out by the worker, or stored, and is not lost between the two.
    @Test func worker_carriesOutWhatItTook_beforeItEnds_andTakesNothingAfterThat() throws {
        #expect(harness.worker.pause())
        endWorker()
        #expect(!harness.worker.resume())
        #expect(!harness.worker.flush())
        harness.commit()
        let next = try beginWorker()
        turn(next)
        #expect(next.snapshot.isPaused)
    }

    @Test func settings_areThoseOfTheQueue_withoutAWorker() throws {
        endWorker()
        served.apply(
            DeliverySettings.with {
                ($0.batchMaxMessages, $0.batchMaxWait, $0.expireAfter) = (7, .seconds(8), .seconds(9))
            })
        let collecting = harness.queue.target.collecting
        #expect(collecting.wait == .seconds(8) && collecting.expireAfter == .seconds(9))
        #expect(collecting.limits == harness.queue.upstream.limits(BatchLimits(maxMessages: 7, maxBytes: 1 << 20)))
        try harness.accept(1)
        harness.time.advance(by: .seconds(10))
        harness.commit()
        #expect(harness.ledger.expired == 1)
    }

    @Test func settings_areThoseOfRequests_withoutAWorker() throws {
        endWorker()
        served.apply(DeliverySettings.with { $0.transfer.requestTimeout = .seconds(7) })
        #expect(served.client.options.requestTimeout == .seconds(7))
        #expect(served.client.options.connections.renewedAt == harness.time.instant)
        #expect(served.client.options.connections.name == "plain")
    }
}
