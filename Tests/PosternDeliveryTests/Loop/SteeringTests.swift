import Logging
import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternDelivery

/// Operators' actions on a running worker, and how it stops.
@Suite(.timeLimit(.minutes(10))) struct SteeringTests {
    private static let single = RetryTests.single

    @Test func paused_sendsNothing_letsRequestsEnd_andGoesOnAfterwards() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        try harness.accept(3)
        try harness.turn()
        harness.worker.pause()
        try harness.turn()
        #expect(harness.worker.snapshot.health == .paused)
        try harness.answer(.status(200))
        try harness.run(for: .seconds(3600))
        #expect(harness.sent.count == 1)
        #expect(harness.ledger.delivered == 1)
        harness.transport.answerAll { _ in .status(200) }
        harness.worker.resume()
        try harness.turn()
        #expect(harness.ledger.delivered == 3)
        #expect(harness.worker.snapshot.health == .up)
    }

    /// What an operator has corrected may be an address, or a connection that is mute.
    @Test(arguments: ["resume", "flush", "apply", "renewConnections"])
    func connections_areNotUsedAgain_afterAnOperatorsAction(action: String) throws {
        var settings = Self.single
        settings.transfer.connectionMaxAge = .seconds(7)
        let harness = try DeliveryHarness(settings: settings)
        harness.transport.answerAll { _ in .status(200) }
        try harness.accept(1)
        try harness.run(for: .seconds(1))
        let now = harness.time.instant
        switch action {
        case "resume": harness.worker.resume()
        case "flush": harness.worker.flush()
        case "apply": harness.worker.apply(settings)
        default: harness.worker.client.renewConnections()
        }
        try harness.turn()
        try harness.accept(1)
        try harness.run(for: .seconds(1))
        let options = harness.transport.options
        #expect(options.map(\.connections.renewedAt) == [nil, now])
        #expect(options.allSatisfy { $0.connections.name == "\(harness.queue.name)" })
        #expect(options.allSatisfy { $0.connectionMaxAge == .seconds(7) })
    }

    @Test func pause_outlastsARestart() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.worker.pause()
        try harness.turn()
        try harness.accept(1)
        try harness.restart(settings: Self.single)
        #expect(harness.worker.snapshot.health == .paused)
        try harness.run(for: .seconds(60))
        #expect(harness.sent.isEmpty)
        harness.worker.resume()
        try harness.turn()
        #expect(harness.sent.count == 1)
        try harness.restart(settings: Self.single)
        #expect(!harness.worker.snapshot.isPaused)
    }

    @Test(arguments: ["flush", "resume"]) func flushAndResume_probeAtOnce_ifTheCircuitIsOpen(action: String) throws {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.transport.expect(.status(429, headers: [("Retry-After", "3000")]))
        harness.transport.answerAll { _ in .status(200) }
        try harness.accept(3)
        try harness.run(for: .seconds(60))
        #expect(harness.sent.count == 1)
        if action == "flush" { harness.worker.flush() } else { harness.worker.resume() }
        try harness.turn()
        #expect(harness.ledger.delivered == 3)
        #expect(harness.worker.snapshot.health == .up)
    }

    /// Messages of an outage back off for longer the longer it lasts, each on its own.
    @Test(arguments: ["flush", "resume"]) func flushAndResume_endEveryWait_afterAnOutage(action: String) throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero) })
        harness.random.set(1)
        harness.transport.answerAll { _ in .status(500) }
        try harness.accept(8)
        try harness.run(for: .seconds(600))
        #expect(harness.worker.snapshot.health == .down)
        harness.transport.answerAll { _ in .status(200) }
        if action == "flush" { harness.worker.flush() } else { harness.worker.resume() }
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.delivered == 8)
    }

    /// The first request has failed; the next one succeeds.
    private func harnessWithAWaitingRetry() throws -> DeliveryHarness {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.transport.expect(.status(503))
        harness.transport.answerAll { _ in .status(200) }
        try harness.accept(1)
        try harness.turn()
        #expect(harness.ledger.queued == 1)
        return harness
    }

    @Test func flush_sendsWhatWaitsForARetry() throws {
        let harness = try harnessWithAWaitingRetry()
        harness.worker.flush()
        try harness.turn()
        #expect(harness.ledger.delivered == 1)
    }

    @Test func retry_isNotPutOff_whenTheClockIsSetBack() throws {
        let harness = try harnessWithAWaitingRetry()
        harness.time.setWallClock(back: .seconds(3600))
        try harness.turn()
        #expect(harness.ledger.delivered == 1)
    }

    /// The end of the wait is stored by a clock that showed another time. The latest request may have been one to another
    /// upstream, after the clock was set back.
    @Test(arguments: [false, true]) func retry_isNotPutOff_whenTheClockWasSetBackBeforeAStart(
        isAttemptForgotten: Bool
    ) throws {
        let harness = try harnessWithAWaitingRetry()
        if isAttemptForgotten { try harness.execute("DELETE FROM attempts") }
        harness.time.setWallClock(back: .seconds(3600))
        try harness.restart(settings: Self.single)
        try harness.turn()
        #expect(harness.ledger.delivered == 1)
    }

    @Test func retry_waitsOn_afterAStart() throws {
        let harness = try harnessWithAWaitingRetry()
        try harness.restart(settings: Self.single)
        try harness.turn()
        #expect(harness.ledger.queued == 1)
    }

    @Test func settings_areAdoptedLive() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (1, 1) })
        try harness.accept(40)
        try harness.turn()
        #expect(harness.sizes == [1])
        harness.worker.apply(DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (3, 10) })
        try harness.answer(.status(200))
        #expect(harness.open.count == 2)
        #expect(harness.sizes == [1, 10, 10])
        harness.worker.apply(DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (1, 5) })
        try harness.answer(.status(200))
        #expect(harness.open.count == 1)
        try harness.answer(.status(200))
        #expect(harness.sizes == [1, 10, 10, 5])
    }

    @Test func logLevel_isThatOfTheUpstream_orElseOfTheGateway() throws {
        let harness = try DeliveryHarness()
        func flush() throws -> Int {
            harness.worker.flush { _ in }
            try harness.turn()
            return harness.logged("flush finished")
        }
        #expect(try flush() == 1)
        harness.worker.apply(.with { $0.logLevel = .warning })
        #expect(try flush() == 1)
        harness.worker.apply(DeliverySettings())
        #expect(try flush() == 2)
    }

    // MARK: Holds

    @Test(arguments: [300, 2]) func wrongCredentials_failNoMessage_andAreProbedAFewTimesAMinute(longest: Int) throws {
        var settings = Self.single
        settings.retry.longest = .seconds(longest)
        let harness = try DeliveryHarness(settings: settings)
        harness.random.set(0)
        harness.transport.answerAll { _ in .status(403) }
        let ids = try harness.accept(10)
        try harness.run(for: .seconds(3600))
        #expect(harness.sent.count <= 241 + 8, "a few a minute, and those that follow soon")
        #expect(harness.worker.snapshot.health == .unauthorized)
        let records = try ids.map(harness.record)
        #expect(records.allSatisfy { $0.state == .queued && $0.attempts == 0 })
        #expect(harness.worker.snapshot.lastError?.errorClass == .unauthorized)

        harness.transport.answerAll { _ in .status(200) }
        harness.worker.apply(settings, upstream: PlainUpstream())
        try harness.turn()
        #expect(harness.ledger.delivered == 10)
        #expect(harness.worker.snapshot.health == .up)
        // Probes take one message after the other, so those without a lane change their order.
        #expect(Set(harness.sent.suffix(10)) == Set((1...10).map { "{\"n\":\($0)}" }))
    }

    @Test func hold_outlastsARestart() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.transport.answerAll { _ in .status(403) }
        try harness.accept(1)
        try harness.turn()
        try harness.restart(settings: Self.single)
        #expect(harness.worker.snapshot.hold == .credentials)
        #expect(harness.worker.snapshot.health == .unauthorized)
        #expect(harness.worker.snapshot.lastError?.detail == "forbidden")
        try harness.run(for: .seconds(14))
        #expect(harness.sent.count == 1)
        try harness.run(for: .seconds(280))
        #expect(harness.sent.count == 2, "the start may have come with other credentials")
        #expect(harness.worker.snapshot.health == .unauthorized)
    }

    @Test func lateSuccess_doesNotEndAHold() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (2, 1) })
        try harness.accept(3)
        try harness.turn()
        try harness.answer(.status(403))
        try harness.answer(.status(200))
        #expect(harness.worker.snapshot.health == .unauthorized)
        try harness.run(for: .seconds(100))
        #expect(harness.sent.count == 3, "the third message probes")
        #expect(harness.worker.snapshot.health == .unauthorized)
    }

    @Test func parkedLane_isProbedRarely_andOtherLanesAreDelivered() throws {
        let harness = try DeliveryHarness(ParkingUpstream(), settings: Self.single)
        harness.transport.answerAll { $0.text.contains("parked") ? .status(401) : .status(200) }
        try harness.accept([#"{"n":"parked"}"#, #"{"n":"parked too"}"#], lane: .digest(1))
        try harness.accept(3, lane: .digest(2))
        try harness.run(for: .seconds(3600))
        #expect(harness.ledger.delivered == 3)
        #expect(harness.sent.count <= 3 + 13)
        #expect(harness.worker.snapshot.health == .up)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(301))
        #expect(harness.ledger.delivered == 5)
    }

    /// The upstream is never idle, a covered message is scheduled, and another one is under suspicion.
    @Test(arguments: [LaneRule.acrossLanes, .perLane]) func flush_ends_whenWhatItCoversWasSent_underContinuousLoad(
        rule: LaneRule
    ) throws {
        let harness = try DeliveryHarness(
            PlainUpstream(laneRule: rule),
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (1, 1, .zero) })
        func lane(_ number: Int) -> Lane { rule == .acrossLanes ? .digest(Int64(number)) : .named("l\(number)") }
        func accept(_ number: Int, _ text: String = "x") throws {
            try harness.accept([#"{"n":"\#(text)"}"#], lane: lane(number))
        }
        func answer() throws {
            try harness.answer(harness.open.first?.contains("poison") == true ? .status(500) : .status(200))
        }
        try accept(1, "poison")
        try harness.turn()
        try answer()
        try harness.accept(
            [#"{"n":"scheduled"}"#], lane: lane(2), notBefore: harness.time.now + .seconds(3600))
        for number in 3...7 { try accept(number) }
        let reports = Inbox<FlushReport>()
        harness.worker.flush { if let report = $0 { reports.put(report) } }
        try harness.turn()
        var report: FlushReport?
        for number in 8...60 where report == nil {
            try accept(number)
            try accept(100 + number)
            harness.time.advance(by: .milliseconds(100))
            try answer()
            report = reports.takeAll().first
        }
        #expect(report?.delivered == 5)
        #expect(report?.failed == 0)
        #expect(harness.ledger.queued > 5, "later messages are still being sent")
    }

    // MARK: Stopping

    @Test func stoppingWorker_claimsNothing_andFinishesRequestsInFlight() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        let ids = try harness.accept(2)
        try harness.turn()
        harness.worker.beginStopping()
        try harness.turn()
        try harness.answer(.status(200))
        try harness.run(for: .seconds(60))
        #expect(harness.sent.count == 1)
        #expect(try ids.map(harness.state) == [.delivered, .queued])
    }

    @Test(arguments: [true, false]) func cancelledTransfer_isGivenBack_andCountsForNothing(isProbe: Bool) throws {
        let harness = try DeliveryHarness(settings: Self.single)
        let ids = try harness.accept(1)
        if isProbe {
            harness.transport.answerAll { _ in .status(503) }
            try harness.run(for: .seconds(60))
            harness.transport.answerAll(by: nil)
            while harness.open.isEmpty { harness.time.advance(by: try harness.turn()) }
        }
        try harness.turn()
        let failures = harness.worker.snapshot.failures
        harness.worker.beginStopping()
        try harness.answer(.failure(TransferFailure(.cancelled, mayHaveArrived: true, detail: "stopped")))
        #expect(harness.worker.snapshot.failures == failures)
        let record = try harness.record(ids[0])
        #expect(record.state == .queued)
        #expect(record.attempts == 0)
        #expect(try harness.outbox.attempts(of: ids[0]).last?.outcome == "cancelled")
        #expect(harness.metrics.ambiguousSends("plain").value == 1)

        try harness.restart(settings: Self.single)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(700))
        #expect(harness.ledger.delivered == 1)
        #expect(try harness.outbox.audit().isBalanced)
    }
}

/// Rejects the token of every lane.
private struct ParkingUpstream: PlainAtHeart {
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        response.status == 401 ? Decision(.park) : plain.judge(response, to: batch, in: context)
    }
}
