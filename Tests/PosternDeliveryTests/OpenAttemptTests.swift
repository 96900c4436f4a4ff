import PosternCore
import PosternMetrics
@testable import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

/// No request leaves before the row that records it is on disk.
@Suite(.timeLimit(.minutes(10))) struct OpenAttemptTests {
    private static let settings = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (1, 10, .zero)
    }

    @Test func request_waitsForTheCommitThatRecordsIt() throws {
        let bench = try DeliveryBench(settings: Self.settings)
        try bench.accept(3)
        _ = bench.worker.turn()
        #expect(bench.transport.requests.isEmpty)
        #expect(bench.worker.unsettledBatches == 1)
        try bench.turn()
        #expect(bench.sizes == [3])
    }

    /// Killed after the commit, before or after the request: the next run counts it and marks its messages.
    @Test(arguments: [false, true]) func killedRun_leavesATrace(isSent: Bool) throws {
        let bench = try DeliveryBench(settings: Self.settings)
        let ids = try bench.accept(3)
        if isSent {
            try bench.turn()
            #expect(bench.open.count == 1)
        } else {
            _ = bench.worker.turn()
            #expect(bench.transport.requests.isEmpty)
        }
        try bench.kill(settings: Self.settings)
        #expect(bench.ledger.ambiguousSends == 1)
        #expect(try ids.allSatisfy { try bench.record($0).state == .queued })
        let claim = try bench.queue.claim(.init(maxMessages: 10, maxBytes: 1000), now: bench.time.now, oldest: nil)
        #expect(claim.messages.map(\.wasTried) == [true, true, true])
    }

    @Test func failedCommit_givesTheBatchBack_unsent() throws {
        let bench = try DeliveryBench(settings: Self.settings)
        let ids = try bench.accept(2)
        try bench.execute(
            "CREATE TRIGGER trouble BEFORE INSERT ON attempts BEGIN SELECT RAISE(ABORT, 'trouble'); END")
        try bench.run(for: .seconds(2))
        #expect(bench.transport.requests.isEmpty)
        #expect(bench.worker.unsettledBatches == 0)
        try bench.execute("DROP TRIGGER trouble")
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(2))
        #expect(try ids.allSatisfy { try bench.state($0) == .delivered })
        #expect(try bench.outbox.audit().isBalanced)
    }

    @Test func stop_beforeTheCommit_sendsNothing() throws {
        let bench = try DeliveryBench(settings: Self.settings)
        let ids = try bench.accept(2)
        _ = bench.worker.turn()
        bench.worker.beginStopping()
        _ = bench.worker.turn()
        try bench.turn()
        #expect(bench.transport.requests.isEmpty)
        #expect(bench.worker.unsettledBatches == 0)
        try bench.restart(settings: Self.settings)
        #expect(bench.ledger.ambiguousSends == 0)
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(1))
        #expect(try ids.allSatisfy { try bench.state($0) == .delivered })
    }
}
