import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// A receiver that rejects everything, for example after a release of its own, must not turn the queue into dead letters.
@Suite(.timeLimit(.minutes(10))) struct MassRejectionTests {
    @Test(arguments: [1, 100, 500])
    func receiverThatRejectsAllForTenMinutes_costsFewDeadLetters_andNoneOfTheRest(batch: Int) throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxMessages = batch })
        harness.transport.answerAll { _ in .status(422) }
        let rate = batch == 1 ? 2 : 20
        for _ in 1...600 {
            try harness.accept(rate)
            try harness.run(for: .seconds(1))
        }
        #expect(harness.ledger.failed == 51)
        #expect(harness.ledger.queued == 600 * rate - 51)
        #expect(harness.worker.snapshot.endpoints.map(\.waitingFor) == [.guard])
        #expect(harness.worker.snapshot.health == .degraded)
        #expect(harness.sent.count < 250)
        let probes = harness.sent.count
        try harness.run(for: .seconds(300))
        #expect(harness.sent.count - probes == 10, "one each half minute")
        #expect(harness.sizes.suffix(10).allSatisfy { $0 == 1 })

        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(120))
        #expect(harness.ledger.failed == 51)
        #expect(harness.ledger.delivered == 600 * rate - 51)
        #expect(harness.worker.snapshot.health == .up)
        #expect(harness.logged("endpoint accepted a probe and is held no more") == 1)
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func rejectionsThatTheOperatorCallsRight_becomeDeadLetters() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxMessages = 50 })
        harness.transport.answerAll { _ in .status(422) }
        let ids = try harness.accept(1000)
        try harness.run(for: .seconds(10))
        #expect(harness.ledger.failed == 51)
        let waiting = try harness.record(ids[999])
        #expect(waiting.state == .queued)
        #expect(waiting.attempts == 0)
        harness.worker.resume()
        try harness.run(for: .seconds(10))
        #expect(harness.ledger.failed == 1000)
        #expect(harness.worker.snapshot.health == .up)
        try harness.accept(1000)
        try harness.run(for: .seconds(10))
        #expect(harness.ledger.failed == 1051, "what came later is guarded again")
    }

    @Test func hold_outlastsARestart_andAKill() throws {
        let settings = DeliverySettings.with { $0.batchMaxMessages = 50 }
        let harness = try DeliveryHarness(settings: settings)
        harness.transport.answerAll { _ in .status(422) }
        try harness.accept(500)
        try harness.run(for: .seconds(10))
        for round in 1...3 {
            if round == 2 { try harness.kill(settings: settings) } else { try harness.restart(settings: settings) }
            let before = harness.sent.count
            try harness.run(for: .seconds(25))
            #expect(harness.sent.count == before, "a restart is no reason to probe")
            try harness.run(for: .seconds(70))
            #expect(harness.ledger.failed == 51)
        }
        harness.worker.resume()
        try harness.run(for: .seconds(1))
        try harness.restart(settings: settings)
        try harness.run(for: .seconds(60))
        #expect(harness.ledger.failed == 500, "what the operator said is remembered")
    }

    @Test func endpointThatRejectsAll_stopsNoOther() throws {
        let harness = try DeliveryHarness(
            EndpointTests.ManyEndpoints(),
            settings: DeliverySettings.with { ($0.batchMaxMessages, $0.batchMaxWait) = (1, .zero) })
        harness.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(422) : .status(200) }
        for number in 0..<200 { try harness.accept(2, lane: .named("bad/\(number)")) }
        try harness.run(for: .seconds(5))
        #expect(harness.ledger.failed == 51)
        for number in 0..<50 {
            let ids = try harness.accept(2, lane: .named("good/\(number)"))
            try harness.run(for: .milliseconds(100))
            #expect(try ids.allSatisfy { try harness.state($0) == .delivered })
        }
        #expect(harness.worker.snapshot.endpoints.map(\.name) == ["bad"])
        try harness.run(for: .seconds(600))
        #expect(harness.ledger.failed == 51)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(120))
        #expect(harness.ledger.queued == 0)
        #expect(harness.ledger.failed == 51)
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func successOfARequestThatWasInFlight_endsNoHold() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.batchMaxMessages, $0.batchMaxWait, $0.maxInFlight) = (1, .zero, 2) })
        harness.transport.answerAll { $0.text.contains("slow") ? nil : .status(422) }
        try harness.accept([#"{"n":"slow"}"#])
        try harness.turn()
        try harness.accept(100)
        try harness.run(for: .seconds(5))
        #expect(harness.ledger.failed == 51)
        try harness.answer(.status(200))
        try harness.run(for: .seconds(5))
        #expect(harness.ledger.delivered == 1)
        #expect(harness.ledger.failed == 51)
        #expect(harness.worker.snapshot.endpoints.map(\.waitingFor) == [.guard])
    }

    @Test func fewRejections_amongMany_holdNothing() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxMessages = 100 })
        harness.transport.answerAll { $0.text.contains("poison") ? .status(422) : .status(200) }
        for _ in 1...20 {
            try harness.accept((0..<100).map { $0 < 30 ? #"{"n":"poison"}"# : "{\"n\":\($0)}" })
            try harness.run(for: .seconds(1))
        }
        #expect(harness.ledger.failed == 600)
        #expect(harness.ledger.delivered == 1400)
    }

    @Test func guardThatIsTurnedOff_letsAllFail() throws {
        let settings = DeliverySettings.with { ($0.batchMaxMessages, $0.rejectionGuard.share) = (50, 0) }
        let harness = try DeliveryHarness(settings: settings)
        harness.transport.answerAll { _ in .status(422) }
        try harness.accept(300)
        try harness.run(for: .seconds(10))
        #expect(harness.ledger.failed == 300)
    }
}
