import PosternCore
import PosternMetrics
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing
@testable import PosternStore

@testable import PosternDelivery

/// No request leaves before the row that records it is on disk.
@Suite(.timeLimit(.minutes(10))) struct OpenAttemptTests {
    private static let settings = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (1, 10, .zero)
    }

    @Test func request_waitsForTheCommitThatRecordsIt() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        try harness.accept(3)
        _ = harness.worker.turn()
        #expect(harness.transport.requests.isEmpty)
        #expect(harness.worker.unsettledBatches == 1)
        try harness.turn()
        #expect(harness.sizes == [3])
    }

    /// Killed after the commit, before or after the request: the next run counts it and marks its messages.
    @Test(arguments: [false, true]) func killedRun_leavesATrace(isSent: Bool) throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        let ids = try harness.accept(3)
        if isSent {
            try harness.turn()
            #expect(harness.open.count == 1)
        } else {
            _ = harness.worker.turn()
            #expect(harness.transport.requests.isEmpty)
        }
        try harness.kill(settings: Self.settings)
        #expect(harness.ledger.ambiguousSends == 1)
        #expect(try ids.allSatisfy { try harness.record($0).state == .queued })
        let claim = try harness.queue.claim(.init(maxMessages: 10, maxBytes: 1000), now: harness.time.now, oldest: nil)
        #expect(claim.messages.map(\.mayHaveArrived) == [true, true, true])
    }

    @Test func failedCommit_givesTheBatchBack_unsent() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        let ids = try harness.accept(2)
        try harness.execute(
            "CREATE TRIGGER trouble BEFORE INSERT ON attempts BEGIN SELECT RAISE(ABORT, 'trouble'); END")
        try harness.run(for: .seconds(2))
        #expect(harness.transport.requests.isEmpty)
        #expect(harness.worker.unsettledBatches == 0)
        try harness.execute("DROP TRIGGER trouble")
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(2))
        #expect(try ids.allSatisfy { try harness.state($0) == .delivered })
        #expect(try harness.outbox.audit().isBalanced)
    }

    /// Many lanes, each of which could be tried: what is asked of the store does not grow with their number.
    @Test func storeThatRefusesRequests_isAskedLessAndLessOften_andLoggedOnce() throws {
        let upstream = PlainUpstream(laneRule: .perLane)
        let harness = try DeliveryHarness(upstream, settings: Self.settings)
        let ids = try (0..<20).flatMap { try harness.accept(["{}"], lane: .named("lane \($0)", group: nil)) }
        try harness.execute(
            "CREATE TRIGGER trouble BEFORE INSERT ON attempts BEGIN SELECT RAISE(ABORT, 'trouble'); END")
        let before = harness.outbox.nextBatch().rawValue
        try harness.run(for: .seconds(60))
        #expect(harness.transport.requests.isEmpty)
        // 0, 0.5, 1.5, 3.5, 7.5, 12.5 … 57.5 seconds.
        let tries = harness.outbox.nextBatch().rawValue - before - 1
        #expect((10...20).contains(tries), "\(tries) tries")
        #expect(harness.logged("cannot record a request; it was not sent") == 1)
        try harness.execute("DROP TRIGGER trouble")
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(10))
        #expect(try ids.allSatisfy { try harness.state($0) == .delivered })
        #expect(harness.logged("store recovered; deliveries continue") == 1)
    }

    /// The same for waits without a request, after which a lane would be ready again at once.
    @Test func storeThatRefusesWaits_isAskedLessAndLessOften() throws {
        let upstream = WaitingUpstream()
        let harness = try DeliveryHarness(upstream, settings: Self.settings)
        for lane in 0..<20 { try harness.accept(["{}"], lane: .named("lane \(lane)", group: nil)) }
        try harness.execute(
            "CREATE TRIGGER trouble BEFORE UPDATE ON lanes BEGIN SELECT RAISE(ABORT, 'trouble'); END")
        try harness.run(for: .seconds(60))
        #expect(upstream.plans.load(ordering: .relaxed) < 20 * 20)
        #expect(harness.logged("cannot store a wait") == 1)
        try harness.execute("DROP TRIGGER trouble")
        let before = upstream.plans.load(ordering: .relaxed)
        try harness.run(for: .seconds(10))
        #expect(upstream.plans.load(ordering: .relaxed) == before + 20)
    }

    private final class WaitingUpstream: PlainAtHeart {
        let plain = PlainUpstream(laneRule: .perLane)
        let plans = Atomic<Int>(0)

        func plan(for messages: [Message], in context: PlanContext) -> Plan {
            plans.add(1, ordering: .relaxed)
            return .wait(.schedule, until: context.now + .seconds(300))
        }
    }

    @Test func stop_beforeTheCommit_sendsNothing() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        let ids = try harness.accept(2)
        _ = harness.worker.turn()
        harness.worker.beginStopping()
        _ = harness.worker.turn()
        try harness.turn()
        #expect(harness.transport.requests.isEmpty)
        #expect(harness.worker.unsettledBatches == 0)
        try harness.restart(settings: Self.settings)
        #expect(harness.ledger.ambiguousSends == 0)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(1))
        #expect(try ids.allSatisfy { try harness.state($0) == .delivered })
    }
}
