import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore
@testable import PosternDelivery

/// Acceptance and delivery change the same state concurrently.
@Suite(.timeLimit(.minutes(10))) struct StateRaceTests {
    /// An upstream that counts accepted and delivered messages in one value.
    private struct Counting: PlainAtHeart, StateValidatingUpstream {
        let plain = PlainUpstream("counting", laneRule: .perLane)
        static let key = "count"

        static func more(_ state: any UpstreamState) -> [StateChange] {
            [.set(key: key, value: [(state.value(of: key)?.first ?? 0) + 1])]
        }

        func validate(
            _ payload: JSONValue, of kind: Kind, in context: ValidationContext
        ) throws(InvalidPayload) -> ValidPayload { ValidPayload(lane: .named("a")) }
        func validate(_ candidate: PendingMessage, against state: any UpstreamState) -> [StateChange] {
            Self.more(state)
        }
        func limits(_ configured: BatchLimits) -> BatchLimits { .init(maxMessages: 1, maxBytes: configured.maxBytes) }
        func plan(for messages: [Message], in context: PlanContext) -> Plan {
            .send(UpstreamRequest(url: "http://counting.test/"), count: 1)
        }
        func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
            Decision(Judgement(.delivered())) { Self.more($0) }
        }
    }

    @Test func changeOfAnAcceptance_isNotUndone_byAnAnswerJudgedBeforeIt() throws {
        let harness = try DeliveryHarness(Counting())
        try harness.post(["{}"], as: "thing")
        try harness.run(for: .seconds(1))
        // The writer does not turn: the next message is accepted only after the answer has been judged, yet before that
        // is on disk.
        let accepted = Inbox<Void>()
        let message = NewMessage(
            queue: harness.queue.target, kind: "thing", lane: .named("a"), acceptedAt: harness.time.now,
            bytes: Array("{}".utf8))
        harness.outbox.append([message]) { _ in accepted.put(()) }
        harness.transport.answer(.status(200))
        _ = harness.worker.turn()
        harness.commit()
        #expect(!accepted.isEmpty)
        try harness.turn()
        let count = try harness.outbox.withState(of: harness.queue.number) { $0.value(of: Counting.key) }
        // Two accepted, one delivered.
        #expect(count == [3])
    }
}
