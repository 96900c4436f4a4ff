import Foundation
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing
import WebhookAdapter

@testable import PosternDelivery

/// The adapter for webhooks with a real store and a real worker: how batches are formed, and what is repeated.
@Suite(.timeLimit(.minutes(10))) struct WebhookDeliveryTests {
    private static let delivery = DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (4, 500) }

    private func webhook(_ settings: [String: SettingValue] = [:]) throws -> any Upstream {
        let all: [String: SettingValue] = [
            "url": .text("http://hook"), "batch": .text("array"), "orderBy": .text("/key"),
            "kinds": .objects(["a": ["path": "/a"], "b": ["path": "/b"], "c": ["path": "/c"]]),
            "signingSecrets": .list(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]),
        ]
        return try UpstreamType.webhook.make(
            #require(UpstreamName("hook")), all.merging(settings) { $1 })
    }

    private func harness(_ settings: [String: SettingValue] = [:]) throws -> DeliveryHarness {
        let upstream = try webhook(settings)
        return try DeliveryHarness(upstream, settings: Self.delivery)
    }

    private func sent(_ harness: DeliveryHarness) -> [String] {
        harness.reports.map { $0.url.replacingOccurrences(of: "http://hook", with: "") + " " + $0.text }
    }

    private func header(_ name: String, _ request: UpstreamRequest) -> String? {
        request.headers.first { $0.name == name }?.value
    }

    // MARK: Kinds

    @Test func request_carriesOneKind_howeverTheyAreMixed() throws {
        let harness = try harness(["orderBy": .text("")])
        harness.transport.answerAll { _ in .status(200) }
        for number in 0..<30 { try harness.post(["\(number)"], as: Kind(["a", "b", "c"][number % 3])) }
        try harness.run(for: .seconds(1))
        func numbers(_ rest: Int) -> String {
            "[" + stride(from: rest, to: 30, by: 3).map(String.init).joined(separator: ",") + "]"
        }
        #expect(sent(harness).sorted() == ["/a \(numbers(0))", "/b \(numbers(1))", "/c \(numbers(2))"])
        #expect(harness.ledger.delivered == 30)
    }

    @Test func order_isKeptAcrossKinds_andNowhereElse() throws {
        let harness = try harness()
        harness.transport.answerAll { _ in nil }
        for (kind, key) in [("a", "x"), ("b", "x"), ("a", "x"), ("a", "y"), ("b", "z")] {
            try harness.post([#"{"key":"\#(key)"}"#], as: Kind(kind))
        }
        try harness.run(for: .seconds(1))
        #expect(sent(harness) == [#"/a [{"key":"x"},{"key":"y"}]"#, #"/b [{"key":"z"}]"#])
        try harness.answer(.status(200))
        try harness.run(for: .seconds(1))
        #expect(sent(harness).last == #"/b [{"key":"x"}]"#)
        try harness.answer(.status(200))
        try harness.run(for: .seconds(1))
        #expect(sent(harness).count == 3)
        try harness.answer(.status(200))
        try harness.run(for: .seconds(1))
        #expect(sent(harness).last == #"/a [{"key":"x"}]"#)
        try harness.answer(.status(200))
        #expect(harness.ledger.delivered == 5)
    }

    /// The others are not held up by it, and it is sent when a reload brings its kind back.
    @Test func message_ofAKindThatIsGone_waitsAlone() throws {
        let harness = try harness(["orderBy": .text("")])
        harness.transport.answerAll { _ in .status(200) }
        try harness.restart(
            webhook(["orderBy": .text(""), "kinds": .objects(["a": [:]])]), settings: Self.delivery)
        let gone = try harness.post(["1"], as: "b")
        try harness.post(["2", "3"], as: "a")
        try harness.run(for: .seconds(600))
        #expect(harness.ledger.delivered == 2)
        #expect(try harness.state(gone[0]) == .queued)
        try harness.restart(webhook(["orderBy": .text("")]), settings: Self.delivery)
        try harness.run(for: .seconds(1))
        #expect(sent(harness).last == "/b [1]")
        #expect(harness.ledger.delivered == 3)
    }

    // MARK: Refusals

    @Test(arguments: [400, 409, 410, 413, 422]) func poison_failsAlone_afterItsBatchWasHalved(status: Int) throws {
        let harness = try harness(["orderBy": .text("")])
        harness.transport.answerAll { $0.text.contains("37") ? .status(status, "bad item") : .status(204) }
        let ids = try harness.post((0..<60).map(String.init), as: "a")
        try harness.run(for: .seconds(60))
        #expect(harness.ledger.delivered == 59)
        #expect(try harness.record(ids[37]).state == .failed)
        #expect(try harness.record(ids[37]).lastError?.detail == "HTTP \(status): bad item")
        #expect(harness.ledger.failed == 1)
        // Each half is another request to its receiver.
        let keys = harness.reports.compactMap { header("Idempotency-Key", $0) }
        #expect(Set(keys).count == keys.count)
        #expect(keys.count > 6)
    }

    // MARK: Repeats

    @Test func batch_isRepeated_withItsKey_andAnotherTime() throws {
        let harness = try harness()
        harness.transport.answerAll { _ in .status(503) }
        try harness.post((0..<5).map { "{\"key\":\($0)}" }, as: "a")
        try harness.run(for: .seconds(60))
        let first = harness.reports
        #expect(first.count > 2)
        #expect(Set(first.map { header("Idempotency-Key", $0) }).count == 1)
        #expect(Set(first.map { header("webhook-id", $0) }).count == 1)
        #expect(Set(first.map { header("webhook-timestamp", $0) }).count > 2)
        #expect(Set(first.map(\.body)).count == 1)
    }

    /// The disk may take a while to record the request.
    @Test func timeOfASignature_isThatOfSending() throws {
        let harness = try harness()
        try harness.post(["{}"], as: "a")
        harness.time.advance(by: .milliseconds(50))
        _ = harness.worker.turn()
        #expect(harness.worker.unsettledBatches == 1)
        harness.time.advance(by: .seconds(7))
        try harness.turn()
        let request = try #require(harness.reports.first)
        #expect(header("webhook-timestamp", request) == "\(harness.time.now.milliseconds / 1000)")
        let names = request.headers.map { $0.name.lowercased() }
        #expect(Set(names).count == names.count)
    }

    /// As after kill -9, with a request whose response is lost, and after a restart, with a planned retry.
    @Test(arguments: [true, false]) func key_isTheSame_inTheNextRun(isKilled: Bool) throws {
        let harness = try harness()
        if !isKilled { harness.transport.answerAll { _ in .status(503) } }
        try harness.post((0..<5).map { "{\"key\":\($0)}" }, as: "a")
        try harness.run(for: .seconds(1))
        let key = try #require(harness.reports.last.flatMap { header("Idempotency-Key", $0) })
        let count = harness.reports.count
        harness.transport.answerAll { _ in .status(200) }
        if isKilled {
            try harness.kill(webhook(), settings: Self.delivery)
        } else {
            try harness.restart(webhook(), settings: Self.delivery)
        }
        try harness.run(for: .seconds(600))
        #expect(harness.reports.count == count + 1)
        #expect(harness.reports.last.flatMap { header("Idempotency-Key", $0) } == key)
        #expect(harness.ledger.delivered == 5)
    }
}
