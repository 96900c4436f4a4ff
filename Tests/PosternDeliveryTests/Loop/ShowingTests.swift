import InMemoryLogging
import Logging
import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// The state that a worker publishes.
@Suite(.timeLimit(.minutes(10))) struct ShowingTests {
    typealias Health = UpstreamSnapshot.Health
    private static let later = Timestamp(milliseconds: 2_000_000)

    static let states: [(Health, UpstreamSnapshot)] = [
        (.up, snapshot { _ in }),
        (.degraded, snapshot { $0.failures = 1 }),
        (.down, snapshot { $0.circuit = .open(until: later) }),
        (.down, snapshot { $0.circuit = .halfOpen }),
        (.misconfigured, snapshot { ($0.circuit, $0.hold) = (.open(until: later), .configuration) }),
        (.degraded, snapshot { $0.endpoints = [.init(name: "a", waitingFor: .credentials, until: later)] }),
        (.unauthorized, snapshot { ($0.circuit, $0.hold) = (.open(until: later), .credentials) }),
        (.unauthorized, snapshot { ($0.circuit, $0.hold) = (.halfOpen, .credentials) }),
        (.paused, snapshot { $0.pause = Pause() }),
        (.paused, snapshot { ($0.pause, $0.hold) = (Pause(), .credentials) }),
        (.up, snapshot { $0.token = .init(isValid: false) }),
        (.up, snapshot { $0.token = .init(isValid: true) }),
        (.degraded, snapshot { $0.token = .init(isValid: true, failures: 2) }),
        (.degraded, snapshot { $0.token = .init(isValid: true, failures: 2, credentialsRefused: true) }),
        (.down, snapshot { $0.token = .init(isValid: false, failures: 1) }),
        (.unauthorized, snapshot { $0.token = .init(isValid: false, failures: 1, credentialsRefused: true) }),
    ]

    private static func snapshot(_ change: (inout UpstreamSnapshot) -> Void) -> UpstreamSnapshot {
        var snapshot = UpstreamSnapshot()
        change(&snapshot)
        return snapshot
    }

    @Test(arguments: states) func health_isTheWorstThatIsKnown(health: Health, snapshot: UpstreamSnapshot) {
        #expect(snapshot.health == health)
    }

    @Test func snapshot_showsWhatHappened() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        #expect(harness.worker.snapshot == UpstreamSnapshot())
        try harness.accept(2)
        try harness.turn()
        #expect(harness.worker.snapshot.inFlight == 1)
        harness.time.advance(by: .seconds(1))
        let answeredAt = harness.time.now
        try harness.answer(.status(200))
        #expect(harness.worker.snapshot.lastSuccessAt == answeredAt)
        try harness.answer(.status(429, headers: [("Retry-After", "60")]))
        let snapshot = harness.worker.snapshot
        #expect(snapshot.health == .down)
        #expect(snapshot.inFlight == 0)
        #expect(snapshot.reopensAt == answeredAt + .seconds(60))
        #expect(snapshot.lastError == AttemptError(.busy, status: 429, detail: "HTTP 429", at: answeredAt))
    }

    @Test func lastSuccess_outlastsARestart_afterTheClockWasSetBack() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        harness.transport.answerAll { _ in .status(200) }
        try harness.accept(1)
        try harness.turn()
        harness.time.setWallClock(back: .seconds(3600))
        let answeredAt = harness.time.now
        try harness.accept(1)
        try harness.turn()
        try harness.restart(settings: RetryTests.single)
        #expect(harness.worker.snapshot.lastSuccessAt == answeredAt)
    }

    @Test func failures_haveTheirClass() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        try harness.accept(1)
        let results: [(TransferResult, AttemptError.Class)] = [
            (.refusedConnection, .unreachable), (.reset, .interrupted), (.status(503), .failing),
            (.failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "too slow")), .timeout),
            (.failure(TransferFailure(.garbled, mayHaveArrived: true, detail: "no HTTP")), .garbled),
            (.status(429), .busy), (.status(418), .busy), (.status(302), .misconfigured),
            (.status(500), .failing), (.status(403), .unauthorized),
        ]
        for (result, errorClass) in results {
            while harness.open.isEmpty { harness.time.advance(by: try harness.turn()) }
            try harness.answer(result)
            #expect(harness.worker.snapshot.lastError?.errorClass == errorClass)
        }
    }

    @Test func attempt_isOneLine_withItsNumberAndItsPause() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        harness.transport.expect(.status(503), .refusedConnection, .status(200))
        try harness.accept(1)
        try harness.run(for: .seconds(10))
        let lines = harness.log.entries.filter { $0.message == "batch attempted" }.map {
            $0.metadata.mapValues { "\($0)" }
        }
        #expect(lines.map { $0["attempt"] } == ["1", "2", "3"])
        #expect(lines.map { $0["verdict"] } == ["retry", "retry", "delivered"])
        #expect(lines.map { $0["retry.delayMs"] } == ["1000", "2000", nil])
        #expect(lines.map { $0["http.status"] } == ["503", nil, "200"])
        #expect(lines[0]["upstream"] == "plain")
        #expect(lines[0]["batch.messages"] == "1")
        #expect(harness.metrics.attempts("plain", "retry").value == 2)
        #expect(harness.metrics.attempts("plain", "delivered").value == 1)
    }

    @Test func outage_isReportedOnce_andItsEnd() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        harness.transport.answerAll { _ in .status(503) }
        try harness.accept(20)
        try harness.run(for: .seconds(3600))
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(301))
        let notices = harness.log.entries.filter { $0.level >= .notice }
        #expect(notices.map(\.message) == ["upstream is down", "upstream is back"])
        #expect(notices.map(\.level) == [.warning, .notice])
    }

    /// The line about the hold is enough.
    @Test(arguments: [(401, true), (403, true), (403, false)]) func hold_isNotReportedAsAnOutage_too(
        status: Int, hasToken: Bool
    ) throws {
        let harness = try DeliveryHarness(
            PlainUpstream(tokenSource: hasToken ? PlainTokens() : nil), settings: RetryTests.single)
        harness.transport.answerAll {
            $0.url == DeliveryHarness.tokenURL ? .status(200, "token:36000") : .status(status)
        }
        try harness.accept(3)
        try harness.run(for: .seconds(600))
        let notices = harness.log.entries.filter { $0.level >= .notice }
        #expect(notices.map(\.message) == ["upstream rejected our credentials or URL; messages are held"])
    }

    @Test func notice_isLoggedOnce() throws {
        let harness = try DeliveryHarness()
        for notice in ["a", "a", "b"] { harness.worker.report(UpstreamNotice(notice)) }
        try harness.turn()
        let lines = harness.log.entries.filter { $0.message == "upstream response contains a notice" }
        #expect(lines.map { $0.metadata["notice"].map { "\($0)" } } == ["a", "b"])
        #expect(lines.allSatisfy { $0.level == .warning })
    }

    /// A request has room for one trace, so it has none if its messages belong to several.
    @Test func trace_isSentAndLogged_ifAllMessagesBelongToIt() throws {
        let harness = try DeliveryHarness()
        harness.transport.answerAll { _ in .status(200) }
        for (texts, trace) in [(["1", "2"], "00-a"), (["3"], "00-b"), (["4"], nil)] {
            try harness.accept(texts, traceParent: trace)
            try harness.run(for: .seconds(1))
        }
        try harness.accept(["5"], traceParent: "00-a")
        try harness.accept(["6"], traceParent: "00-b")
        try harness.run(for: .seconds(1))
        let expected = ["00-a", "00-b", nil, nil]
        let sent = harness.transport.requests.map { request in
            request.headers.first { $0.name == "traceparent" }?.value
        }
        #expect(sent == expected)
        let logged = harness.log.entries.filter { $0.message == "batch attempted" }.map {
            $0.metadata["traceparent"].map { "\($0)" }
        }
        #expect(logged == expected)
    }

    /// It stays with a message that fails and is queued again.
    @Test func trace_isStored() throws {
        let harness = try DeliveryHarness()
        harness.transport.expect(.status(422), .status(200))
        let ids = try harness.accept(["1"], traceParent: "00-a")
        try harness.run(for: .seconds(1))
        #expect(try harness.state(ids[0]) == .failed)
        try harness.requeue(ids[0])
        try harness.run(for: .seconds(1))
        #expect(try harness.state(ids[0]) == .delivered)
        #expect(harness.transport.requests.allSatisfy { $0.headers.contains { $0 == ("traceparent", "00-a") } })
        let warning = try #require(harness.log.entries.first { $0.level == .warning })
        #expect(warning.metadata["traceparent"] == "00-a")
    }

    @Test func deadLetter_isAWarning_withItsID() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        harness.transport.expect(.status(422), .status(200))
        let ids = try harness.accept(2)
        try harness.run(for: .seconds(10))
        let warnings = harness.log.entries.filter { $0.level >= .warning }
        #expect(warnings.map(\.message) == ["message failed permanently"])
        #expect(warnings.first?.metadata["message.id"].map { "\($0)" } == ids[0].description)
        #expect(warnings.first?.metadata["error.class"] == "refused")
    }

    @Test func hold_isReportedOnce_asAnError() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        harness.transport.answerAll { _ in .status(403) }
        try harness.accept(2)
        try harness.run(for: .seconds(3600))
        #expect(harness.log.entries.filter { $0.level == .error }.count == 1)
    }

    @Test func unreadableHealthRecord_isReported_andDeliveryStartsWithoutIt() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        try harness.execute("UPDATE upstreams SET circuit = 'junk'")
        try harness.restart(settings: RetryTests.single)
        let warnings = harness.log.entries.filter {
            $0.message == "stored health record is not valid; starting without it"
        }
        #expect(warnings.count == 1)
        harness.transport.answerAll { _ in .status(200) }
        let ids = try harness.accept(1)
        try harness.run(for: .seconds(1))
        #expect(try harness.state(ids[0]) == .delivered)
    }

    @Test func payloads_areNeverLogged() throws {
        let harness = try DeliveryHarness(settings: DeliverySettings.with { $0.batchMaxMessages = 2 })
        harness.transport.answerAll { $0.text.contains("Geheimnis") ? .status(422) : .status(500) }
        try harness.accept([#"{"n":"Geheimnis"}"#, #"{"n":"other Geheimnis"}"#, #"{"n":1}"#])
        try harness.run(for: .seconds(60))
        #expect(!harness.logs("Geheimnis"))
        #expect(harness.ledger.failed == 2)
    }

    /// A service may repeat the payload in each response, whatever it means.
    @Test(arguments: [200, 302, 400, 401, 403, 404, 422, 429, 500, 503])
    func answer_isInLastError_andNotInTheLog(status: Int) throws {
        let harness = try DeliveryHarness(EchoingUpstream(), settings: RetryTests.single)
        harness.transport.answerAll { .status(status, $0.text) }
        let ids = try harness.accept([#"{"n":"Geheimnis"}"#])
        try harness.run(for: .seconds(600))
        #expect(!harness.logs("Geheimnis"))
        let line = try #require(harness.log.entries.first { $0.message == "batch attempted" })
        #expect(line.metadata["http.status"].map { "\($0)" } == "\(status)")
        #expect(line.metadata["response.bytes"].map { "\($0)" } == "17")
        guard let error = try harness.record(ids[0]).lastError else { return }
        #expect(error.status == status)
        #expect(error.detail.contains("Geheimnis"))
    }

    @Test func answer_isInTheLog_ifTheSettingsAskForIt() throws {
        let settings = DeliverySettings.with { ($0.batchMaxMessages, $0.logsAnswers) = (1, true) }
        let harness = try DeliveryHarness(EchoingUpstream(), settings: settings)
        harness.transport.answerAll { .status(400, $0.text) }
        try harness.accept([#"{"n":"Geheimnis"}"#])
        try harness.run(for: .seconds(1))
        let lines = harness.log.entries.filter { $0.metadata.values.contains { "\($0)".contains("Geheimnis") } }
        #expect(
            Set(lines.map(\.message.description)) == [
                "batch attempted", "message failed permanently", "upstream response contains a notice",
            ])
    }

    @Test func failureWithoutAnswer_isLoggedInFull() throws {
        let harness = try DeliveryHarness(settings: RetryTests.single)
        harness.transport.answerAll { _ in .refusedConnection }
        try harness.accept(1)
        try harness.run(for: .seconds(60))
        let line = try #require(harness.log.entries.first { $0.message == "batch attempted" })
        guard case .failure(let failure) = TransferResult.refusedConnection else { return }
        #expect(line.metadata["detail"].map { "\($0)" } == failure.detail)
    }
}

/// Quotes each response, as types do whose services explain their rejections.
private struct EchoingUpstream: BatchingUpstream {
    private let base = PlainUpstream()
    var traits: Traits { base.traits }
    var name: UpstreamName { base.name }
    var kinds: [Kind] { base.kinds }

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        try base.validate(payload, of: kind, in: context)
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        base.plan(for: messages, in: context)
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        let text = String(decoding: response.body, as: UTF8.self)
        let verdict: Verdict =
            switch response.status {
            case 200..<300: .delivered()
            case 401, 403: .holdUpstream(.credentials, detail: text)
            case 300..<400, 404: .holdUpstream(.configuration, detail: text)
            case 400: .each(batch.messages.map { _ in .reject(reason: text) })
            case 500: .suspect(after: nil)
            case 422: .split(reason: text)
            default: .retry(after: nil)
            }
        return Decision(Judgement(verdict, notice: UpstreamNotice("a notice", quote: text), reason: text))
    }
}

extension DeliveryHarness {
    /// Whether a line of the log contains that text.
    fileprivate func logs(_ text: String) -> Bool {
        log.entries.contains { $0.metadata.values.contains { "\($0)".contains(text) } }
    }
}
