import CurioAdapter
import Foundation
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// Curio's adapter with a real store and a real worker, over hours of simulated time.
@Suite(.timeLimit(.minutes(10))) struct CurioDeliveryTests {
    private static let settings: [String: SettingValue] = [
        "serverURL": .text("http://curio"), "apiKey": .text("key"), "trackingCode": .text("RIGHT"),
    ]

    private func curio(_ others: [String: SettingValue] = [:]) throws -> any Upstream {
        return try UpstreamType.curio.make(
            UpstreamName("curio")!, Self.settings.merging(others) { $1 })
    }

    private func harness(_ settings: [String: SettingValue] = [:]) throws -> DeliveryHarness {
        try DeliveryHarness(try curio(settings), settings: DeliverySettings.with { $0.maxInFlight = 8 })
    }

    private static func session(_ visitor: Int) -> String {
        "6d551000-a21d-11e4-8123-" + String(String(visitor + 0x1000_0000_0000, radix: 16).suffix(12))
    }

    private static let device = #"""
        "screenWidth":750,"screenHeight":1334,"lang":"tr-TR","simOperator":"","simOpCountry":"","networkOpName":"","connType":"wifi","brand":"Apple","model":"iPhone","osType":"iOS","osVer":"9","curioSdkVer":"1.2.4","appVer":"2"
        """#

    /// Posts an action that a visitor takes now.
    @discardableResult
    private func post(
        _ harness: DeliveryHarness, _ visitor: Int, _ kind: String, _ members: String = "", session: Int? = nil
    ) throws -> MessageID {
        let text = #"""
            {"visitorCode":"v\#(visitor)","sessionCode":"\#(Self.session(session ?? visitor))","timestamp":\#(harness.time.now.milliseconds)\#(members.isEmpty ? "" : ",")\#(members)}
            """#
        return try harness.post([text], as: Kind(kind))[0]
    }

    /// A session with a screen and an event on it, all of it a second apart.
    private func play(_ harness: DeliveryHarness, _ visitor: Int) throws {
        let steps = [
            ("session_start", Self.device),
            ("screen_start", #""screenClass":"c","pageTitle":"t\#(visitor)","path":"p""#),
            ("event", #""eventKey":"k\#(visitor)","eventValue":"1""#),
            ("event_end", #""eventKey":"k\#(visitor)","eventValue":"1","eventDuration":5"#),
            ("screen_end", #""screenClass":"c""#), ("session_end", ""),
        ]
        for (kind, members) in steps {
            try post(harness, visitor, kind, members)
            harness.time.advance(by: .seconds(1))
        }
    }

    private func types(_ request: UpstreamRequest) throws -> [(type: Int, timestamp: String, session: String)] {
        let data = try #require(request.form["data"])
        let records = try #require(try JSONSerialization.jsonObject(with: Data(data.utf8)) as? [[String: Any]])
        return records.map {
            ($0["type"] as? Int ?? -1, $0["timestamp"] as? String ?? "", $0["sessionCode"] as? String ?? "")
        }
    }

    private func answer(_ request: UpstreamRequest) -> TransferResult {
        if request.url.hasSuffix("/hit/create") { return .status(200, #"{"hitCode":7}"#) }
        if request.url.hasSuffix("/event/create") { return .status(200, #"{"eventCode":"e"}"#) }
        return .status(200)
    }

    @Test func outageOfTwoHours_endsInOfflineBatches_withTheOriginalTimes() throws {
        let harness = try harness()
        harness.transport.answerAll { _ in .refusedConnection }
        let start = harness.time.now
        for visitor in 0..<20 { try play(harness, visitor) }
        try harness.run(for: .seconds(7200))
        #expect(harness.ledger.queued == 120)
        let before = harness.reports.count
        harness.transport.answerAll { self.answer($0) }
        try harness.run(for: .seconds(1200))
        #expect(harness.ledger.delivered == 120)
        let sent = harness.reports[before...]
        #expect(sent.allSatisfy { $0.url == "http://curio/offline/create" })
        for visitor in 0..<20 {
            let requests = sent.filter { $0.form["visitorCode"] == "v\(visitor)" }
            let records = try requests.flatMap(types)
            #expect(records.map(\.type) == [0, 2, 4, 7, 3, 1], "visitor \(visitor)")
            let first = start.milliseconds + Int64(visitor) * 6000
            #expect(records.map(\.timestamp) == (0..<6).map { String(first + $0 * 1000) })
            #expect(Set(records.map(\.session)) == [Self.session(visitor)])
        }
        #expect(try harness.outbox.audit().isBalanced)
    }

    @Test func wrongTrackingCode_holdsEverything_untilAReloadCorrectsIt() throws {
        let harness = try harness(["trackingCode": .text("WRONG")])
        harness.transport.answerAll { request in
            request.form["trackingCode"] == "RIGHT" ? self.answer(request) : .status(412)
        }
        for visitor in 0..<10 { try play(harness, visitor) }
        try harness.run(for: .seconds(3600))
        #expect(harness.worker.snapshot.health == .unauthorized)
        #expect(harness.reports.count <= 3 * 60)
        #expect(harness.ledger.queued == 60)
        let right = try curio()
        try harness.outbox.replace(right, of: harness.queue.target)
        harness.worker.apply(DeliverySettings.with { $0.maxInFlight = 8 }, upstream: right)
        try harness.run(for: .seconds(600))
        #expect(harness.ledger.delivered == 60)
        #expect(harness.ledger.failed == 0)
        let messages = try harness.outbox.messages(MessageFilter(), after: nil, limit: 100).messages
        #expect(messages.allSatisfy { $0.attempts == 1 })
    }

    /// The key and the tracking code are the same for all endpoints, so one rejection stops all of them.
    @Test(arguments: [412, 403, 404])
    func credentialsThatAreRejectedLater_stopEveryEndpoint(status: Int) throws {
        let harness = try harness()
        harness.transport.answerAll { self.answer($0) }
        for visitor in 0..<3 { try post(harness, visitor, "session_start", Self.device) }
        try post(harness, 0, "location", #""lat":1,"long":2"#)
        try post(harness, 1, "event", #""eventKey":"k","eventValue":"1""#)
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.queued == 0)
        harness.transport.answerAll { _ in .status(status) }
        try post(harness, 0, "location", #""lat":1,"long":2"#)
        try harness.run(for: .seconds(1))
        let before = harness.reports.count
        try post(harness, 1, "event", #""eventKey":"k","eventValue":"1""#)
        try post(harness, 2, "session_end")
        try post(harness, 3, "session_start", Self.device)
        try harness.run(for: .seconds(20))
        #expect(harness.reports.count <= before + 3, "each of the three others probes it once")
        #expect(harness.worker.snapshot.health == (status == 404 ? .misconfigured : .unauthorized))
        harness.transport.answerAll { self.answer($0) }
        try harness.run(for: .seconds(1200))
        #expect(harness.ledger.queued == 0 && harness.ledger.failed == 0)
    }

    /// Curio knows one live session per visitor: an online request of an ended one would get 401 and open a visit that
    /// takes the place of the live one.
    @Test func retriedByAnOperator_isSentOffline_andLeavesTheLiveSessionAlone() throws {
        let harness = try harness()
        let live = SharedValue("")
        let isRefusing = SharedValue(true)
        harness.transport.answerAll { request in
            let session = request.form["sessionCode"] ?? ""
            if request.url.hasSuffix("/offline/create") { return .status(200) }
            if request.url.hasSuffix("/visit/create") {
                live.set(session)
            } else if session != live.value {
                return .status(401)
            }
            if isRefusing.value, request.url.hasSuffix("/event/create") { return .status(400) }
            return self.answer(request)
        }
        try post(harness, 0, "session_start", Self.device)
        let event = try post(harness, 0, "event", #""eventKey":"k","eventValue":"1""#)
        try post(harness, 0, "session_end")
        try post(harness, 0, "session_start", Self.device, session: 1)
        try post(harness, 0, "screen_start", #""screenClass":"c","pageTitle":"t","path":"p""#, session: 1)
        try harness.run(for: .seconds(5))
        #expect(try harness.state(event) == .failed)
        isRefusing.set(false)
        let before = harness.reports.count
        try harness.requeue(event)
        let end = try post(harness, 0, "screen_end", #""screenClass":"c""#, session: 1)
        try harness.run(for: .seconds(5))
        #expect(try harness.state(event) == .delivered)
        #expect(try harness.state(end) == .delivered)
        #expect(harness.reports[before...].map(\.url) == ["http://curio/offline/create", "http://curio/hit/end"])
    }

    @Test func visitorWhoseSessionsKeepDying_delaysNoOtherVisitor() throws {
        let harness = try harness()
        harness.transport.answerAll { request in
            request.form["visitorCode"] == "v0" && !request.url.hasSuffix("/visit/create")
                ? .status(401) : self.answer(request)
        }
        for visitor in 0..<5 { try play(harness, visitor) }
        try harness.run(for: .seconds(5))
        let delivered = harness.ledger.delivered
        #expect(delivered >= 24, "\(delivered)")
        #expect(harness.worker.snapshot.circuit == .closed)
        try harness.run(for: .seconds(3600))
        let quoted = harness.reports.filter { $0.form["visitorCode"] == "v0" && $0.url.hasSuffix("/hit/create") }
            .compactMap { $0.form["sessionCode"] }
        // Never again with a code that was rejected, and at most five rounds.
        #expect(Set(quoted).count == quoted.count)
        #expect(quoted.count <= 6)
    }

    @Test func periodicDispatch_waitsForItsPeriod_andGoesBeforeTheSessionEnds() throws {
        let harness = try harness(["periodicDispatchEnabled": .bool(true)])
        harness.transport.answerAll { self.answer($0) }
        try post(harness, 0, "session_start", Self.device)
        let id = try post(harness, 0, "event", #""eventKey":"k","eventValue":"1""#)
        try harness.run(for: .seconds(100))
        #expect(harness.reports.map(\.url) == ["http://curio/visit/create"])
        #expect(try harness.record(id).facts.laneWaitsFor == .schedule)
        try harness.run(for: .seconds(300))
        #expect(harness.reports.map(\.url) == ["http://curio/visit/create", "http://curio/batch/create"])
        try post(harness, 0, "event", #""eventKey":"l","eventValue":"1""#)
        try harness.run(for: .seconds(10))
        #expect(harness.reports.count == 2)
        try post(harness, 0, "session_end")
        try harness.run(for: .seconds(1))
        #expect(
            harness.reports.map { $0.url.dropFirst("http://curio".count) } == [
                "/visit/create", "/batch/create", "/batch/create", "/visit/end",
            ])
        #expect(harness.ledger.queued == 0)
    }

    @Test func flush_endsThePeriod() throws {
        let harness = try harness(["periodicDispatchEnabled": .bool(true)])
        harness.transport.answerAll { self.answer($0) }
        try post(harness, 0, "session_start", Self.device)
        try post(harness, 0, "event", #""eventKey":"k","eventValue":"1""#)
        try harness.run(for: .seconds(10))
        #expect(harness.reports.count == 1)
        #expect(try #require(try harness.flush()).delivered == 1)
    }
}
