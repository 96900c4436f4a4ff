import Foundation
import InMemoryLogging
import PosternCore
import PosternEvents
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import SeerAdapter
import Testing

@testable import PosternDelivery

/// Seer's adapter with a real store and a real worker: how batches are formed, and which messages wait for others.
@Suite(.timeLimit(.minutes(10))) struct SeerDeliveryTests {
    private static let kinds = ["activity", "instrumentation", "tincan"]

    private func harness(_ settings: [String: SettingValue] = [:]) throws -> DeliveryHarness {
        let all: [String: SettingValue] = [
            "clientId": .text("id"), "clientSecret": .text("secret"), "baseURL": .text("http://seer"),
            // A test first sets the responses of the token endpoint.
            "verifyAtStart": .bool(false),
        ]
        let seer = try UpstreamType.seer.make(
            UpstreamName("seer")!, all.merging(settings) { $1 })
        return try DeliveryHarness(
            seer, settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages) = (8, 1 << 20) })
    }

    /// A valid payload of exactly `size` bytes.
    private static func payload(_ kind: String, _ number: Int = 0, size: Int? = nil) -> String {
        let text =
            kind == "tincan"
            ? #"{"id":"\#(number)","actor":{"mbox":"m"},"verb":{"id":"v"},"object":{"id":"o","definition":{"type":"t"}},"context":{"extensions":{"appId":"a"}},"x":""}"#
            : #"{"id":"\#(number)","actor":{"id":"a"},"verb":"v","object":{"id":"o","objectType":"t"},"generator":{"appId":"g"},"x":""}"#
        guard let size else { return text }
        return text.dropLast(2) + String(repeating: "x", count: size - text.utf8.count) + "\"}"
    }

    /// Tokens `t1`, `t2` … that live for `life`, and `answer` for reports.
    private func serve(
        _ harness: DeliveryHarness, life: Duration = .seconds(3600), _ answer: @escaping ScriptedTransport.Rule
    ) {
        let time = harness.time
        harness.transport.answerAll { request in
            guard request.url.contains("/oauth/access_token") else { return answer(request) }
            let number = time.now.milliseconds
            return .status(200, #"{"access_token":"t\#(number)","expiration_date":\#((time.now + life).milliseconds)}"#)
        }
    }

    /// Paths of the reports with how many items and bytes each carried.
    private func shapes(_ harness: DeliveryHarness) -> [String] {
        harness.reports.map { request in
            let path = request.url.replacingOccurrences(of: "http://seer", with: "")
            let items = request.text.components(separatedBy: "\"verb\":").count - 1
            return "\(path) \(items):\(request.body.count)"
        }
    }

    private static let splittings: [(Int64, [Int], [String])] = [
        (1024, Array(repeating: 300, count: 5), ["/tincan/batch 3:919", "/tincan/batch 2:618"]),
        (1024, [335, 335, 335], ["/tincan/batch 3:1024"]),
        (1024, [335, 335, 336], ["/tincan/batch 2:688", "/tincan/batch 1:353"]),
        (1024, [150, 1008, 150], ["/tincan/batch 1:167", "/tincan 1:1008", "/tincan/batch 1:167"]),
        (102_400, [51_191, 51_191], ["/tincan/batch 2:102400"]),
        (102_400, [51_191, 51_192], ["/tincan/batch 1:51208", "/tincan/batch 1:51209"]),
        (102_400, [102_383, 150], ["/tincan/batch 1:102400", "/tincan/batch 1:167"]),
        (102_400, [102_384], ["/tincan 1:102384"]),
        (
            102_400, Array(repeating: 1000, count: 205),
            ["/tincan/batch 102:102118", "/tincan/batch 102:102118", "/tincan/batch 1:1017"]
        ), (102_400, Array(repeating: 160, count: 700), ["/tincan/batch 635:102251", "/tincan/batch 65:10481"]),
    ]

    /// The specification's "Splitting".
    @Test(arguments: Self.splittings)
    func batches_areFilledGreedily_toTheBundleSize(limit: Int64, sizes: [Int], requests: [String]) throws {
        let harness = try harness(["bundleSizeBytes": .integer(limit)])
        serve(harness) { _ in .status(200) }
        try harness.post(sizes.enumerated().map { Self.payload("tincan", $0, size: $1) }, as: "tincan")
        try harness.run(for: .seconds(1))
        #expect(shapes(harness) == requests)
        #expect(harness.ledger.delivered == sizes.count)
    }

    @Test func kind_hasOneRequestInFlight_andKeepsItsOrder() throws {
        let harness = try harness()
        serve(harness) { _ in nil }
        for kind in Self.kinds { try harness.post((0..<3).map { Self.payload(kind, $0) }, as: Kind(kind)) }
        try harness.run(for: .seconds(1))
        #expect(
            shapes(harness).sorted() == ["/sactivity/batch 3:349", "/sinstrumentation 1:110", "/tincan/batch 3:442"])
        // The third kind goes one by one, and nothing of the others follows before their answer.
        try harness.post([Self.payload("tincan", 3)], as: "tincan")
        try harness.run(for: .seconds(1))
        #expect(harness.reports.count == 3)
        for _ in 0..<6 { try harness.answer(.status(200)) }
        #expect(harness.ledger.delivered == 10)
        let instrumentations = harness.reports.filter { $0.url.hasSuffix("/sinstrumentation") }.map(\.text)
        #expect(instrumentations == (0..<3).map { Self.payload("instrumentation", $0) })
    }

    @Test(arguments: [0, 51, 101])
    func poison_failsAlone_atAnyPositionInAFullBundle(index: Int) throws {
        let harness = try harness()
        serve(harness) { $0.text.contains(#""id":"7777""#) ? .status(400, "poison") : .status(200) }
        let ids = try harness.post(
            (0..<102).map { Self.payload("tincan", $0 == index ? 7777 : $0, size: 1000) }, as: "tincan")
        try harness.run(for: .seconds(1))
        #expect(shapes(harness).first == "/tincan/batch 102:102118")
        #expect(harness.ledger.delivered == 101)
        let poisoned = try harness.record(ids[index])
        #expect(poisoned.state == .failed)
        #expect(poisoned.lastError?.detail == "HTTP 400: poison")
        #expect(harness.ledger.failed == 1)
    }

    // MARK: Tokens

    @Test func expiredToken_isFetchedOnce_forAllKindsAndSenders() throws {
        let harness = try harness(["maxInFlightPerKind": .integer(3)])
        serve(harness, life: .seconds(10)) { _ in .status(200) }
        try harness.post([Self.payload("tincan")], as: "tincan")
        try harness.run(for: .seconds(60))
        #expect(harness.tokenRequests.count == 1)
        for kind in Self.kinds { try harness.post((0..<200).map { Self.payload(kind, $0) }, as: Kind(kind)) }
        try harness.run(for: .seconds(1))
        #expect(harness.tokenRequests.count == 2)
        #expect(harness.ledger.delivered == 601)
        #expect(harness.reports.allSatisfy { $0.headers[0].value.hasPrefix("Bearer t") })
    }

    @Test func refusedToken_isReplacedOnce_andTheReportRepeated() throws {
        let harness = try harness()
        let refuse = Inbox<Void>()
        refuse.put(())
        serve(harness) { _ in refuse.takeAll().isEmpty ? .status(200) : .status(401) }
        let ids = try harness.post((0..<3).map { Self.payload("tincan", $0) }, as: "tincan")
        try harness.run(for: .seconds(1))
        #expect(harness.tokenRequests.count == 2)
        #expect(harness.reports.count == 2)
        #expect(harness.reports[0].body == harness.reports[1].body)
        #expect(try harness.record(ids[0]).attempts == 1)
    }

    @Test(arguments: [401, 403])
    func badCredentials_holdTheUpstream_failNoMessage_andAreProbedSlowly(status: Int) throws {
        let harness = try harness()
        serve(harness) { _ in .status(status) }
        let ids = try harness.post((0..<3).map { Self.payload("tincan", $0) }, as: "tincan")
        try harness.run(for: .seconds(3600))
        #expect(harness.worker.snapshot.health == .unauthorized)
        #expect((2...120).contains(harness.reports.count))
        #expect(try harness.record(ids[0]).attempts == 0)
        #expect(harness.ledger.queued == 3)
    }

    @Test(arguments: [
        TransferResult.refusedConnection, .reset,
        .failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "no answer within 30 s")), .status(500),
        .status(200, "<html>"), .status(200, "{}"),
    ])
    func withoutAToken_messagesWait_andNothingIsSent(result: TransferResult) throws {
        let harness = try harness()
        harness.transport.answerAll { _ in result }
        let ids = try harness.post([Self.payload("tincan")], as: "tincan")
        try harness.run(for: .seconds(600))
        #expect(harness.reports.isEmpty)
        #expect((3...60).contains(harness.tokenRequests.count))
        #expect(try harness.record(ids[0]).attempts == 0)
        serve(harness) { _ in .status(200) }
        try harness.run(for: .seconds(600))
        #expect(harness.ledger.delivered == 1)
    }

    // MARK: Flush

    @Test func queueThatWaits_goesOutByAFlush_andWaitsAgain() throws {
        let harness = try harness(["autoReportQueue": .bool(false)])
        serve(harness) { _ in .status(200) }
        let ids = try harness.post((0..<3).map { Self.payload("tincan", $0) }, as: "tincan")
        try harness.post(
            [Self.payload("instrumentation", 0), Self.payload("instrumentation", 1)], as: "instrumentation")
        try harness.run(for: .seconds(7200))
        #expect(harness.reports.isEmpty)
        #expect(try harness.record(ids[0]).facts.laneWaitsFor == .schedule)
        let report = try #require(try harness.flush())
        #expect(report.delivered == 5)
        #expect(report.failed == 0)
        #expect(harness.ledger.queued == 0)
        let later = try harness.post([Self.payload("tincan", 9)], as: "tincan")
        try harness.run(for: .seconds(7200))
        #expect(try harness.state(later[0]) == .queued)
        #expect(try harness.record(later[0]).facts.laneWaitsFor == .schedule)
    }

    @Test func awaitedReport_isSentAtOnce_whileTheQueueWaits() throws {
        let harness = try harness(["autoReportQueue": .bool(false)])
        serve(harness) { _ in .status(200) }
        let waiting = try harness.post([Self.payload("tincan", 1)], as: "tincan")
        let direct = try harness.post([Self.payload("tincan", 2)], as: "tincan", isAwaited: true)
        try harness.run(for: .seconds(1))
        #expect(try harness.state(direct[0]) == .delivered)
        #expect(try harness.state(waiting[0]) == .queued)
        #expect(shapes(harness) == ["/tincan 1:141"])
    }

    @Test func flushOfADeadUpstream_isOver_whenItWasTried() throws {
        let harness = try harness(["autoReportQueue": .bool(false)])
        serve(harness) { _ in .status(503) }
        try harness.post((0..<3).map { Self.payload("tincan", $0) }, as: "tincan")
        let report = try #require(try harness.flush(for: .milliseconds(500)))
        #expect(report.delivered == 0)
        #expect(try harness.outbox.queued(of: harness.queue.number, through: report.through) == 3)
        serve(harness) { _ in .status(200) }
        try harness.run(for: .seconds(600))
        #expect(harness.ledger.delivered == 3)
    }

    @Test func flushOfNothing_isOverAtOnce() throws {
        let harness = try harness()
        serve(harness) { _ in .status(200) }
        #expect(try harness.flush(for: .milliseconds(10)) != nil)
    }

    // MARK: Events

    @Test func events_areCountedByTheSDKsNames() throws {
        let harness = try harness()
        serve(harness) { _ in .status(200) }
        for kind in Self.kinds { try harness.post([Self.payload(kind), Self.payload(kind)], as: Kind(kind)) }
        try harness.run(for: .seconds(1))
        _ = try harness.flush()
        let counts: [(String, Int)] = [
            ("SeerTokenFetch", 1), ("SeerRequestStartSession", 1), ("SeerRequestReportQueue", 1),
            ("SeerRequestResultForQueuedBatch", 4), ("SeerActivityStreamReport", 2), ("SeerInstrumentationReport", 2),
            ("SeerTincanReport", 2),
        ]
        for (name, count) in counts {
            #expect(harness.metrics.upstreamEvents("seer", name).value == count, "\(name)")
        }
    }

    @Test func eventsOfTheStream_haveTheSDKsWords_oneForEachKind() throws {
        let harness = try harness()
        // The first report fails, and one is rejected permanently.
        let failed = SharedValue(false)
        serve(harness) { request in
            if request.text.contains("poison") { return .status(400) }
            defer { failed.set(true) }
            return .status(failed.value ? 200 : 503)
        }
        harness.outbox.events.open {}
        for kind in Self.kinds { try harness.post([Self.payload(kind), Self.payload(kind)], as: Kind(kind)) }
        try harness.run(for: .seconds(60))
        let poison = Self.payload("instrumentation").replacingOccurrences(of: "\"x\":\"\"", with: "\"x\":\"poison\"")
        try harness.post([poison], as: "instrumentation")
        try harness.run(for: .seconds(60))
        _ = try harness.flush()
        let events = harness.outbox.events.take()
        func told(_ type: EventType) -> [Event] { events.filter { $0.type == type } }
        func count(_ type: EventType, _ kind: String) -> Int {
            told(type).filter { $0.named?.kind == Kind(kind) }.reduce(0) { $0 + $1.count }
        }
        for kind in Self.kinds {
            #expect(count(.messageQueued, kind) == (kind == "instrumentation" ? 3 : 2), "\(kind)")
            #expect(count(.messageDelivered, kind) == 2, "\(kind)")
        }
        #expect(told(.messageRetrying).first?.named?.names == ["SeerRequestResultForQueuedBatch"])
        #expect(told(.messageFailed).map { $0.named?.requestType } == ["SeerInstrumentationReport"])
        #expect(told(.tokenRefreshed).map { $0.named?.names } == [["SeerTokenFetch", "SeerRequestStartSession"]])
        #expect(told(.flushFinished).map { $0.named?.names } == [["SeerRequestReportQueue"]])
        #expect(told(.batchSent).allSatisfy { $0.named == nil })
    }

    @Test(arguments: [
        ("activity", "SeerActivityStreamReport"), ("instrumentation", "SeerInstrumentationReport"),
        ("tincan", "SeerTincanReport"),
    ])
    func receiptOfABatch_saysItsKind_andItsRequestType(kind: String, type: String) throws {
        let harness = try harness()
        serve(harness) { _ in .status(200) }
        try harness.post([Self.payload(kind)], as: Kind(kind))
        try harness.run(for: .seconds(1))
        let receipts = harness.log.entries.map { $0.metadata.mapValues { "\($0)" } }.filter {
            $0["event"] == "SeerRequestResultForQueuedBatch"
        }
        #expect(receipts.map { $0["kind"] } == [kind] && receipts.map { $0["request.type"] } == [type])
    }
}
