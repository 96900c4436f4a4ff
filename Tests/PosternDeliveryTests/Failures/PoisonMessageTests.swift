import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// Which messages of a rejected batch are marked as failed, and which are not.
@Suite(.timeLimit(.minutes(10))) struct PoisonMessageTests {
    private static let poison = #"{"n":"poison"}"#

    /// Messages with a poisoned one at `index`.
    private func payloads(_ count: Int, poisonAt index: Int) -> [String] {
        (0..<count).map { $0 == index ? Self.poison : "{\"n\":\($0)}" }
    }

    private func answering(_ status: Int) -> ScriptedTransport.Rule {
        { $0.text.contains("poison") ? .status(status) : .status(200) }
    }

    @Test(arguments: [0, 1, 249, 250, 371, 498, 499], [1, 4])
    func refusedBatch_isSplit_untilThePoisonMessageIsAlone(index: Int, maxInFlight: Int) throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.maxInFlight = maxInFlight })
        harness.transport.answerAll(by: answering(422))
        let ids = try harness.accept(payloads(500, poisonAt: index))
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.delivered == 499)
        #expect(harness.ledger.failed == 1)
        let poisoned = try harness.record(ids[index])
        #expect(poisoned.state == .failed)
        #expect(poisoned.attempts == 1)
        #expect(poisoned.lastError?.detail == "refused")
        // 2 · log2(500) + 1
        #expect(harness.sent.count - 1 <= 18)
        #expect(harness.worker.snapshot.health == .up)
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func poisonMessages_fail_andAllOthersAreDelivered() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxMessages = 100 })
        harness.transport.answerAll(by: answering(422))
        try harness.accept((0..<300).map { $0 % 37 == 5 ? Self.poison : "{\"n\":\($0)}" })
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.failed == 8)
        #expect(harness.ledger.delivered == 292)
    }

    @Test(arguments: [0, 250, 499], [1, 4])
    func poisonMessageOfASuspectedBatch_fails_onceOthersWereDelivered(index: Int, maxInFlight: Int) throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.maxInFlight = maxInFlight })
        harness.transport.answerAll(by: answering(500))
        let ids = try harness.accept(payloads(500, poisonAt: index))
        try harness.run(for: .seconds(60))
        #expect(harness.ledger.delivered == 499)
        #expect(try harness.state(ids[index]) == .queued, "nothing shows yet that it is the cause")
        #expect(harness.sent.count < 40)
        for _ in 1...60 where try harness.state(ids[index]) == .queued {
            try harness.accept(1)
            try harness.run(for: .seconds(10))
        }
        #expect(try harness.state(ids[index]) == .failed)
        #expect(try harness.record(ids[index]).attempts == 5)
        #expect(harness.ledger.failed == 1)
        #expect(harness.worker.snapshot.circuit == .closed)
    }

    @Test func batch_isSentAgainWhole_andCostsNoAttempt() throws {
        let harness = try DeliveryHarness()
        harness.transport.expect(.status(500), .status(500), .status(200))
        let ids = try harness.accept(5)
        try harness.run(for: .seconds(10))
        #expect(harness.sizes == [5, 5, 5])
        #expect(try harness.record(ids[0]).attempts == 1, "the one that delivered it")
        #expect(harness.ledger.delivered == 5)
    }

    @Test func outageWith500s_failsNoMessage_afterHours() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxMessages = 8 })
        harness.transport.answerAll { _ in .status(500) }
        try harness.accept(40)
        try harness.run(for: .seconds(4 * 3600))
        #expect(harness.ledger.queued == 40)
        #expect(harness.ledger.failed == 0)
        #expect(harness.worker.snapshot.health == .down)
        #expect(harness.sent.count < 300)
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(900))
        #expect(harness.ledger.delivered == 40)
    }

    @Test func suspect_staysQueued_afterTheSuccessOfAnEarlierRequest() throws {
        let harness = try DeliveryHarness(
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (2, 1, .zero) })
        let ids = try harness.accept([#"{"n":"slow"}"#, #"{"n":"suspect"}"#])
        harness.transport.answerAll { $0.text.contains("slow") ? nil : .status(500) }
        try harness.run(for: .seconds(20))
        // Enough attempts to make it fail; then the request that was sent before all of them succeeds.
        try harness.answer(.status(200))
        try harness.run(for: .seconds(3600))
        #expect(try harness.state(ids[0]) == .delivered)
        #expect(try harness.state(ids[1]) == .queued)
    }

    @Test func loneSuspect_fails_afterLaterMessagesWereDelivered() throws {
        let harness = try DeliveryHarness()
        harness.transport.answerAll(by: answering(500))
        let ids = try harness.accept([Self.poison])
        try harness.run(for: .seconds(3600))
        #expect(try harness.state(ids[0]) == .queued)
        for delivered in 1...4 {
            try harness.accept(1)
            try harness.run(for: .seconds(301))
            #expect(harness.ledger.delivered == delivered)
        }
        #expect(try harness.state(ids[0]) == .failed)
        #expect(harness.worker.snapshot.circuit == .closed)
    }

    @Test func eachMessage_hasItsOwnVerdict() throws {
        let harness = try DeliveryHarness(SortingUpstream())
        harness.transport.expect(.status(200, "taken refused again taken"), .status(200, "refused"))
        let ids = try harness.accept(4)
        try harness.run(for: .seconds(1))
        #expect(harness.sizes == [4, 1])
        #expect(try ids.map(harness.state) == [.delivered, .failed, .failed, .delivered])
        #expect(try harness.record(ids[1]).lastError?.detail == "refused")
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func messagesWithoutAVerdict_areSentAgain() throws {
        let harness = try DeliveryHarness(SortingUpstream())
        harness.transport.expect(.status(200, "taken"), .status(200, "taken taken taken"))
        try harness.accept(3)
        try harness.run(for: .seconds(1))
        #expect(harness.sizes == [3, 2])
        #expect(harness.ledger.delivered == 3)
    }

    @Test func responseThatSettlesNoMessage_isAFailure_andIsRetriedLater() throws {
        let harness = try DeliveryHarness(SortingUpstream())
        harness.transport.answerAll { _ in .status(200, "again again again") }
        try harness.accept(3)
        try harness.run(for: .seconds(60))
        #expect(harness.sent.count < 10)
        #expect(harness.ledger.queued == 3)
    }

    @Test func sequence_continues_fromWhatItHasReached() throws {
        let harness = try DeliveryHarness(SteppingUpstream())
        harness.transport.answerAll { _ in .status(200) }
        let ids = try harness.accept(1)
        try harness.run(for: .seconds(1))
        #expect(harness.sent == ["step 0", "step 1", "step 2"])
        #expect(try harness.state(ids[0]) == .delivered)
    }

    @Test func messageWithNothingToSend_isSettled_andTheRestGoes() throws {
        let harness = try DeliveryHarness(SkippingUpstream())
        harness.transport.answerAll { _ in .status(200) }
        let ids = try harness.accept([#"{"skip":1}"#, #"{"skip":2}"#, #"{"n":3}"#])
        try harness.run(for: .seconds(1))
        #expect(harness.sent == [#"{"n":3}"#])
        #expect(try ids.map(harness.state) == [.failed, .failed, .delivered])
        #expect(try harness.record(ids[0]).lastError?.detail == "nothing to send")
        #expect(try harness.outbox.attempts(of: ids[0]).isEmpty)
    }

    @Test func laneThatHasToWait_isAskedAgainThen_andNotBefore() throws {
        let harness = try DeliveryHarness(WaitingUpstream(until: Timestamp(milliseconds: 1_767_225_660_000)))
        harness.transport.answerAll { _ in .status(200) }
        try harness.accept(3)
        #expect(try harness.run(for: .seconds(59)) < 30)
        #expect(harness.sent.isEmpty)
        try harness.run(for: .seconds(2))
        #expect(harness.ledger.delivered == 3)
    }
}

/// Reads one word of the response for each message: `taken`, `again`, or `refused`.
private struct SortingUpstream: PlainAtHeart {
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        Decision(
            .each(
                String(decoding: response.body, as: UTF8.self).split(separator: " ").map { word in
                    switch word {
                    case "taken": .delivered
                    case "again": .again
                    default: .reject(reason: String(word))
                    }
                }))
    }
}

/// An upstream that sends each message in three steps.
private struct SteppingUpstream: PlainAtHeart {
    private func step(of message: Message) -> UInt8 { message.progress?.first ?? 0 }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .send(UpstreamRequest(url: "http://plain.test/", body: Array("step \(step(of: messages[0]))".utf8)), count: 1)
    }
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        let step = step(of: batch.messages[0])
        return Decision(step < 2 ? .proceed(progress: [step + 1]) : .delivered())
    }
}

/// An upstream that does not send messages containing `skip`.
private struct SkippingUpstream: PlainAtHeart {
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        let skipped = messages.prefix { String(decoding: $0.payload, as: UTF8.self).contains("skip") }
        guard skipped.isEmpty else {
            return .settle(count: skipped.count, as: .failed, reason: "nothing to send")
        }
        return plain.plan(for: messages, in: context)
    }
}
