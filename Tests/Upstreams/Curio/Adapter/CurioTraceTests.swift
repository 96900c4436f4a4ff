import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import CurioAdapter

/// The specification's traces (11.4), and what else its tables demand of a sequence of requests.
@Suite struct CurioTraceTests {
    private static let s = CurioSample.session
    private static let ok = UpstreamResponse(status: 200)
    private static let gone = UpstreamResponse(status: 401)
    private static let down = UpstreamResponse(status: 503)
    private static let hit = UpstreamResponse(status: 200, body: Array(#"{"hitCode":"h1"}"#.utf8))
    private static let screenEnd = CurioSample.make("screen_end", CurioSample.screenClass)

    /// A harness whose session is alive upstream. The requests for that are not kept.
    private func harness(_ settings: [String: SettingValue] = [:]) throws -> CurioHarness {
        var harness = try CurioHarness(settings)
        try harness.post(CurioSample.sessionStart())
        try harness.turn { _ in Self.ok }
        #expect(harness.trace == ["/visit/create \(Self.s)"])
        harness.sent = []
        harness.settled = []
        return harness
    }

    private func play(_ harness: inout CurioHarness, _ answers: UpstreamResponse?...) throws {
        for answer in answers { try harness.turn { _ in answer } }
    }

    /// The records of a batch.
    private func data(_ request: UpstreamRequest) -> String { request.form["data"] ?? "" }

    // MARK: Sessions that are gone

    /// A message of it was queued again, for example. What the response leaves would stay in the store permanently.
    @Test func resultOfASessionThatHasExpired_expiresWithItsLane() throws {
        var harness = try harness()
        try harness.post(CurioSample.screenStart())
        let message = harness.queue[0]
        func context(_ state: DictionaryState) -> PlanContext {
            PlanContext(now: harness.now, token: nil, state: state, flushedThrough: nil)
        }
        guard case .send(let request, _) = harness.upstream.plan(for: [message], in: context(harness.state)) else {
            Issue.record("nothing to send")
            return
        }
        let batch = Batch(id: BatchID(rawValue: 1), messages: [message], request: request)
        func expiries(_ state: DictionaryState) -> [StateChange.Expiry?] {
            let decision = harness.upstream.judge(.success(Self.hit), to: batch, in: context(state))
            return (decision.changes?(state) ?? []).map {
                if case .set(_, _, let expiry) = $0 { expiry } else { nil }
            }
        }
        #expect(expiries(harness.state).allSatisfy { $0 == nil })
        let expired = expiries(DictionaryState())
        let expected = StateChange.Expiry(at: harness.now, lane: CurioSample.visitor)
        #expect(!expired.isEmpty && expired.allSatisfy { $0 == expected })
    }

    @Test func expiredSession_isCreatedAgain_underItsDeviceBlock() throws {
        var harness = try harness()
        try harness.post(CurioSample.screenStart())
        try play(&harness, Self.gone, Self.ok, Self.hit)
        let next = try #require(harness.sent[1].form["sessionCode"])
        #expect(next != Self.s && Code.isSession(Array(next.utf8)))
        #expect(harness.trace == ["/hit/create \(Self.s)", "/visit/create \(next)", "/hit/create \(next)"])
        let golden = String(decoding: try Fixture.bytes("session-start.http"), as: UTF8.self)
        #expect(String(decoding: harness.sent[1].spelledOut, as: UTF8.self) == golden.replacing(Self.s, with: next))
        #expect(harness.queue.isEmpty)
        try harness.post(Self.screenEnd)
        try play(&harness, Self.ok)
        #expect(harness.trace.last == "/hit/end \(next) h1")
        // Nothing is left of what has ended.
        #expect(
            Set(harness.state.values.keys) == [Key.session(Self.s), Key.remote(of: Self.s)], "\(harness.state.values)")
    }

    @Test func closeOfAnExpiredSession_keepsTheServersCode() throws {
        var harness = try harness()
        try harness.post(CurioSample.screenStart())
        try play(&harness, Self.hit)
        try harness.post(Self.screenEnd)
        try play(&harness, Self.gone, Self.ok, Self.ok)
        let next = try #require(harness.sent[2].form["sessionCode"])
        #expect(
            harness.trace == [
                "/hit/create \(Self.s)", "/hit/end \(Self.s) h1", "/visit/create \(next)", "/hit/end \(next) h1",
            ])
        #expect(harness.queue.isEmpty)
    }

    @Test func expiredPeriodicBatch_keepsItsRecords_underTheNewCode() throws {
        var harness = try harness(["periodicDispatchEnabled": .bool(true)])
        try harness.post(CurioSample.screenStart())
        try harness.post(CurioSample.event())
        harness.now = harness.now + .seconds(300)
        try play(&harness, Self.gone, Self.ok, Self.ok)
        let next = try #require(harness.sent[2].form["sessionCode"])
        #expect(harness.trace == ["/batch/create \(Self.s)", "/visit/create \(next)", "/batch/create \(next)"])
        #expect(data(harness.sent[0]).contains(#""sessionCode":"\#(Self.s)""#))
        #expect(data(harness.sent[2]) == data(harness.sent[0]))
        // What comes later is recorded under the new code.
        try harness.post(CurioSample.event(at: harness.now.milliseconds))
        harness.now = harness.now + .seconds(300)
        try play(&harness, Self.ok)
        #expect(harness.trace.last == "/batch/create \(next)")
        #expect(data(harness.sent[3]).contains(#""sessionCode":"\#(next)""#))
        #expect(harness.queue.isEmpty)
    }

    @Test func endOfAnExpiredSession_isDone() throws {
        var harness = try harness()
        try harness.post(CurioSample.make("session_end"))
        try play(&harness, Self.gone, Self.gone)
        #expect(harness.trace == ["/visit/end \(Self.s)"])
        #expect(harness.settled.map(\.state) == [.delivered])
    }

    @Test func refusedCodes_areNeverUsedAgain_andBackOffFromTheSecondRound() throws {
        var harness = try harness()
        try harness.post(CurioSample.make("unregister"))
        var verdicts: [Verdict?] = []
        for _ in 1...7 {
            try play(&harness, Self.gone)
            verdicts.append(harness.lastVerdict)
            try play(&harness, Self.ok)
        }
        #expect(verdicts == [.proceed(progress: [])] + Array(repeating: .backOff, count: 6))
        let codes = harness.sent.filter { $0.path == "/visitor/unregister" }.compactMap { $0.form["sessionCode"] }
        #expect(codes.count == 7 && Set(codes).count == 7)
        try play(&harness, Self.ok)
        #expect(harness.queue.isEmpty)
        #expect(harness.state.remote(of: Self.s).rounds == 0)
    }

    @Test func screensAndEvents_goOffline_afterFiveRounds() throws {
        var harness = try harness()
        try harness.post(CurioSample.event())
        for _ in 1...6 { try harness.turn { $0.path == "/visit/create" ? Self.ok : Self.gone } }
        #expect(harness.trace.filter { $0.hasPrefix("/event/create") }.count == 3)
        while harness.sent.last?.path != "/offline/create" {
            try harness.turn { $0.path == "/event/create" ? Self.gone : Self.ok }
        }
        #expect(harness.trace.filter { $0.hasPrefix("/event/create") }.count == 6)
        #expect(harness.trace.filter { $0.hasPrefix("/visit/create") }.count == 5)
        #expect(harness.queue.isEmpty)
    }

    @Test func endOfADeadSession_isSentOffline_sinceNothingLivesThatCouldEnd() throws {
        var harness = try harness()
        try harness.post(CurioSample.event())
        try harness.post(CurioSample.make("session_end"))
        try play(&harness, Self.gone, Self.down, Self.ok, Self.ok)
        #expect(harness.sent.map(\.path) == ["/event/create", "/visit/create", "/offline/create", "/offline/create"])
        #expect(
            data(harness.sent[3]) == #"[{"type":1,"timestamp":"\#(CurioSample.fresh)","sessionCode":"\#(Self.s)"}]"#)
    }

    @Test func refusedStart_isTriedOnceMore_underAnotherCode_andThenHolds() throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart())
        try play(&harness, Self.gone)
        #expect(harness.lastVerdict == .proceed(progress: []))
        try play(&harness, Self.gone)
        let held = Verdict.holdUpstream(
            .credentials, detail: "HTTP 401 for two new sessions: the api key may be wrong")
        #expect(harness.lastVerdict == held)
        // Each probe is one request, with a code of its own.
        try play(&harness, Self.gone)
        #expect(harness.lastVerdict == held)
        try play(&harness, Self.ok)
        #expect(harness.queue.isEmpty)
        #expect(Set(harness.trace).count == 4 && harness.trace.allSatisfy { $0.hasPrefix("/visit/create") })
        try harness.post(CurioSample.event())
        try play(&harness, Self.ok)
        #expect(harness.sent[4].form["sessionCode"] == harness.sent[3].form["sessionCode"])
    }

    // MARK: Credentials, outages, lost answers

    @Test(arguments: [412, 403])
    func wrongCredentials_holdEverything_andLoseNothing(status: Int) throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart())
        try harness.post(CurioSample.event())
        try play(&harness, UpstreamResponse(status: status))
        guard case .holdUpstream(.credentials, _) = harness.lastVerdict else { return #expect(Bool(false)) }
        #expect(harness.queue.count == 2 && harness.queue.allSatisfy { $0.attempts == 0 && !$0.mayHaveArrived })
        harness.upstream = try UpstreamFixture.curio.make(["trackingCode": .text("RIGHT001")])
        try play(&harness, Self.ok, Self.ok)
        #expect(harness.sent.map { $0.form["trackingCode"] } == ["GW7DEM01", "RIGHT001", "RIGHT001"])
        #expect(harness.trace.map { $0.prefix(13) } == ["/visit/create", "/visit/create", "/event/create"])
        #expect(harness.queue.isEmpty)
    }

    @Test func failedEvent_isSentOffline_withItsTimeAndOurCode() throws {
        var harness = try harness()
        let id = try harness.post(CurioSample.event()).id
        try play(&harness, Self.down)
        #expect(harness.lastVerdict == .retry(after: nil))
        try play(&harness, Self.ok)
        #expect(harness.sent.map(\.path) == ["/event/create", "/offline/create"])
        let code = Code.open(id, session: Self.s, visitor: CurioSample.visitor)
        #expect(
            data(harness.sent[1])
                == #"[{"type":4,"timestamp":"\#(CurioSample.fresh)","sessionCode":"\#(Self.s)","#
                + #""eventKey":"Buton%3EGiri%C5%9F","eventValue":"100%25+A%2BB","eventCode":"\#(code)"}]"#)
        // The end is recent, so it is sent alone and quotes that code.
        try harness.post(CurioSample.eventEnd())
        try play(&harness, Self.ok)
        #expect(harness.trace.last == "/event/end \(Self.s) \(code)")
    }

    @Test func lostAnswerOfABatch_isRepeatedByteForByte() throws {
        var harness = try harness()
        try harness.post(CurioSample.screenStart(at: CurioSample.fresh - 61_000))
        try harness.post(CurioSample.event(at: CurioSample.fresh - 60_001))
        try play(&harness, nil)
        harness.now = harness.now + .seconds(7200)
        try harness.post(CurioSample.event(at: CurioSample.fresh))
        try play(&harness, Self.ok)
        #expect(harness.sent.map(\.path) == ["/offline/create", "/offline/create"])
        #expect(harness.sent[0] == harness.sent[1])
        #expect(harness.queue.count == 1)
    }

    @Test func lostAnswerOfOne_isRepeatedOffline() throws {
        var harness = try harness()
        try harness.post(CurioSample.screenStart())
        try play(&harness, nil, Self.ok)
        #expect(harness.sent.map(\.path) == ["/hit/create", "/offline/create"])
    }

    @Test func failedPeriodicBatch_isSentOffline() throws {
        var harness = try harness(["periodicDispatchEnabled": .bool(true)])
        try harness.post(CurioSample.screenStart())
        harness.now = harness.now + .seconds(300)
        try play(&harness, Self.down, Self.ok)
        #expect(harness.sent.map(\.path) == ["/batch/create", "/offline/create"])
        #expect(data(harness.sent[0]) == data(harness.sent[1]))
    }

    @Test func whatHasNoBatchForm_isRepeatedAlone_howeverLate() throws {
        var harness = try harness()
        try harness.post(CurioSample.make("push_token", CurioSample.pushToken))
        try play(&harness, Self.down)
        harness.now = harness.now + .seconds(86400)
        try play(&harness, nil, Self.ok)
        #expect(harness.sent.map(\.path) == Array(repeating: "/visitor/setPushData", count: 3))
        #expect(harness.queue.isEmpty)
    }

    // MARK: Codes

    @Test(arguments: [
        "<html>", "", #"{"hitCode":""}"#, #"{"hitCode":null}"#, #"{"code":"c"}"#, #"{"hitCode":{"a":1}}"#,
        #"["hitCode"]"#, #"{"hitCode":true}"#, #"{"hitCode":"\#(String(repeating: "x", count: 1025))"}"#,
    ])
    func openWithoutACode_goesAgain_withItsEnd(body: String) throws {
        var harness = try harness()
        let id = try harness.post(CurioSample.screenStart("t", "/p", at: CurioSample.fresh - 1000)).id
        try play(&harness, UpstreamResponse(status: 200, body: Array(body.utf8)))
        #expect(harness.settled.map(\.state) == [.delivered])
        #expect(harness.notices.count == 1)
        try harness.post(Self.screenEnd)
        try play(&harness, Self.ok)
        let code = Code.open(id, session: Self.s, visitor: CurioSample.visitor)
        let rest = #""sessionCode":"\#(Self.s)","pageTitle":"t","path":"%2Fp","hitCode":"\#(code)""#
        #expect(harness.sent[1].path == "/offline/create")
        #expect(
            data(harness.sent[1])
                == #"[{"type":2,"timestamp":"\#(CurioSample.fresh - 1000)",\#(rest)},"#
                + #"{"type":3,"timestamp":"\#(CurioSample.fresh)",\#(rest)}]"#)
        #expect(harness.queue.isEmpty)
    }

    @Test func numericCode_isKept_digitForDigit() throws {
        var harness = try harness()
        try harness.post(CurioSample.screenStart())
        try harness.post(Self.screenEnd)
        try play(
            &harness, UpstreamResponse(status: 200, body: Array(#" { "hitCode" : 700000012345678901 } "#.utf8)), Self.ok
        )
        #expect(harness.trace == ["/hit/create \(Self.s)", "/hit/end \(Self.s) 700000012345678901"])
    }

    @Test func lateEnd_quotesTheServersCode_offline() throws {
        var harness = try harness()
        try harness.post(CurioSample.screenStart())
        try play(&harness, Self.hit)
        try harness.post(Self.screenEnd)
        harness.now = harness.now + .seconds(61)
        try play(&harness, Self.ok)
        #expect(harness.sent[1].path == "/offline/create")
        #expect(data(harness.sent[1]).contains(#""type":3"#) && data(harness.sent[1]).contains(#""hitCode":"h1""#))
        #expect(!data(harness.sent[1]).contains(#""type":2"#))
    }

    @Test func code_isDecided_whenTheEndIsSent() throws {
        var harness = try harness()
        try harness.post(CurioSample.event())
        try harness.post(CurioSample.eventEnd())
        try play(&harness, UpstreamResponse(status: 200, body: Array(#"{"eventCode":"e9"}"#.utf8)), Self.ok)
        #expect(harness.trace == ["/event/create \(Self.s)", "/event/end \(Self.s) e9"])
    }

    @Test(arguments: [(#"{"sessionCode":"other-code"}"#, "other-code"), (#"{"sessionCode":77}"#, "77")])
    func otherSessionCode_isUsedFromThenOn(body: String, code: String) throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart(at: CurioSample.fresh - 100_000))
        try play(&harness, UpstreamResponse(status: 200, body: Array(body.utf8)))
        try harness.post(CurioSample.event())
        try play(&harness, Self.ok)
        #expect(harness.trace == ["/offline/create", "/event/create \(code)"])
    }

    @Test(arguments: [#"{"sessionCode":"\#(CurioSample.session)"}"#, #"{"sessionCode":""}"#, "{}", "<html>", ""])
    func sameOrNoSessionCode_changesNothing(body: String) throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart(at: CurioSample.fresh - 100_000))
        try play(&harness, UpstreamResponse(status: 200, body: Array(body.utf8)))
        try harness.post(CurioSample.event())
        try play(&harness, Self.ok)
        #expect(harness.trace == ["/offline/create", "/event/create \(Self.s)"])
    }

    // MARK: Refusals

    /// A4: the lost answer may have been a success, and the session may have died since.
    @Test func refusedStart_afterALostAnswer_isTriedOnceUnderAnotherCode() throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart())
        try harness.post(CurioSample.screenStart())
        try play(&harness, nil, UpstreamResponse(status: 400), Self.ok, Self.hit)
        #expect(harness.sent.map(\.path) == ["/visit/create", "/offline/create", "/offline/create", "/hit/create"])
        #expect(data(harness.sent[1]).contains(Self.s) && !data(harness.sent[2]).contains(Self.s))
        let code = try #require(harness.sent[3].form["sessionCode"])
        #expect(data(harness.sent[2]).contains(code))
        #expect(harness.queue.isEmpty && harness.settled.allSatisfy { $0.state == .delivered })
    }

    @Test func refusalOfTheOtherCode_isFinal() throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart())
        try harness.post(CurioSample.screenStart())
        try play(&harness, nil, UpstreamResponse(status: 400), UpstreamResponse(status: 400), Self.ok)
        #expect(harness.sent.count == 3)
        #expect(harness.queue.isEmpty && harness.settled.allSatisfy { $0.state == .failed })
    }

    @Test func refusedStart_whoseEarlierAnswerCame_isFinalAtOnce() throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart())
        try play(&harness, UpstreamResponse(status: 400))
        #expect(harness.sent.count == 1 && harness.queue.isEmpty)
    }

    @Test func refusedSession_takesAllItsActionsAlong() throws {
        var harness = try CurioHarness()
        try harness.post(CurioSample.sessionStart())
        try harness.post(CurioSample.event())
        try harness.post(CurioSample.make("unregister"))
        let next = "6d551000-a21d-11e4-8123-03ab5c7d9e20"
        try harness.post(CurioSample.sessionStart(session: next))
        try play(&harness, UpstreamResponse(status: 422))
        #expect(harness.lastVerdict == .split(reason: "HTTP 422"))
        #expect(try harness.turn { _ in Self.ok } == .settled)
        #expect(harness.settled.map(\.state) == [.failed, .failed, .failed])
        try play(&harness, Self.ok)
        #expect(harness.trace == ["/visit/create \(Self.s)", "/visit/create \(next)"])
    }

    @Test func refusedStep_isTheSessions() throws {
        var harness = try harness()
        try harness.post(CurioSample.event())
        try play(&harness, Self.gone, UpstreamResponse(status: 400))
        #expect(try harness.turn { _ in Self.ok } == .settled)
        #expect(harness.settled.map(\.state) == [.failed])
    }

    @Test func endOfARefusedOpen_isNotSent() throws {
        var harness = try harness()
        try harness.post(CurioSample.event())
        try harness.post(CurioSample.eventEnd())
        try play(&harness, UpstreamResponse(status: 400))
        #expect(try harness.turn { _ in Self.ok } == .settled)
        #expect(harness.settled.map(\.state) == [.failed, .failed])
    }

    @Test func endOfAnOpenThatNeverWent_isNotSent() throws {
        var harness = try harness()
        let id = try harness.post(CurioSample.event()).id
        try harness.post(CurioSample.eventEnd())
        harness.queue.removeAll { $0.id == id }
        #expect(try harness.turn { _ in Self.ok } == .settled)
        #expect(harness.settled.map(\.state) == [.failed])
    }

    @Test func deviceAheadOfTime_isLateAllTheSame() throws {
        var harness = try harness()
        try harness.post(CurioSample.event(at: CurioSample.fresh + 80_000_000))
        harness.now = harness.now + .seconds(61)
        try play(&harness, Self.ok)
        #expect(harness.sent.map(\.path) == ["/offline/create"])
    }

    @Test(arguments: [400, 413, 415, 422])
    func refusedBatch_isHalved_untilThePoisonMessageIsAlone(status: Int) throws {
        var harness = try harness()
        let opens = try (1...7).map {
            try harness.post(CurioSample.screenStart("t\($0)", at: CurioSample.fresh - 99_000)).id
        }
        while !harness.queue.isEmpty {
            try harness.turn { data($0).contains(#""t5""#) ? UpstreamResponse(status: status) : Self.ok }
        }
        #expect(harness.settled.filter { $0.state == .failed }.map(\.id) == [opens[4]])
        #expect(harness.settled.map(\.id) == opens, "order is kept")
    }

    @Test func offline401_isSuspect() throws {
        var harness = try harness()
        try harness.post(CurioSample.event(at: CurioSample.fresh - 99_000))
        try play(&harness, Self.gone)
        #expect(harness.lastVerdict == .suspect(after: nil))
        #expect(harness.state.remote(of: Self.s) == RemoteSession(isStarted: true))
    }

    // MARK: Batches

    @Test func staleRun_goesInBatchesOf250_andFreshOnesFollow() throws {
        var harness = try harness()
        for number in 1...260 {
            try harness.post(CurioSample.screenStart("t\(number)", at: CurioSample.fresh - 99_000))
        }
        try harness.post(CurioSample.event())
        while !harness.queue.isEmpty { try harness.turn { _ in Self.ok } }
        #expect(harness.sent.map(\.path) == ["/offline/create", "/offline/create", "/event/create"])
        let titles = harness.sent.dropLast().map {
            data($0).matches(of: /"pageTitle":"t(\d+)"/).compactMap { Int($0.1) }
        }
        #expect(titles == [Array(1...250), Array(251...260)])
    }

    @Test func endsThatBringTheirOpens_countTwice() throws {
        var harness = try harness()
        for _ in 1...130 {
            try harness.post(CurioSample.screenStart())
            try play(&harness, Self.ok)
        }
        harness.sent = []
        for _ in 1...130 { try harness.post(Self.screenEnd) }
        try play(&harness, Self.ok, Self.ok)
        #expect(harness.queue.isEmpty)
        #expect(harness.sent.map { data($0).count(of: #""type""#) } == [250, 10])
    }

    @Test func sessionsOfDifferentDevices_goApart() throws {
        var harness = try CurioHarness()
        let codes = (0...2).map { "6d551000-a21d-11e4-8123-03ab5c7d9e3\($0)" }
        let updated = CurioSample.device.replacing("2.4.0", with: "2.5.0")
        for (index, device) in [CurioSample.device, CurioSample.device, updated].enumerated() {
            try harness.post(
                CurioSample.sessionStart(at: CurioSample.fresh - 99_000, session: codes[index], device: device))
            try harness.post(CurioSample.make("session_end", at: CurioSample.fresh - 98_000, session: codes[index]))
        }
        try play(&harness, Self.ok, Self.ok)
        #expect(harness.queue.isEmpty)
        #expect(harness.sent.map { data($0).count(of: #""type""#) } == [4, 2])
        #expect(harness.sent.map { $0.form["appVer"] } == ["2.4.0", "2.5.0"])
    }

    /// To Swift, the two spellings of the brand are equal.
    @Test func sessionsOfDevicesThatDifferInTheirBytes_goApart() throws {
        var harness = try CurioHarness()
        let brands = ["Caf\u{E9}", "Cafe\u{301}"]
        for (index, brand) in brands.enumerated() {
            let code = "6d551000-a21d-11e4-8123-03ab5c7d9e3\(index)"
            let device = CurioSample.device.replacing("Apple", with: brand)
            try harness.post(CurioSample.sessionStart(at: CurioSample.fresh - 99_000, session: code, device: device))
            try harness.post(CurioSample.make("session_end", at: CurioSample.fresh - 98_000, session: code))
        }
        try play(&harness, Self.ok, Self.ok)
        #expect(harness.queue.isEmpty)
        let sent = harness.sent.map { $0.form["brand"] ?? "" }
        #expect(sent.map { Array($0.utf8) } == brands.map { Array($0.utf8) })
    }

    @Test func sessionWhoseStartNeverWent_isStartedByItsFirstAction() throws {
        for isLate in [false, true] {
            var harness = try CurioHarness()
            try harness.post(CurioSample.sessionStart())
            // As a caller may cancel it.
            harness.queue.removeAll()
            try harness.post(CurioSample.event())
            if isLate { harness.now = harness.now + .seconds(61) }
            while !harness.queue.isEmpty { try harness.turn { _ in Self.ok } }
            if isLate {
                #expect(harness.trace == ["/offline/create"])
                #expect(data(harness.sent[0]).hasPrefix(#"[{"type":0,"timestamp":"\#(CurioSample.fresh)""#))
            } else {
                #expect(harness.trace == ["/visit/create \(Self.s)", "/event/create \(Self.s)"])
            }
            #expect(harness.state.remote(of: Self.s).isStarted)
        }
    }

    // MARK: Periodic dispatch

    @Test func screensAndEvents_waitForTheirPeriod() throws {
        var harness = try harness(["periodicDispatchEnabled": .bool(true), "dispatchPeriodMinutes": .integer(3)])
        let began = harness.now
        try harness.post(CurioSample.screenStart())
        harness.now = began + .seconds(100)
        try harness.post(CurioSample.event(at: harness.now.milliseconds))
        #expect(try harness.turn { _ in Self.ok } == .waits(until: began + .seconds(180)))
        harness.now = began + .seconds(180)
        #expect(try harness.turn { _ in Self.ok } == .sent)
        #expect(harness.trace == ["/batch/create \(Self.s)"])
        #expect(data(harness.sent[0]).count(of: #""type""#) == 2)
    }

    @Test func waitingOnes_goAtOnce_whenTheClockWasSetBack() throws {
        var harness = try harness(["periodicDispatchEnabled": .bool(true)])
        try harness.post(CurioSample.screenStart())
        harness.now = harness.now - .seconds(3600)
        #expect(try harness.turn { _ in Self.ok } == .sent)
    }

    @Test func waitingOnes_goBeforeWhatDoesNotWait() throws {
        for (sample, path) in [
            (CurioSample.make("session_end"), "/visit/end"), (CurioSample.make("unregister"), "/visitor/unregister"),
            (CurioSample.event(at: CurioSample.fresh - 361_000), "/offline/create"),
        ] {
            var harness = try harness(["periodicDispatchEnabled": .bool(true)])
            try harness.post(CurioSample.screenStart())
            try harness.post(sample)
            try play(&harness, Self.ok, Self.ok)
            #expect(harness.sent.map(\.path) == ["/batch/create", path])
        }
    }

    @Test func waitingOnes_goAtOnce_whenFlushed_orMoreIsBehindThem() throws {
        var harness = try harness(["periodicDispatchEnabled": .bool(true)])
        let id = try harness.post(CurioSample.screenStart()).id
        harness.flushedThrough = MessageID(rawValue: id.rawValue - 1)
        #expect(try harness.turn { _ in Self.ok } == .waits(until: harness.now + .seconds(300)))
        harness.flushedThrough = id
        #expect(try harness.turn { _ in Self.ok } == .sent)
        for _ in 1...251 { try harness.post(CurioSample.event()) }
        #expect(try harness.turn { _ in Self.ok } == .sent)
        #expect(data(harness.sent[1]).count(of: #""type""#) == 250)
        #expect(try harness.turn { _ in Self.ok } == .waits(until: harness.now + .seconds(300)))
    }

    @Test func batchOfADeadSession_staysTogether_whileTheSessionIsCreatedAgain() throws {
        var harness = try harness(["periodicDispatchEnabled": .bool(true)])
        for _ in 1...3 { try harness.post(CurioSample.event()) }
        try harness.post(CurioSample.make("session_end"))
        try play(&harness, Self.gone, Self.ok, Self.ok, Self.ok)
        #expect(harness.sent.map(\.path) == ["/batch/create", "/visit/create", "/batch/create", "/visit/end"])
        #expect(data(harness.sent[2]).count(of: #""type""#) == 3)
        #expect(harness.sent[3].form["sessionCode"] == harness.sent[1].form["sessionCode"])
    }

    @Test(arguments: [(30, 1), (29, 0)])
    func periodAsLongAsTheTimeout_isRemarkedUpon(minutes: Int64, remarks: Int) throws {
        var harness = try harness(["periodicDispatchEnabled": .bool(true), "dispatchPeriodMinutes": .integer(minutes)])
        try harness.post(CurioSample.event())
        try harness.post(CurioSample.make("session_end"))
        try play(&harness, Self.ok, Self.ok)
        #expect(harness.notices.count == remarks)
    }

    // MARK: Queries

    @Test func session_isShown_withWhatIsOpen() throws {
        var harness = try harness()
        try harness.post(CurioSample.screenStart("t", "/p"))
        let event = try harness.post(CurioSample.event()).id
        try play(&harness, Self.hit)
        let resource = try #require(harness.upstream.traits.routes.first)
        let parameters = try #require(resource.parameters(matching: ["sessions", Substring(Self.s)]))
        guard case .read(let read) = resource.response,
            case .json(let text, 200, _) = read(
                .init(parameters: parameters, receivedAt: harness.now), harness.state)
        else {
            Issue.record("no answer")
            return
        }
        for part in [
            #""sessionCode":"\#(Self.s)""#, #""state":"open""#, #""isStarted":true"#, #""appVer":"2.4.0""#,
            #""pageTitle":"t","path":"/p","code":"h1""#,
            #""id":"\#(event)","kind":"event""#,
        ] {
            #expect(text.contains(part), "\(part)")
        }
        guard
            case .problem(.notFound, 404, _, _) = read(
                .init(parameters: [:], receivedAt: harness.now), harness.state)
        else {
            Issue.record("an unknown session is shown")
            return
        }
    }
}

extension String {
    fileprivate func count(of part: String) -> Int { ranges(of: part).count }
}
