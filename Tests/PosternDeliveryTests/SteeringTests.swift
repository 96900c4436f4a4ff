import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

/// What operators do to a worker while it runs, and how it stops.
@Suite(.timeLimit(.minutes(10))) struct SteeringTests {
    private static let single = RetryTests.single

    @Test func paused_sendsNothing_letsRequestsEnd_andGoesOnAfterwards() throws {
        let bench = try DeliveryBench(settings: Self.single)
        try bench.accept(3)
        try bench.turn()
        bench.worker.pause()
        try bench.turn()
        #expect(bench.worker.snapshot.health == .paused)
        try bench.answer(.status(200))
        try bench.run(for: .seconds(3600))
        #expect(bench.sent.count == 1)
        #expect(bench.ledger.delivered == 1)
        bench.transport.answerAll { _ in .status(200) }
        bench.worker.resume()
        try bench.turn()
        #expect(bench.ledger.delivered == 3)
        #expect(bench.worker.snapshot.health == .up)
    }

    @Test func pause_outlastsARestart() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.worker.pause()
        try bench.turn()
        try bench.accept(1)
        try bench.restart(settings: Self.single)
        #expect(bench.worker.snapshot.health == .paused)
        try bench.run(for: .seconds(60))
        #expect(bench.sent.isEmpty)
        bench.worker.resume()
        try bench.turn()
        #expect(bench.sent.count == 1)
        try bench.restart(settings: Self.single)
        #expect(!bench.worker.snapshot.isPaused)
    }

    @Test(arguments: ["flush", "resume"]) func wish_probesAtOnce_thoughTheCircuitIsOpen(wish: String) throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.expect(.status(429, headers: [("Retry-After", "3000")]))
        bench.transport.answerAll { _ in .status(200) }
        try bench.accept(3)
        try bench.run(for: .seconds(60))
        #expect(bench.sent.count == 1)
        if wish == "flush" { bench.worker.flush() } else { bench.worker.resume() }
        try bench.turn()
        #expect(bench.ledger.delivered == 3)
        #expect(bench.worker.snapshot.health == .up)
    }

    /// Messages of an outage back off for longer the longer it lasts, each on its own.
    @Test(arguments: ["flush", "resume"]) func wish_endsTheWaitOfEveryMessage_afterAnOutage(wish: String) throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero) })
        bench.draw(1)
        bench.transport.answerAll { _ in .status(500) }
        try bench.accept(8)
        try bench.run(for: .seconds(600))
        #expect(bench.worker.snapshot.health == .down)
        bench.transport.answerAll { _ in .status(200) }
        if wish == "flush" { bench.worker.flush() } else { bench.worker.resume() }
        try bench.run(for: .seconds(1))
        #expect(bench.ledger.delivered == 8)
    }

    @Test func flush_sendsWhatWaitsForARetry() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.expect(.status(503))
        bench.transport.answerAll { _ in .status(200) }
        try bench.accept(1)
        try bench.turn()
        #expect(bench.ledger.queued == 1)
        bench.worker.flush()
        try bench.turn()
        #expect(bench.ledger.delivered == 1)
    }

    @Test func retry_isNotPutOff_whenTheClockIsSetBack() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.expect(.status(503))
        bench.transport.answerAll { _ in .status(200) }
        try bench.accept(1)
        try bench.turn()
        #expect(bench.ledger.queued == 1)
        bench.time.setWallClock(back: .seconds(3600))
        try bench.turn()
        #expect(bench.ledger.delivered == 1)
    }

    @Test func settings_areAdoptedLive() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (1, 1) })
        try bench.accept(40)
        try bench.turn()
        #expect(bench.sizes == [1])
        bench.worker.adopt(DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (3, 10) })
        try bench.answer(.status(200))
        #expect(bench.open.count == 2)
        #expect(bench.sizes == [1, 10, 10])
        bench.worker.adopt(DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (1, 5) })
        try bench.answer(.status(200))
        #expect(bench.open.count == 1)
        try bench.answer(.status(200))
        #expect(bench.sizes == [1, 10, 10, 5])
    }

    // MARK: Holds

    @Test(arguments: [300, 2]) func wrongCredentials_loseNobody_andAreProbedAFewTimesAMinute(longest: Int) throws {
        var settings = Self.single
        settings.retry.longest = .seconds(longest)
        let bench = try DeliveryBench(settings: settings)
        bench.draw(0)
        bench.transport.answerAll { _ in .status(403) }
        let ids = try bench.accept(10)
        try bench.run(for: .seconds(3600))
        #expect(bench.sent.count <= 241)
        #expect(bench.worker.snapshot.health == .unauthorized)
        let records = try ids.map(bench.record)
        #expect(records.allSatisfy { $0.state == .queued && $0.attempts == 0 })
        #expect(bench.worker.snapshot.lastError?.errorClass == .unauthorized)

        bench.transport.answerAll { _ in .status(200) }
        bench.worker.adopt(settings, upstream: PlainUpstream())
        try bench.turn()
        #expect(bench.ledger.delivered == 10)
        #expect(bench.worker.snapshot.health == .up)
        // Probes take one message after the other, so those without a lane change their order.
        #expect(Set(bench.sent.suffix(10)) == Set((1...10).map { "{\"n\":\($0)}" }))
    }

    @Test func hold_outlastsARestart() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.answerAll { _ in .status(403) }
        try bench.accept(1)
        try bench.turn()
        try bench.restart(settings: Self.single)
        #expect(bench.worker.snapshot.hold == .credentials)
        #expect(bench.worker.snapshot.health == .unauthorized)
        #expect(bench.worker.snapshot.lastError?.detail == "forbidden")
        try bench.run(for: .seconds(299))
        #expect(bench.sent.count == 1)
    }

    @Test func lateSuccess_doesNotEndAHold() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (2, 1) })
        try bench.accept(3)
        try bench.turn()
        try bench.answer(.status(403))
        try bench.answer(.status(200))
        #expect(bench.worker.snapshot.health == .unauthorized)
        try bench.run(for: .seconds(100))
        #expect(bench.sent.count == 2)
    }

    @Test func parkedLane_isLookedAtSeldom_andTheOthersGo() throws {
        let bench = try DeliveryBench(ParkingUpstream(), settings: Self.single)
        bench.transport.answerAll { $0.text.contains("parked") ? .status(401) : .status(200) }
        try bench.accept([#"{"n":"parked"}"#, #"{"n":"parked too"}"#], lane: .digest(1))
        try bench.accept(3, lane: .digest(2))
        try bench.run(for: .seconds(3600))
        #expect(bench.ledger.delivered == 3)
        #expect(bench.sent.count <= 3 + 13)
        #expect(bench.worker.snapshot.health == .up)
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(301))
        #expect(bench.ledger.delivered == 5)
    }

    // MARK: Stopping

    @Test func stopping_claimsNoMore_butWhatIsUnderWayEnds() throws {
        let bench = try DeliveryBench(settings: Self.single)
        let ids = try bench.accept(2)
        try bench.turn()
        bench.worker.beginStopping()
        try bench.turn()
        try bench.answer(.status(200))
        try bench.run(for: .seconds(60))
        #expect(bench.sent.count == 1)
        #expect(try ids.map(bench.state) == [.delivered, .queued])
    }

    @Test(arguments: [true, false]) func cancelledTransfer_isGivenBack_andCountsForNothing(isProbe: Bool) throws {
        let bench = try DeliveryBench(settings: Self.single)
        let ids = try bench.accept(1)
        if isProbe {
            bench.transport.answerAll { _ in .status(503) }
            try bench.run(for: .seconds(60))
            bench.transport.answerAll(by: nil)
            while bench.open.isEmpty { bench.time.advance(by: try bench.turn()) }
        }
        try bench.turn()
        let failures = bench.worker.snapshot.failures
        bench.worker.beginStopping()
        try bench.answer(.failure(TransferFailure(.cancelled, mayHaveArrived: true, detail: "stopped")))
        #expect(bench.worker.snapshot.failures == failures)
        let record = try bench.record(ids[0])
        #expect(record.state == .queued)
        #expect(record.attempts == 0)
        #expect(try bench.outbox.attempts(of: ids[0]).last?.outcome == "cancelled")
        #expect(bench.metrics.ambiguousSends("plain").value == 1)

        try bench.restart(settings: Self.single)
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(700))
        #expect(bench.ledger.delivered == 1)
        #expect(try bench.outbox.audit().isBalanced)
    }
}
