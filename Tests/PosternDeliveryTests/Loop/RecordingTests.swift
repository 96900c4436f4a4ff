import PosternCore
import PosternTestKit
import Testing

@testable import PosternDelivery
@testable import PosternStore

/// Results that the store fails to record at first.
@Suite(.timeLimit(.minutes(10))) struct RecordingTests {
    /// Runs once for pending work, and once for the store's response to it.
    private func turnAndListen(_ harness: DeliveryHarness) {
        _ = harness.worker.turn()
        harness.commit()
        _ = harness.worker.turn()
    }

    @Test func outcome_isWrittenAgain_untilTheStoreTakesIt_andNothingIsSentTwice() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (2, 1) })
        let ids = try harness.accept(3)
        try harness.turn()
        let trouble = "CREATE TRIGGER trouble BEFORE DELETE ON queue_1 BEGIN SELECT RAISE(ABORT, 'trouble'); END"
        try harness.execute(trouble)
        harness.transport.answer(.status(200))
        turnAndListen(harness)
        for _ in 1...5 {
            harness.time.advance(by: .milliseconds(500))
            turnAndListen(harness)
        }
        #expect(harness.sent.count == 2)
        #expect(harness.worker.unsettledBatches == 2)
        #expect(try harness.state(ids[0]) == .queued)
        try harness.execute("DROP TRIGGER trouble")
        harness.time.advance(by: StoreRetry.longest)
        try harness.turn()
        #expect(try harness.state(ids[0]) == .delivered)
        #expect(harness.logged("cannot store the result of an attempt; retrying") == 1)
        #expect(harness.logged("store recovered; deliveries continue") == 1)
        #expect(harness.sent.count == 3)
        harness.transport.answerAll { _ in .status(200) }
        harness.transport.answer(.status(200))
        harness.transport.answer(.status(200))
        try harness.turn()
        #expect(harness.ledger.delivered == 3)
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func pause_isWrittenAgain_untilTheStoreTakesIt_andOutlastsARestart() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        try harness.execute(
            "CREATE TRIGGER trouble BEFORE UPDATE OF isPaused ON upstreams BEGIN SELECT RAISE(ABORT, 'trouble'); END")
        harness.worker.pause()
        turnAndListen(harness)
        #expect(harness.logged("cannot store whether the upstream is paused; retrying") == 1)
        try harness.execute("DROP TRIGGER trouble")
        harness.time.advance(by: StoreRetry.longest)
        try harness.turn()
        #expect(harness.logged("store recovered; deliveries continue") == 1)
        try harness.restart(settings: RetryTests.single)
        #expect(harness.worker.snapshot.isPaused)
    }

    @Test func fullDisk_delaysOutcomes_andLosesNone() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (1, 50) })
        let ids = try harness.accept(100)
        try harness.turn()
        // The store may not grow by a single page.
        try harness.execute("PRAGMA max_page_count = 1")
        harness.transport.answer(.status(200, String(repeating: "x", count: 100_000)))
        turnAndListen(harness)
        #expect(harness.worker.unsettledBatches == 1)
        #expect(harness.sent.count == 1)
        try harness.execute("PRAGMA max_page_count = 1000000")
        harness.transport.answerAll { _ in .status(200) }
        harness.time.advance(by: .milliseconds(500))
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.delivered == 100)
        #expect(try harness.record(ids[0]).result?.count == 100_000)
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func outcomeAfterTheStoreClosed_isLeftToTheNextRun() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (1, 1) })
        try harness.accept(1)
        try harness.turn()
        harness.outbox.close()
        harness.transport.answer(.refusedConnection)
        turnAndListen(harness)
        #expect(harness.worker.unsettledBatches == 0)
        #expect(harness.sent.count == 1)
        try harness.restart(settings: DeliverySettings())
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.delivered == 1)
        #expect(try harness.outbox.audit().isBalanced)
    }
}
