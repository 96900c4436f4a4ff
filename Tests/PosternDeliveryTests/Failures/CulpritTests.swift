import PosternCore
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

/// Who is blamed for a refusal, and who is not.
@Suite(.timeLimit(.minutes(10))) struct CulpritTests {
    private static let poison = #"{"n":"poison"}"#

    /// Messages with a poisoned one at `place`.
    private func payloads(_ count: Int, poisonAt place: Int) -> [String] {
        (0..<count).map { $0 == place ? Self.poison : "{\"n\":\($0)}" }
    }

    private func answering(_ status: Int) -> ScriptedTransport.Rule {
        { $0.text.contains("poison") ? .status(status) : .status(200) }
    }

    @Test(arguments: [0, 1, 249, 250, 371, 498, 499], [1, 4])
    func refusedBatch_isSplit_untilTheCulpritStandsAlone(place: Int, maxInFlight: Int) throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.maxInFlight = maxInFlight })
        bench.transport.answerAll(by: answering(422))
        let ids = try bench.accept(payloads(500, poisonAt: place))
        try bench.run(for: .seconds(1))
        #expect(bench.ledger.delivered == 499)
        #expect(bench.ledger.failed == 1)
        let culprit = try bench.record(ids[place])
        #expect(culprit.state == .failed)
        #expect(culprit.attempts == 1)
        #expect(culprit.lastError?.detail == "refused")
        // 2 · log2(500) + 1
        #expect(bench.sent.count - 1 <= 18)
        #expect(bench.worker.snapshot.health == .up)
        #expect(try bench.outbox.audit().isBalanced)
    }

    @Test func severalCulprits_areAllFound() throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.batchMaxMessages = 100 })
        bench.transport.answerAll(by: answering(422))
        try bench.accept((0..<300).map { $0 % 37 == 5 ? Self.poison : "{\"n\":\($0)}" })
        try bench.run(for: .seconds(1))
        #expect(bench.ledger.failed == 8)
        #expect(bench.ledger.delivered == 292)
    }

    @Test(arguments: [0, 250, 499], [1, 4])
    func suspectedBatch_givesUpItsCulprit_onceTheOthersWereTaken(place: Int, maxInFlight: Int) throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.maxInFlight = maxInFlight })
        bench.transport.answerAll(by: answering(500))
        let ids = try bench.accept(payloads(500, poisonAt: place))
        try bench.run(for: .seconds(60))
        #expect(bench.ledger.delivered == 499)
        #expect(try bench.state(ids[place]) == .queued, "nothing shows yet that it is the cause")
        #expect(bench.sent.count < 40)
        for _ in 1...60 where try bench.state(ids[place]) == .queued {
            try bench.accept(1)
            try bench.run(for: .seconds(10))
        }
        #expect(try bench.state(ids[place]) == .failed)
        #expect(try bench.record(ids[place]).attempts == 5)
        #expect(bench.ledger.failed == 1)
        #expect(bench.worker.snapshot.circuit == .closed)
    }

    @Test func batch_isSentAgainWhole_andCostsNoAttempt() throws {
        let bench = try DeliveryBench()
        bench.transport.expect(.status(500), .status(500), .status(200))
        let ids = try bench.accept(5)
        try bench.run(for: .seconds(10))
        #expect(bench.sizes == [5, 5, 5])
        #expect(try bench.record(ids[0]).attempts == 1, "the one that delivered it")
        #expect(bench.ledger.delivered == 5)
    }

    @Test func outageWith500s_blamesNobody_howeverLong() throws {
        let bench = try DeliveryBench(settings: DeliverySettings.with { $0.batchMaxMessages = 8 })
        bench.transport.answerAll { _ in .status(500) }
        try bench.accept(40)
        try bench.run(for: .seconds(4 * 3600))
        #expect(bench.ledger.queued == 40)
        #expect(bench.ledger.failed == 0)
        #expect(bench.worker.snapshot.health == .down)
        #expect(bench.sent.count < 300)
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(900))
        #expect(bench.ledger.delivered == 40)
    }

    @Test func lateSuccess_ofARequestSentBefore_convictsNobody() throws {
        let bench = try DeliveryBench(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (2, 1, .zero) })
        let ids = try bench.accept([#"{"n":"slow"}"#, #"{"n":"suspect"}"#])
        bench.transport.answerAll { $0.text.contains("slow") ? nil : .status(500) }
        try bench.run(for: .seconds(20))
        // Enough attempts to make it fail; then the request that was sent before all of them succeeds.
        try bench.answer(.status(200))
        try bench.run(for: .seconds(3600))
        #expect(try bench.state(ids[0]) == .delivered)
        #expect(try bench.state(ids[1]) == .queued)
    }

    @Test func loneCulprit_isConvicted_whenOthersComeThroughLater() throws {
        let bench = try DeliveryBench()
        bench.transport.answerAll(by: answering(500))
        let ids = try bench.accept([Self.poison])
        try bench.run(for: .seconds(3600))
        #expect(try bench.state(ids[0]) == .queued)
        for delivered in 1...4 {
            try bench.accept(1)
            try bench.run(for: .seconds(301))
            #expect(bench.ledger.delivered == delivered)
        }
        #expect(try bench.state(ids[0]) == .failed)
        #expect(bench.worker.snapshot.circuit == .closed)
    }

    @Test func eachMessage_hasItsOwnWord() throws {
        let bench = try DeliveryBench(SortingUpstream())
        bench.transport.expect(.status(200, "taken refused again taken"), .status(200, "refused"))
        let ids = try bench.accept(4)
        try bench.run(for: .seconds(1))
        #expect(bench.sizes == [4, 1])
        #expect(try ids.map(bench.state) == [.delivered, .failed, .failed, .delivered])
        #expect(try bench.record(ids[1]).lastError?.detail == "refused")
        #expect(try bench.outbox.audit().isBalanced)
    }

    @Test func messagesWithoutAWord_areSentAgain() throws {
        let bench = try DeliveryBench(SortingUpstream())
        bench.transport.expect(.status(200, "taken"), .status(200, "taken taken taken"))
        try bench.accept(3)
        try bench.run(for: .seconds(1))
        #expect(bench.sizes == [3, 2])
        #expect(bench.ledger.delivered == 3)
    }

    @Test func answerThatSettlesNobody_isAFailure_andWaits() throws {
        let bench = try DeliveryBench(SortingUpstream())
        bench.transport.answerAll { _ in .status(200, "again again again") }
        try bench.accept(3)
        try bench.run(for: .seconds(60))
        #expect(bench.sent.count < 10)
        #expect(bench.ledger.queued == 3)
    }

    @Test func sequence_goesOn_fromWhatItHasReached() throws {
        let bench = try DeliveryBench(SteppingUpstream())
        bench.transport.answerAll { _ in .status(200) }
        let ids = try bench.accept(1)
        try bench.run(for: .seconds(1))
        #expect(bench.sent == ["step 0", "step 1", "step 2"])
        #expect(try bench.state(ids[0]) == .delivered)
    }

    @Test func messageWithNothingToSend_isSettled_andTheRestGoes() throws {
        let bench = try DeliveryBench(SkippingUpstream())
        bench.transport.answerAll { _ in .status(200) }
        let ids = try bench.accept([#"{"skip":1}"#, #"{"skip":2}"#, #"{"n":3}"#])
        try bench.run(for: .seconds(1))
        #expect(bench.sent == [#"{"n":3}"#])
        #expect(try ids.map(bench.state) == [.failed, .failed, .delivered])
        #expect(try bench.record(ids[0]).lastError?.detail == "nothing to send")
        #expect(try bench.outbox.attempts(of: ids[0]).isEmpty)
    }

    @Test func laneThatHasToWait_isAskedAgainThen_andNotBefore() throws {
        let bench = try DeliveryBench(WaitingUpstream(until: Timestamp(milliseconds: 1_767_225_660_000)))
        bench.transport.answerAll { _ in .status(200) }
        try bench.accept(3)
        #expect(try bench.run(for: .seconds(59)) < 30)
        #expect(bench.sent.isEmpty)
        try bench.run(for: .seconds(2))
        #expect(bench.ledger.delivered == 3)
    }
}
