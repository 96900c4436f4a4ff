import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// A worker sends no faster than it may.
@Suite(.timeLimit(.minutes(10))) struct RateTests {
    private func harness(_ pace: Pace.Limits, batch: Int) throws -> DeliveryHarness {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.pace, $0.batchMaxMessages, $0.batchMaxWait) = (pace, batch, .zero) })
        harness.transport.answerAll { _ in .status(200) }
        return harness
    }

    @Test func requests_areLimited_andAMessageSaysWhyItWaits() throws {
        let harness = try harness(.init(requests: 5), batch: 1)
        let ids = try harness.accept(100)
        try harness.run(for: .seconds(10))
        #expect((49...52).contains(harness.sent.count))
        let snapshot = harness.worker.snapshot
        #expect(snapshot.health == .up)
        #expect(snapshot.rateLimit == 5)
        let wait = snapshot.wait(of: try harness.record(ids[99]).facts, now: harness.time.now) { false }
        #expect(wait == WaitStatus(waitingFor: .rate))
        try harness.run(for: .seconds(11))
        #expect(harness.ledger.delivered == 100)
        #expect(harness.worker.snapshot.pacedUntil.map { $0 <= harness.time.now } ?? true)
    }

    @Test func batches_grow_whereRequestsAreLimited() throws {
        let harness = try harness(.init(requests: 2), batch: 500)
        for _ in 1...50 {
            try harness.accept(20)
            try harness.run(for: .milliseconds(100))
        }
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.delivered == 1000)
        #expect((10...13).contains(harness.sent.count))
    }

    @Test func messages_areLimited_inRequestsOfASecondsWorth() throws {
        let harness = try harness(.init(messages: 50), batch: 500)
        try harness.accept(1000)
        try harness.run(for: .milliseconds(10_500))
        #expect(harness.sizes.allSatisfy { $0 == 50 })
        #expect(harness.ledger.delivered == 550)
    }

    @Test func limit_isChanged_byAReload() throws {
        let harness = try harness(.init(requests: 0.01), batch: 1)
        try harness.accept(20)
        try harness.run(for: .seconds(10))
        #expect(harness.sent.count == 1)
        harness.worker.apply(
            DeliverySettings.with { ($0.pace, $0.batchMaxMessages) = (.init(requests: 10), 1) })
        try harness.run(for: .seconds(3))
        #expect(harness.ledger.delivered == 20)
    }

    @Test func worker_sleepsUntilTheNextRequestIsDue() throws {
        let harness = try harness(.init(requests: 1), batch: 1)
        try harness.accept(30)
        let turns = try harness.run(for: .seconds(20))
        #expect(harness.sent.count <= 21)
        #expect(turns < 80)
    }

    /// While it may not send, the worker cannot see that the message it has sent was the last one.
    @Test(arguments: [(LaneRule.acrossLanes, false), (.acrossLanes, true), (.perLane, false), (.perLane, true)])
    func messageAfterTheLastOne_isSent_asSoonAsTheLimitPermits(laneRule: LaneRule, takesTurns: Bool) throws {
        let harness = try DeliveryHarness(
            PlainUpstream(laneRule: laneRule),
            settings: .with { ($0.pace, $0.batchMaxMessages, $0.batchMaxWait) = (.init(requests: 0.5), 1, .zero) })
        harness.transport.answerAll { _ in .status(200) }
        if takesTurns { try harness.outbox.share(harness.queue.target, by: Fairness(by: .caller)) }
        let lane = laneRule == .perLane ? Lane.named("a") : .none
        // A worker that turns only when it is woken, or when the time has come that it waits for.
        try harness.worker.start()
        for count in 1...4 {
            try harness.accept(1, lane: lane)
            harness.threads.advance(by: .milliseconds(count == 1 ? 1000 : 2000))
            #expect(harness.ledger.delivered == count)
        }
        harness.worker.join()
    }

    @Test func adaptiveWorker_slowsDown_andRefusalsStop() throws {
        let harness = try harness(.init(isAdaptive: true), batch: 1)
        let taken = SharedValue<[Int64: Int]>([:])
        let time = harness.time
        // Twenty in each second.
        harness.transport.answerAll { _ in
            let second = time.now.milliseconds / 1000
            var counts = taken.value
            counts[second, default: 0] += 1
            taken.set(counts)
            return counts[second, default: 0] <= 20 ? .status(200) : .status(429)
        }
        try harness.accept(2000)
        try harness.run(for: .seconds(30))
        let (before, refusedBefore) = (harness.ledger.delivered, harness.sent.count - harness.ledger.delivered)
        try harness.run(for: .seconds(30))
        let delivered = harness.ledger.delivered - before
        let refused = harness.sent.count - harness.ledger.delivered - refusedBefore
        #expect(delivered >= 570, "95 % of 600; \(refused) refused")
        #expect(refused <= 6)
        #expect(try #require(harness.worker.snapshot.rateLimit) > 18)
        #expect(harness.ledger.failed == 0)
    }

    @Test(arguments: [true, false])
    func burstOfRefusals_looksLikeAnOutage_unlessThePaceIsAdaptive(isAdaptive: Bool) throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with {
                ($0.pace, $0.batchMaxMessages, $0.maxInFlight) = (.init(isAdaptive: isAdaptive), 1, 16)
            })
        try harness.accept(16)
        try harness.run(for: .milliseconds(100))
        #expect(harness.open.count == 16)
        for _ in 1...16 { try harness.answer(.status(429)) }
        #expect((harness.worker.snapshot.circuit == .closed) == isAdaptive)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(30))
        #expect((harness.ledger.delivered == 16) == isAdaptive)
    }
}
