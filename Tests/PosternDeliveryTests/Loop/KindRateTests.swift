import PosternCore
import PosternTestKit
import PosternUpstream
import Testing
import WebhookAdapter

@testable import PosternDelivery
@testable import PosternStore

/// A kind with a limit of its own is sent no faster than that, and holds up no other kind.
@Suite(.timeLimit(.minutes(10))) struct KindRateTests {
    private static let delivery = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 100, .zero)
    }

    /// Kinds `a`, with that limit, and `b` and `c`, without one.
    private func webhook(
        _ limit: [String: SettingValue], batch: String = "array", orderBy: String = "", b: [String: SettingValue] = [:]
    ) throws -> any Upstream {
        let own: [String: SettingValue] = ["path": "/a"]
        return try UpstreamType.webhook.make(
            #require(UpstreamName("hook")),
            [
                "url": .text("http://hook"), "batch": .text(batch), "orderBy": .text(orderBy),
                "kinds": .objects(["a": own.merging(limit) { $1 }, "b": ["path": "/b"].merging(b) { $1 }, "c": [:]]),
            ])
    }

    private func harness(_ upstream: any Upstream, settings: DeliverySettings = delivery) throws -> DeliveryHarness {
        let harness = try DeliveryHarness(upstream, settings: settings)
        harness.transport.answerAll { _ in .status(200) }
        return harness
    }

    private func sent(_ path: String, _ harness: DeliveryHarness) -> [String] {
        harness.reports.filter { $0.url.hasSuffix(path) }.map(\.text)
    }

    private func numbers(_ range: Range<Int>) -> [String] { range.map(String.init) }

    /// The payloads that were sent there, numbers.
    private func values(_ path: String, _ harness: DeliveryHarness) -> [Int] {
        sent(path, harness).flatMap { $0.split { "[],".contains($0) }.compactMap { Int($0) } }
    }

    @Test func kindAtItsLimit_holdsUpNoOther_andSaysWhyItWaits() throws {
        let harness = try harness(webhook(["maxRequestsPerSecond": .number(2)], batch: "none"))
        let limited = try harness.post(numbers(0..<100), as: "a")
        let others = try harness.post(numbers(100..<200), as: "b")
        try harness.run(for: .seconds(1))
        #expect(values("/b", harness) == Array(100..<200))
        #expect((2...4).contains(values("/a", harness).count))
        let snapshot = harness.worker.snapshot
        func wait(_ id: MessageID, _ kind: Kind) throws -> WaitStatus {
            var facts = try harness.record(id).facts
            facts.kind = kind
            return snapshot.wait(of: facts, now: harness.time.now) { false }
        }
        #expect(try wait(limited[99], "a") == WaitStatus(waitingFor: .rate))
        #expect(try wait(others[99], "b") == WaitStatus())
        try harness.run(for: .seconds(9))
        #expect((19...22).contains(values("/a", harness).count))
        try harness.run(for: .seconds(50))
        #expect(values("/a", harness) == Array(0..<100))
        #expect(harness.queue.countInMemory == 0)
    }

    @Test func batches_grow_whereTheRequestsOfAKindAreLimited() throws {
        let harness = try harness(webhook(["maxRequestsPerSecond": .number(2)]))
        for step in 0..<50 {
            try harness.post(numbers(step * 5..<step * 5 + 5), as: "a")
            try harness.post(["0"], as: "b")
            try harness.run(for: .milliseconds(100))
        }
        try harness.run(for: .seconds(1))
        #expect(values("/a", harness) == Array(0..<250))
        #expect((10...13).contains(sent("/a", harness).count))
        #expect(sent("/b", harness).count >= 40)
    }

    @Test func messagesOfAKind_areLimited_inRequestsOfASecondsWorth() throws {
        let harness = try harness(webhook(["maxMessagesPerSecond": .number(20)]))
        try harness.post(numbers(0..<1000), as: "a")
        try harness.post(numbers(0..<1000), as: "b")
        try harness.run(for: .milliseconds(10_500))
        #expect(sent("/a", harness).allSatisfy { $0.split(separator: ",").count == 20 })
        #expect(values("/a", harness).count == 220)
        #expect(values("/b", harness).count == 1000)
    }

    /// The limit of the upstream holds in addition.
    @Test func kindsOfOneEndpoint_haveEachTheirOwnLimit() throws {
        let settings = DeliverySettings.with { ($0.maxInFlight, $0.batchMaxWait, $0.pace.requests) = (4, .zero, 6) }
        let upstream = try webhook(
            ["maxRequestsPerSecond": .number(1)], batch: "none",
            b: ["path": "/a", "maxRequestsPerSecond": .number(2)])
        let harness = try harness(upstream, settings: settings)
        for kind: Kind in ["a", "b", "c"] { try harness.post(numbers(0..<100), as: kind) }
        try harness.run(for: .seconds(10))
        // A turn of the upstream that comes later than that of the kind is not made up for.
        #expect((25...34).contains(sent("/a", harness).count))
        #expect((59...62).contains(harness.sent.count))
    }

    @Test func order_isKept_inLanesOfSeveralKinds() throws {
        let harness = try harness(webhook(["maxRequestsPerSecond": .number(1)], batch: "none", orderBy: "/key"))
        func payload(_ key: String, _ number: Int) -> String { #"{"key":"\#(key)","n":\#(number)}"# }
        for number in 0..<5 {
            try harness.post([payload("x", 2 * number)], as: "a")
            try harness.post([payload("x", 2 * number + 1)], as: "b")
            try harness.post([payload("y", number)], as: "b")
        }
        try harness.run(for: .milliseconds(500))
        #expect(sent("/b", harness).filter { $0.contains(#""y""#) } == (0..<5).map { payload("y", $0) })
        try harness.run(for: .seconds(6))
        #expect(harness.sent.filter { $0.contains(#""x""#) } == (0..<10).map { payload("x", $0) })
        #expect(harness.queue.countInMemory == 0)
    }

    @Test func messageBehindAWithheldOne_waitsForIt_untilThatIsCancelled() throws {
        let harness = try harness(webhook(["maxRequestsPerSecond": .number(0.01)], batch: "none", orderBy: "/key"))
        try harness.post([#"{"key":"w"}"#], as: "a")
        let first = try harness.post([#"{"key":"x"}"#], as: "a")
        let next = try harness.post([#"{"key":"x"}"#], as: "b")
        try harness.run(for: .seconds(10))
        #expect(harness.ledger.delivered == 1)
        let record = try harness.record(next[0])
        #expect(harness.outbox.isHeldUp(next[0], lane: record.lane))
        #expect(!harness.outbox.isHeldUp(first[0], lane: record.lane))
        #expect(try harness.cancel(first[0]))
        try harness.run(for: .seconds(1))
        #expect(try harness.state(next[0]) == .delivered)
    }

    /// More than are kept in memory.
    @Test(arguments: [false, true]) func longBacklogOfAKind_holdsUpNoOther_andIsSent(isScheduled: Bool) throws {
        let harness = try harness(webhook(["maxRequestsPerSecond": .number(20)]))
        let dueAt = isScheduled ? harness.time.now + .seconds(1) : nil
        try harness.post(numbers(0..<6000), as: "a", notBefore: dueAt)
        try harness.post(numbers(0..<500), as: "b")
        try harness.run(for: .milliseconds(1100))
        #expect(values("/b", harness).count == 500)
        try harness.post(numbers(500..<1000), as: "b")
        try harness.run(for: .milliseconds(400))
        #expect(values("/b", harness).count == 1000)
        #expect(values("/a", harness).count < 4000)
        #expect(harness.queue.countInMemory <= 2048)
        try harness.run(for: .seconds(10))
        #expect(values("/a", harness).sorted() == Array(0..<6000))
        #expect(harness.queue.countInMemory == 0)
    }

    @Test func retry_countsAsARequestOfItsKind() throws {
        let upstream = try webhook(["maxRequestsPerSecond": .number(1)], batch: "none")
        var settings = Self.delivery
        settings.retry = RetryPolicy(base: .milliseconds(10), longest: .milliseconds(20))
        let harness = try harness(upstream, settings: settings)
        let refused = SharedValue<[String: Int]>([:])
        harness.transport.answerAll { request in
            var counts = refused.value
            counts[request.text, default: 0] += 1
            refused.set(counts)
            return counts[request.text, default: 0] < 3 ? .status(408) : .status(200)
        }
        try harness.post(numbers(0..<4), as: "a")
        try harness.run(for: .milliseconds(6500))
        #expect((5...8).contains(sent("/a", harness).count))
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(30))
        #expect(harness.ledger.delivered == 4)
    }

    @Test func limitOfAKind_isChanged_byAReload() throws {
        let harness = try harness(webhook(["maxRequestsPerSecond": .number(0.01)], batch: "none"))
        try harness.post(numbers(0..<20), as: "a")
        try harness.run(for: .seconds(10))
        #expect(harness.sent.count == 1)
        harness.worker.apply(Self.delivery, upstream: try webhook(["maxRequestsPerSecond": .number(10)], batch: "none"))
        try harness.run(for: .seconds(3))
        #expect(harness.ledger.delivered == 20)
    }

    @Test func worker_sleepsUntilTheKindMayBeSent() throws {
        let harness = try harness(webhook(["maxRequestsPerSecond": .number(1)], batch: "none"))
        try harness.post(numbers(0..<30), as: "a")
        let turns = try harness.run(for: .seconds(20))
        #expect((20...22).contains(harness.sent.count))
        #expect(turns < 80)
    }

    /// Three kinds, two of them with limits, with and without an order and a schedule; receivers fail, messages are
    /// cancelled, and workers are killed.
    @Test(arguments: 1...12) func everyMessage_isDeliveredInItsOrder_withinTheLimits(seed: UInt64) throws {
        var random = SplitMix64(state: seed)
        let limits = ["a": 2.0, "b": 10.0]
        let upstream = try webhook(
            ["maxRequestsPerSecond": .number(2)], batch: seed % 2 == 0 ? "array" : "none", orderBy: "/key",
            b: ["maxRequestsPerSecond": .number(10), "maxMessagesPerSecond": .number(40)])
        var settings = Self.delivery
        settings.batchMaxMessages = 7
        settings.retry = RetryPolicy(base: .milliseconds(100), longest: .seconds(2))
        let harness = try harness(upstream, settings: settings)
        let answers = SharedValue(SplitMix64(state: seed + 1000))
        let arrived = SharedValue<[(path: String, at: Timestamp, text: String)]>([])
        harness.transport.answerAll { [time = harness.time] request in
            var draw = answers.value
            defer { answers.set(draw) }
            guard draw.below(8) > 0 else { return .status(408) }
            arrived.set(arrived.value + [(String(request.url.suffix(2)), time.now, request.text)])
            return .status(200)
        }
        var expected: [String] = []
        var inOrder: [String: [String]] = [:]
        for step in 0..<300 {
            let count = random.below(4)
            for part in 0..<count {
                let key = random.below(3) == 0 ? "null" : "\"k\(random.below(5))\""
                let text = #"{"key":\#(key),"n":\#(step * 10 + part)}"#
                let kind: Kind = random.below(3) == 0 ? "c" : random.below(2) == 0 ? "a" : "b"
                let isLate = random.below(10) == 0
                let dueAt = isLate ? harness.time.now + .milliseconds(Int64(random.below(3000))) : nil
                let id = try harness.post([text], as: kind, notBefore: dueAt)[0]
                if random.below(12) == 0, try harness.cancel(id) { continue }
                expected.append(text)
                if !isLate, key != "null" { inOrder[key, default: []].append(text) }
            }
            try harness.run(for: .milliseconds(Int64(random.below(120))))
            if random.below(100) == 0 { try harness.kill(upstream, settings: settings) }
        }
        try harness.run(for: .seconds(600))
        let texts = arrived.value.flatMap { request in
            request.text.hasPrefix("[")
                ? request.text.dropFirst().dropLast().replacing("},{", with: "}\n{").split(separator: "\n").map(
                    String.init)
                : [request.text]
        }
        #expect(Set(texts) == Set(expected))
        #expect(harness.ledger.delivered == expected.count && harness.ledger.queued == 0)
        #expect(harness.queue.countInMemory == 0)
        for (key, expected) in inOrder {
            // What a kill cut off arrives again.
            var seen: Set<String> = []
            #expect(texts.filter { expected.contains($0) && seen.insert($0).inserted } == expected, "\(key)")
        }
        for (kind, limit) in limits {
            let times = arrived.value.filter { $0.path == "/\(kind)" }.map(\.at)
            for (index, time) in times.enumerated() {
                let count = times[index...].count { $0 - time < .seconds(1) }
                #expect(Double(count) <= limit + 2, "\(kind) at \(time)")
            }
        }
    }
}
