import GRDB
import PosternCore
import PosternTestKit
import Testing

@testable import PosternDelivery
@testable import PosternStore

/// Outcomes that the store does not take in at first.
@Suite(.timeLimit(.minutes(10))) struct RecordingTests {
    private func execute(_ sql: String, on bench: DeliveryBench) throws {
        let done = Inbox<Result<Void, StoreError>>()
        bench.outbox.writer.change({ try $0.db.execute(sql: sql) }) { done.put($0) }
        let result = try #require(bench.threads.take(from: done).first)
        try result.get()
    }

    /// Turns once for what is there already, and once for what the store says to that.
    private func turnAndListen(_ bench: DeliveryBench) {
        _ = bench.worker.turn()
        bench.commit()
        _ = bench.worker.turn()
    }

    @Test func outcome_isWrittenAgain_untilTheStoreTakesIt_andNothingIsSentTwice() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (2, 1) })
        let ids = try bench.accept(3)
        try bench.turn()
        let trouble = "CREATE TRIGGER trouble BEFORE DELETE ON queue_1 BEGIN SELECT RAISE(ABORT, 'trouble'); END"
        try execute(trouble, on: bench)
        bench.transport.answer(.status(200))
        turnAndListen(bench)
        for _ in 1...5 {
            bench.time.advance(by: .milliseconds(500))
            turnAndListen(bench)
        }
        #expect(bench.sent.count == 2)
        #expect(bench.worker.unsettledBatches == 2)
        #expect(try bench.state(ids[0]) == .queued)
        try execute("DROP TRIGGER trouble", on: bench)
        bench.time.advance(by: .milliseconds(500))
        try bench.turn()
        #expect(try bench.state(ids[0]) == .delivered)
        #expect(bench.sent.count == 3)
        bench.transport.answerAll { _ in .status(200) }
        bench.transport.answer(.status(200))
        bench.transport.answer(.status(200))
        try bench.turn()
        #expect(bench.ledger.delivered == 3)
        #expect(try bench.outbox.audit().isBalanced)
    }

    @Test func fullDisk_delaysOutcomes_andLosesNone() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (1, 50) })
        let ids = try bench.accept(100)
        try bench.turn()
        // The store may not grow by a single page.
        try execute("PRAGMA max_page_count = 1", on: bench)
        bench.transport.answer(.status(200, String(repeating: "x", count: 100_000)))
        turnAndListen(bench)
        #expect(bench.worker.unsettledBatches == 1)
        #expect(bench.sent.count == 1)
        try execute("PRAGMA max_page_count = 1000000", on: bench)
        bench.transport.answerAll { _ in .status(200) }
        bench.time.advance(by: .milliseconds(500))
        try bench.run(for: .seconds(1))
        #expect(bench.ledger.delivered == 100)
        #expect(try bench.record(ids[0]).result?.count == 100_000)
        #expect(try bench.outbox.audit().isBalanced)
    }

    @Test func outcomeAfterTheStoreClosed_isLeftToTheNextRun() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (1, 1) })
        try bench.accept(1)
        try bench.turn()
        bench.outbox.close()
        bench.transport.answer(.refusedConnection)
        turnAndListen(bench)
        #expect(bench.worker.unsettledBatches == 0)
        #expect(bench.sent.count == 1)
        try bench.restart(settings: DeliverySettings())
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(1))
        #expect(bench.ledger.delivered == 1)
        #expect(try bench.outbox.audit().isBalanced)
    }
}
