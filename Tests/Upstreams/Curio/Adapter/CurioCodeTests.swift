import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// Screens and events with a code of the caller's, and sessions with a timeout of their own.
@Suite struct CurioCodeTests {
    private static let s = CurioSample.session
    private static let next = "6d551000-a21d-11e4-8123-03ab5c7d9e20"
    private static let own = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
    private static let ok = UpstreamResponse(status: 200)
    private static let down = UpstreamResponse(status: 503)
    private static let hit = UpstreamResponse(status: 200, body: Array(#"{"hitCode":"h1"}"#.utf8))
    private static let happened = UpstreamResponse(status: 200, body: Array(#"{"eventCode":"e1"}"#.utf8))

    private static func screenStart(
        _ title: String = "t", code: String = own, session: String = s, visitor: String = CurioSample.visitor,
        _ more: String...
    ) -> UpstreamFixture.Sample {
        let members = [#""hitCode":"\#(code)","pageTitle":"\#(title)","path":"/p""#] + more
        return CurioSample.make(
            "screen_start", members.joined(separator: ","), session: session, visitor: visitor)
    }

    private static func screenEnd(code: String = own, session: String = s) -> UpstreamFixture.Sample {
        CurioSample.make("screen_end", #""hitCode":"\#(code)""#, session: session)
    }

    private static func event(code: String = own) -> UpstreamFixture.Sample {
        CurioSample.make("event", CurioSample.eventTexts, #""eventCode":"\#(code)""#)
    }

    private static func eventEnd(code: String = own) -> UpstreamFixture.Sample {
        CurioSample.make("event_end", #""eventCode":"\#(code)","eventDuration":5"#)
    }

    /// A harness whose session is alive upstream. The requests for that are not kept.
    private func harness(_ settings: [String: SettingValue] = [:]) throws -> CurioHarness {
        var harness = try CurioHarness(settings)
        try harness.post(CurioSample.sessionStart())
        try harness.turn { _ in Self.ok }
        (harness.sent, harness.settled) = ([], [])
        return harness
    }

    private func play(_ harness: inout CurioHarness, _ answers: UpstreamResponse?...) throws {
        for answer in answers { try harness.turn { _ in answer } }
    }

    private func refusal(_ harness: inout CurioHarness, _ sample: UpstreamFixture.Sample) throws -> AcceptanceError? {
        do {
            try harness.post(sample)
            return nil
        } catch let refusal as AcceptanceError {
            return refusal
        }
    }

    // MARK: Codes

    @Test func end_quotesTheServersCode_ofAStartWithACode() throws {
        var harness = try harness()
        try harness.post(Self.screenStart())
        try play(&harness, Self.hit)
        try harness.post(Self.screenEnd())
        try play(&harness, Self.ok)
        #expect(harness.trace == ["/hit/create \(Self.s)", "/hit/end \(Self.s) h1"])
        #expect(harness.sent[1].form["pageTitle"] == "t" && harness.sent[1].form["path"] == "%2Fp")
        try harness.post(Self.event(code: "e"))
        try harness.post(Self.eventEnd(code: "e"))
        try play(&harness, Self.happened, Self.ok)
        #expect(harness.trace.last == "/event/end \(Self.s) e1")
        #expect(harness.sent[3].form["eventKey"] == "Buton%3EGiri%C5%9F")
    }

    /// The start failed once, and was then sent in a batch.
    @Test func batchOfAStartWithACode_containsThatCode_andItsEndQuotesIt() throws {
        var harness = try harness()
        try harness.post(Self.screenStart())
        try play(&harness, Self.down, Self.ok)
        #expect(harness.sent[1].path == "/offline/create")
        #expect(harness.sent[1].form["data"]?.contains(#""hitCode":"\#(Self.own)""#) == true)
        try harness.post(Self.screenEnd())
        try play(&harness, Self.ok)
        #expect(harness.trace.last == "/hit/end \(Self.s) \(Self.own)")
        #expect(harness.queue.isEmpty)
    }

    @Test func startAndEndInOneBatch_haveTheCallersCode() throws {
        var harness = try harness(["periodicDispatchEnabled": .bool(true)])
        try harness.post(Self.event())
        try harness.post(Self.eventEnd())
        harness.now = harness.now + .seconds(300)
        try play(&harness, Self.ok)
        let data = try #require(harness.sent[0].form["data"])
        #expect(data.ranges(of: #""eventCode":"\#(Self.own)""#).count == 2)
        #expect(data.ranges(of: #""eventKey":"Buton%3EGiri%C5%9F""#).count == 2)
    }

    @Test func startWithoutTheServersCode_goesAgain_withItsEndAndItsOwnCode() throws {
        var harness = try harness()
        try harness.post(Self.screenStart())
        try play(&harness, Self.ok)
        try harness.post(Self.screenEnd())
        try play(&harness, Self.ok)
        #expect(harness.sent[1].path == "/offline/create")
        #expect(harness.sent[1].form["data"]?.ranges(of: #""hitCode":"\#(Self.own)""#).count == 2)
    }

    @Test func end_closesTheStartOfItsCode_notTheLatest() throws {
        var harness = try harness()
        let opens = try ["a", "b", "c"].map {
            try harness.post(Self.screenStart($0, code: $0, CurioSample.screenClass)).id
        }
        let plain = try harness.post(CurioSample.screenStart("plain", "/")).id
        func closed(_ sample: UpstreamFixture.Sample) throws -> MessageID? {
            let end = try harness.post(sample).id
            return harness.state.open(at: Key.closing(end, of: Self.s))?.id
        }
        let byClass = CurioSample.make("screen_end", CurioSample.screenClass)
        #expect(try closed(Self.screenEnd(code: "b")) == opens[1])
        // Those without a code close the latest of their class, with or without a code.
        #expect(try closed(byClass) == plain)
        #expect(try closed(byClass) == opens[2])
        #expect(try closed(byClass) == opens[0])
        #expect(try refusal(&harness, byClass)?.reason == .conflict)
        #expect(harness.state.values(below: "s/\(Self.s)/n", atMost: 9).isEmpty)
        #expect(harness.state.values(below: "s/\(Self.s)/o", atMost: 9).isEmpty)
    }

    @Test func end_inALaterSession_closesTheStartOfItsCode() throws {
        var harness = try harness()
        let open = try harness.post(Self.screenStart()).id
        try play(&harness, Self.hit)
        try harness.post(CurioSample.sessionStart(session: Self.next))
        let end = try harness.post(Self.screenEnd(session: Self.next)).id
        try play(&harness, Self.ok, Self.ok)
        #expect(harness.trace.last == "/hit/end \(Self.next) h1")
        #expect(harness.sent.last?.form["pageTitle"] == "t")
        // Nothing is left but that it was closed.
        #expect(harness.state.code(of: open, in: Self.s) == nil)
        #expect(harness.state.open(at: Key.coded(Self.own, of: Self.s))?.closedBy == end)
        #expect(harness.state.values(below: "s/\(Self.s)/n", atMost: 9).isEmpty)
        #expect(harness.state.values(below: "s/\(Self.next)/c", atMost: 9).isEmpty)
    }

    @Test func end_ofAnUnknownCode_isSentWithIt() throws {
        var harness = try harness()
        try harness.post(Self.screenEnd(code: "theirs"))
        try harness.post(CurioSample.make("event_end", CurioSample.eventTexts, #""eventCode":"x","eventDuration":5"#))
        try harness.post(Self.eventEnd(code: "y"))
        try play(&harness, Self.ok, Self.ok, Self.ok)
        #expect(
            harness.trace == ["/hit/end \(Self.s) theirs", "/event/end \(Self.s) x", "/event/end \(Self.s) y"])
        #expect(harness.sent.map { $0.form["eventKey"] } == [nil, "Buton%3EGiri%C5%9F", ""])
        #expect(harness.sent[0].form["pageTitle"] == "" && harness.sent[0].form["path"] == "")
        // Late, it is a record like others.
        try harness.post(CurioSample.make("screen_end", #""hitCode":"z""#, at: CurioSample.fresh - 99_000))
        try play(&harness, Self.ok)
        #expect(harness.sent.last?.form["data"]?.contains(#""pageTitle":"","path":"","hitCode":"z""#) == true)
        #expect(harness.queue.isEmpty)
    }

    @Test func secondEnd_isARepeatOfTheFirst_alsoAfterTheSession() throws {
        var harness = try harness()
        try harness.post(Self.screenStart())
        let first = try harness.post(Self.screenEnd())
        let closed = harness.state.values[Key.coded(Self.own, of: Self.s)]
        #expect(try harness.post(Self.screenEnd()).changes == [.repeats(first.id)])
        try harness.post(CurioSample.sessionStart(session: Self.next))
        #expect(try harness.post(Self.screenEnd(session: Self.next)).changes == [.repeats(first.id)])
        try harness.post(CurioSample.make("session_end"))
        #expect(try harness.post(Self.screenEnd()).changes == [.repeats(first.id)])
        #expect(closed == harness.state.values[Key.coded(Self.own, of: Self.s)])
    }

    @Test func code_isTakenOnce_byEachVisitor() throws {
        var harness = try harness()
        try harness.post(Self.screenStart())
        for sample in [Self.screenStart("u"), Self.event()] {
            let refusal = try #require(try refusal(&harness, sample))
            #expect(refusal.reason == .conflict && refusal.detail.contains("has used this"))
        }
        #expect(try refusal(&harness, Self.eventEnd())?.detail == "this eventCode is the hitCode of a start")
        try harness.post(Self.screenEnd())
        #expect(try refusal(&harness, Self.screenStart())?.pointer == "/hitCode")
        try harness.post(CurioSample.sessionStart(session: Self.next))
        #expect(try refusal(&harness, Self.screenStart(session: Self.next))?.reason == .conflict)
        let other = "6d551000-a21d-11e4-8123-03ab5c7d9e21"
        try harness.post(CurioSample.sessionStart(session: other, visitor: "another visitor"))
        #expect(try refusal(&harness, Self.screenStart(session: other, visitor: "another visitor")) == nil)
    }

    @Test func code_isRemembered_asLongAsItsSession() throws {
        var harness = try harness()
        let changes = try harness.post(Self.screenStart()).changes
        let expiry = StateChange.Expiry(at: harness.now + .seconds(24 * 1800), lane: CurioSample.visitor)
        for case .set(let key, _, let given) in changes {
            #expect(given == (key.hasPrefix("h/") || key == Key.session(Self.s) ? expiry : nil), "\(key)")
        }
        // What was below the session is gone with it.
        harness.state.apply([.removeAll(below: Key.session(Self.s)), .remove(key: Key.session(Self.s))])
        try harness.post(CurioSample.sessionStart(session: Self.next))
        let end = try harness.post(Self.screenEnd(session: Self.next)).id
        #expect(harness.state.open(at: Key.closing(end, of: Self.next)) == nil)
    }

    @Test func endOfARefusedStart_isNotSent() throws {
        var harness = try harness()
        try harness.post(Self.event())
        try harness.post(Self.eventEnd())
        try play(&harness, UpstreamResponse(status: 400))
        #expect(try harness.turn { _ in Self.ok } == .settled)
        #expect(harness.settled.map(\.state) == [.failed, .failed])
    }

    @Test func withoutCodes_nothingIsStoredForThem() throws {
        var harness = try harness()
        let changes =
            try harness.post(CurioSample.screenStart()).changes + harness.post(CurioSample.event()).changes
            + harness.post(CurioSample.eventEnd()).changes
        #expect(changes.count == 4)
        #expect(!harness.state.values.keys.contains { $0.hasPrefix("h/") || $0.contains("/h/") || $0.contains("/n/") })
        #expect(harness.state.value(of: Key.session(Self.s))?.first == 1)
    }

    @Test func session_isShown_withItsTimeoutAndCodes() throws {
        var harness = try CurioHarness()
        try harness.post(Self.sessionStart(7))
        try harness.post(Self.screenStart())
        try harness.post(Self.event(code: "e"))
        try harness.post(Self.screenStart("gone", code: "g"))
        try harness.post(Self.screenEnd(code: "g"))
        let route = try #require(harness.upstream.traits.routes.first)
        let parameters = try #require(route.parameters(matching: ["sessions", Substring(Self.s)]))
        guard case .read(let read) = route.response,
            case .json(let text, 200, _) = read(.init(parameters: parameters, receivedAt: harness.now), harness.state)
        else {
            Issue.record("no answer")
            return
        }
        for part in [
            #""sessionTimeout":7"#, #""pageTitle":"t","path":"/p","hitCode":"\#(Self.own)","code":null"#,
            #""eventKey":"Buton>Giriş","eventValue":"100% A+B","eventCode":"e""#,
        ] {
            #expect(text.contains(part), "\(part)")
        }
        #expect(!text.contains("gone"))
    }

    // MARK: The timeout of a session

    private static func sessionStart(
        _ minutes: Int, session: String = s, at moment: Int64 = CurioSample.fresh
    ) -> UpstreamFixture.Sample {
        CurioSample.sessionStart(
            at: moment, session: session, device: CurioSample.device + #","sessionTimeout":\#(minutes)"#)
    }

    @Test func sessionTimeout_isSentForItsSession_inEachRequest() throws {
        var harness = try CurioHarness()
        try harness.post(Self.sessionStart(7))
        try harness.post(Self.screenStart())
        try harness.post(CurioSample.make("unregister"))
        try harness.post(CurioSample.event())
        try play(&harness, Self.ok, Self.hit, UpstreamResponse(status: 401), Self.ok, Self.ok, Self.down, Self.ok)
        try harness.post(CurioSample.sessionStart(session: Self.next))
        try play(&harness, Self.ok)
        #expect(
            harness.sent.map(\.path) == [
                "/visit/create", "/hit/create", "/visitor/unregister", "/visit/create", "/visitor/unregister",
                "/event/create", "/offline/create", "/visit/create",
            ])
        #expect(harness.sent.map { $0.form["sessionTimeout"] } == Array(repeating: "7", count: 7) + ["30"])
        // It is not a part of the device block.
        let start = String(decoding: harness.sent[0].spelledOut, as: UTF8.self)
        #expect(start.ranges(of: "sessionTimeout").count == 1)
    }

    @Test func sessionsOfDifferentTimeouts_goApart() throws {
        var harness = try CurioHarness()
        let codes = (0...2).map { "6d551000-a21d-11e4-8123-03ab5c7d9e3\($0)" }
        for (code, minutes) in zip(codes, [7, 7, 8]) {
            try harness.post(Self.sessionStart(minutes, session: code, at: CurioSample.fresh - 99_000))
        }
        try play(&harness, Self.ok, Self.ok)
        #expect(harness.queue.isEmpty)
        #expect(harness.sent.map { $0.form["sessionTimeout"] } == ["7", "8"])
    }

    @Test func session_isRemembered_byItsOwnTimeout() throws {
        var harness = try CurioHarness(["sessionTimeoutMinutes": .integer(10)])
        func expiry(_ changes: [StateChange]) -> Timestamp? {
            for case .set(Key.session(Self.s), _, let expiry) in changes { return expiry?.at }
            return nil
        }
        let began = harness.now
        #expect(try expiry(harness.post(Self.sessionStart(1440)).changes) == began + .seconds(24 * 86_400))
        #expect(try expiry(harness.post(CurioSample.make("session_end")).changes) == began + .seconds(2 * 86_400))
    }

    @Test func collectedOnes_waitNoLongerThanTheirSessionLives() throws {
        var harness = try CurioHarness(["periodicDispatchEnabled": .bool(true)])
        try harness.post(Self.sessionStart(2))
        try play(&harness, Self.ok)
        try harness.post(CurioSample.event())
        #expect(try harness.turn { _ in Self.ok } == .waits(until: harness.now + .seconds(120)))
    }
}
