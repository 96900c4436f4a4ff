import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

@Suite(.timeLimit(.minutes(10))) struct RetryTests {
    /// One message to a batch, one batch at a time, no collecting.
    static let single = DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (1, 1, .zero) }

    @Test func failedBatch_isSentAgain_afterTheJitteredBackoff() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        try harness.accept(1)
        try harness.turn()
        for (random, pause) in [(0.5, 500), (0.25, 500), (1.0, 4000)] {
            harness.random.set(random)
            try harness.answer(.status(503))
            try harness.run(for: .milliseconds(pause - 1))
            #expect(harness.open.isEmpty)
            try harness.run(for: .milliseconds(3))
            #expect(harness.open == [#"{"n":1}"#])
        }
    }

    @Test func failedBatch_isSentAgainUnchanged() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.batchMaxMessages, $0.batchMaxWait) = (3, .zero) })
        harness.transport.expect(.status(503))
        try harness.accept(3)
        try harness.turn()
        harness.transport.answerAll { _ in .status(200) }
        try harness.accept(3)
        try harness.run(for: .seconds(2))
        #expect(harness.sizes == [3, 3, 3])
        #expect(harness.sent[0] == harness.sent[2])
    }

    @Test func outage_costsNoAttempt_howeverLong() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.batchMaxMessages, $0.batchMaxWait) = (2, .zero) })
        harness.transport.answerAll { _ in .refusedConnection }
        let ids = try harness.accept(4)
        try harness.run(for: .seconds(7200))
        #expect(harness.worker.snapshot.health == .down)
        let records = try ids.map(harness.record)
        #expect(records.allSatisfy { $0.state == .queued && $0.attempts == 0 })
        #expect(records[0].lastError?.errorClass == .unreachable)
        #expect(harness.sent.count < 100)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(700))
        #expect(try ids.map(harness.record).map(\.attempts) == [1, 1, 1, 1])
        #expect(harness.ledger.delivered == 4)
        #expect(harness.worker.snapshot.health == .up)
    }

    @Test func retryAfter_holdsTheWholeUpstream() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.transport.expect(.status(429, headers: [("Retry-After", "60")]))
        try harness.accept(3)
        try harness.run(for: .milliseconds(59_990))
        #expect(harness.sent.count == 1)
        #expect(harness.worker.snapshot.reopensAt != nil)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .milliseconds(20))
        #expect(harness.ledger.delivered == 3)
    }

    @Test func retryAfter_isObeyed_thoughAnOlderRequestSucceeds() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (2, 1) })
        try harness.accept(4)
        try harness.turn()
        try harness.answer(.status(429, headers: [("Retry-After", "60")]))
        try harness.answer(.status(200))
        try harness.run(for: .seconds(59))
        #expect(harness.sent.count == 2)
    }

    @Test func circuit_opensAfterFiveFailuresInARow_probesWithOne_andStartsSlowly() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero) })
        try harness.accept(40)
        try harness.turn()
        #expect(harness.open.count == 4)
        for _ in 1...4 { try harness.answer(.status(503)) }
        // Four failures leave it closed: four new messages are out.
        #expect(harness.open.count == 4)
        #expect(harness.worker.snapshot.health == .degraded)
        for _ in 1...4 { try harness.answer(.status(503)) }
        #expect(harness.open.isEmpty)
        #expect(harness.worker.snapshot.health == .down)
        while harness.open.isEmpty {
            harness.time.advance(by: try harness.turn())
            try harness.turn()
        }
        #expect(harness.open.count == 1)
        #expect(harness.worker.snapshot.circuit == .halfOpen)
        // A success allows one request, then two, then four.
        try harness.answer(.status(200))
        #expect(harness.worker.snapshot.health == .up)
        #expect(harness.open.count == 1)
        try harness.answer(.status(200))
        #expect(harness.open.count == 2)
        try harness.answer(.status(200))
        #expect(harness.open.count == 4)
        try harness.answer(.status(200))
        #expect(harness.open.count == 4)
    }

    @Test func probes_becomeRarer_asTheOutageLasts() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.transport.answerAll { _ in .status(502) }
        try harness.accept(1000)
        try harness.run(for: .seconds(120))
        let early = harness.sent.count
        try harness.run(for: .seconds(3600))
        #expect(early > 5 && early < 40)
        #expect(harness.sent.count - early <= 13)
        #expect(harness.ledger.queued == 1000)
    }

    @Test func lostAnswers_areCounted_andTheMessagesSentAgain() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.transport.expect(.reset, .refusedConnection, .status(200))
        let ids = try harness.accept(1)
        try harness.run(for: .seconds(10))
        #expect(harness.metrics.ambiguousSends("plain").value == 1)
        #expect(harness.ledger.ambiguousSends == 1)
        #expect(try harness.state(ids[0]) == .delivered)
        #expect(try harness.outbox.attempts(of: ids[0]).map(\.outcome) == ["retry", "retry", "delivered"])
    }

    @Test func laneKeepsItsOrder_withFourInFlight_andFailuresInBetween() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 2, .zero) })
        for round in 1...10 {
            for lane in 1...3 { try harness.accept(["{\"\(lane)\":\(round)}"], lane: .digest(Int64(lane))) }
        }
        var taken: [String] = []
        var count = 0
        for _ in 1...400 where harness.ledger.queued > 0 {
            let next = try harness.turn()
            if let body = harness.open.first {
                count += 1
                let isTaken = count % 3 != 0
                if isTaken { taken += body.split(separator: ",").map(String.init) }
                try harness.answer(isTaken ? .status(200) : .status(503))
            } else {
                harness.time.advance(by: next)
            }
        }
        #expect(harness.ledger.delivered == 30)
        for lane in 1...3 {
            let own = taken.filter { $0.hasPrefix("{\"\(lane)\"") }
            #expect(own == (1...10).map { "{\"\(lane)\":\($0)}" })
        }
    }

    @Test func restart_findsWhatWasLeft_retriesAndCircuit() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.transport.answerAll { _ in .status(503) }
        let ids = try harness.accept(1)
        for _ in 1...6 { harness.time.advance(by: try harness.turn()) }
        try harness.turn()
        let before = try harness.record(ids[0])
        let reopensAt = try #require(harness.worker.snapshot.reopensAt)
        #expect(reopensAt > harness.time.now)

        let failures = harness.worker.snapshot.failures
        try harness.restart(settings: Self.single)
        #expect(harness.worker.snapshot.reopensAt == reopensAt)
        #expect(harness.worker.snapshot.health == .down)
        #expect(harness.worker.snapshot.failures == failures)
        #expect(try harness.record(ids[0]) == before)
        let sent = harness.sent.count
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: reopensAt - harness.time.now - .milliseconds(1))
        #expect(harness.sent.count == sent)
        try harness.run(for: .seconds(1))
        #expect(try harness.state(ids[0]) == .delivered)
    }

    @Test func restart_keepsTheAttempts_ofSuspects() throws {
        let harness = try DeliveryHarness(settings: Self.single)
        harness.transport.answerAll { $0.text.contains("odd") ? .status(500) : .status(200) }
        let ids = try harness.accept([#"{"n":"odd"}"#])
        for _ in 1...2 {
            try harness.run(for: .milliseconds(100))
            try harness.accept(1)
            try harness.run(for: .seconds(3))
        }
        let attempts = try harness.record(ids[0]).attempts
        #expect(attempts > 0)
        try harness.restart(settings: Self.single)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(30))
        #expect(try harness.record(ids[0]).attempts == attempts + 1)
        #expect(try harness.outbox.audit().isBalanced)
    }
}
