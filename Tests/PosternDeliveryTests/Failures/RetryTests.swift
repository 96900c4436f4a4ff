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
        let bench = try DeliveryBench(settings: Self.single)
        try bench.accept(1)
        try bench.turn()
        for (random, pause) in [(0.5, 500), (0.25, 500), (1.0, 4000)] {
            bench.draw(random)
            try bench.answer(.status(503))
            try bench.run(for: .milliseconds(pause - 1))
            #expect(bench.open.isEmpty)
            try bench.run(for: .milliseconds(3))
            #expect(bench.open == [#"{"n":1}"#])
        }
    }

    @Test func failedBatch_goesAgainAsItWas() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.batchMaxMessages, $0.batchMaxWait) = (3, .zero) })
        bench.transport.expect(.status(503))
        try bench.accept(3)
        try bench.turn()
        bench.transport.answerAll { _ in .status(200) }
        try bench.accept(3)
        try bench.run(for: .seconds(2))
        #expect(bench.sizes == [3, 3, 3])
        #expect(bench.sent[0] == bench.sent[2])
    }

    @Test func outage_costsNoAttempt_howeverLong() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.batchMaxMessages, $0.batchMaxWait) = (2, .zero) })
        bench.transport.answerAll { _ in .refusedConnection }
        let ids = try bench.accept(4)
        try bench.run(for: .seconds(7200))
        #expect(bench.worker.snapshot.health == .down)
        let records = try ids.map(bench.record)
        #expect(records.allSatisfy { $0.state == .queued && $0.attempts == 0 })
        #expect(records[0].lastError?.errorClass == .unreachable)
        #expect(bench.sent.count < 100)
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(700))
        #expect(try ids.map(bench.record).map(\.attempts) == [1, 1, 1, 1])
        #expect(bench.ledger.delivered == 4)
        #expect(bench.worker.snapshot.health == .up)
    }

    @Test func retryAfter_holdsTheWholeUpstream() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.expect(.status(429, headers: [("Retry-After", "60")]))
        try bench.accept(3)
        try bench.run(for: .milliseconds(59_990))
        #expect(bench.sent.count == 1)
        #expect(bench.worker.snapshot.reopensAt != nil)
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .milliseconds(20))
        #expect(bench.ledger.delivered == 3)
    }

    @Test func retryAfter_isObeyed_thoughAnOlderRequestSucceeds() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (2, 1) })
        try bench.accept(4)
        try bench.turn()
        try bench.answer(.status(429, headers: [("Retry-After", "60")]))
        try bench.answer(.status(200))
        try bench.run(for: .seconds(59))
        #expect(bench.sent.count == 2)
    }

    @Test func circuit_opensAfterFiveFailuresInARow_probesWithOne_andStartsSlowly() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero) })
        try bench.accept(40)
        try bench.turn()
        #expect(bench.open.count == 4)
        for _ in 1...4 { try bench.answer(.status(503)) }
        // Four failures leave it closed: four new messages are out.
        #expect(bench.open.count == 4)
        #expect(bench.worker.snapshot.health == .degraded)
        for _ in 1...4 { try bench.answer(.status(503)) }
        #expect(bench.open.isEmpty)
        #expect(bench.worker.snapshot.health == .down)
        while bench.open.isEmpty {
            bench.time.advance(by: try bench.turn())
            try bench.turn()
        }
        #expect(bench.open.count == 1)
        #expect(bench.worker.snapshot.circuit == .halfOpen)
        // A success lets one go, then two, then four.
        try bench.answer(.status(200))
        #expect(bench.worker.snapshot.health == .up)
        #expect(bench.open.count == 1)
        try bench.answer(.status(200))
        #expect(bench.open.count == 2)
        try bench.answer(.status(200))
        #expect(bench.open.count == 4)
        try bench.answer(.status(200))
        #expect(bench.open.count == 4)
    }

    @Test func probes_becomeRarer_asTheOutageLasts() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.answerAll { _ in .status(502) }
        try bench.accept(1000)
        try bench.run(for: .seconds(120))
        let early = bench.sent.count
        try bench.run(for: .seconds(3600))
        #expect(early > 5 && early < 40)
        #expect(bench.sent.count - early <= 13)
        #expect(bench.ledger.queued == 1000)
    }

    @Test func lostAnswers_areCounted_andTheMessagesSentAgain() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.expect(.reset, .refusedConnection, .status(200))
        let ids = try bench.accept(1)
        try bench.run(for: .seconds(10))
        #expect(bench.metrics.ambiguousSends("plain").value == 1)
        #expect(bench.ledger.ambiguousSends == 1)
        #expect(try bench.state(ids[0]) == .delivered)
        #expect(try bench.outbox.attempts(of: ids[0]).map(\.outcome) == ["retry", "retry", "delivered"])
    }

    @Test func laneKeepsItsOrder_withFourInFlight_andFailuresInBetween() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 2, .zero) })
        for round in 1...10 {
            for lane in 1...3 { try bench.accept(["{\"\(lane)\":\(round)}"], lane: .digest(Int64(lane))) }
        }
        var taken: [String] = []
        var count = 0
        for _ in 1...400 where bench.ledger.queued > 0 {
            let next = try bench.turn()
            if let body = bench.open.first {
                count += 1
                let isTaken = count % 3 != 0
                if isTaken { taken += body.split(separator: ",").map(String.init) }
                try bench.answer(isTaken ? .status(200) : .status(503))
            } else {
                bench.time.advance(by: next)
            }
        }
        #expect(bench.ledger.delivered == 30)
        for lane in 1...3 {
            let own = taken.filter { $0.hasPrefix("{\"\(lane)\"") }
            #expect(own == (1...10).map { "{\"\(lane)\":\($0)}" })
        }
    }

    @Test func restart_findsWhatWasLeft_retriesAndCircuit() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.answerAll { _ in .status(503) }
        let ids = try bench.accept(1)
        for _ in 1...6 { bench.time.advance(by: try bench.turn()) }
        try bench.turn()
        let before = try bench.record(ids[0])
        let reopensAt = try #require(bench.worker.snapshot.reopensAt)
        #expect(reopensAt > bench.time.now)

        let failures = bench.worker.snapshot.failures
        try bench.restart(settings: Self.single)
        #expect(bench.worker.snapshot.reopensAt == reopensAt)
        #expect(bench.worker.snapshot.health == .down)
        #expect(bench.worker.snapshot.failures == failures)
        #expect(try bench.record(ids[0]) == before)
        let sent = bench.sent.count
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: reopensAt - bench.time.now - .milliseconds(1))
        #expect(bench.sent.count == sent)
        try bench.run(for: .seconds(1))
        #expect(try bench.state(ids[0]) == .delivered)
    }

    @Test func restart_keepsTheAttempts_ofSuspects() throws {
        let bench = try DeliveryBench(settings: Self.single)
        bench.transport.answerAll { $0.text.contains("odd") ? .status(500) : .status(200) }
        let ids = try bench.accept([#"{"n":"odd"}"#])
        for _ in 1...2 {
            try bench.run(for: .milliseconds(100))
            try bench.accept(1)
            try bench.run(for: .seconds(3))
        }
        let attempts = try bench.record(ids[0]).attempts
        #expect(attempts > 0)
        try bench.restart(settings: Self.single)
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(30))
        #expect(try bench.record(ids[0]).attempts == attempts + 1)
        #expect(try bench.outbox.audit().isBalanced)
    }
}
