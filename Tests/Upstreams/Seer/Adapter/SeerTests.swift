import Crypto
import PosternConformance
import PosternCore
import PosternEvents
import PosternTestKit
import PosternUpstream
import Testing

@testable import SeerAdapter

/// What is specific to Seer; the rest is in `Conformance`.
@Suite struct SeerTests {
    private let fixture = UpstreamFixture.seer

    private func seer(_ settings: [String: SettingValue] = [:]) throws -> SeerUpstream {
        try #require(try fixture.make(settings).base as? SeerUpstream)
    }

    private func message(_ text: String, _ kind: Kind, lane: String? = nil, sequence: Int64 = 1) -> Message {
        Message(
            id: MessageID(sequence: sequence, upstream: UpstreamNumber(rawValue: 1)), kind: kind,
            lane: .named(lane ?? kind.description), acceptedAt: UpstreamFixture.now, payload: Array(text.utf8))
    }

    // MARK: Requests

    /// The specification's "URLs".
    @Test(arguments: [
        ("https://h", "/sactivity", "", "https://h/sactivity"),
        ("https://h/", "sactivity/batch/", "K1", "https://h/sactivity/batch?apikey=K1"),
        ("https://h/p", "//tincan//", "K1", "https://h/p/tincan?apikey=K1"),
        ("https://h", "/oauth/access_token", "a b&c", "https://h/oauth/access_token?apikey=a%20b%26c"),
        ("https://h", "x?y=1", "ë", "https://h/x?y=1&apikey=%C3%AB"),
        ("https://h", "a//b", "", "https://h/a//b"),
    ])
    func url_isJoined(base: String, path: String, key: String, url: String) throws {
        var settings = SeerSettings()
        settings.baseURL = try BaseURL(base)
        settings.apiKey = key
        settings.endpoints = ["custom": path, "TincanBatch": path]
        #expect(Endpoints(settings).url(named: "custom") == url)
        #expect(Endpoints(settings).url(.tincanBatch) == url)
    }

    @Test func tokenRequest_isTheSpecifications() throws {
        let source = try #require(try seer().tokenSource)
        #expect(source.tokenRequest.spelledOut == (try Fixture.bytes("token.http")))
    }

    /// Reports whose caller waits while the queue waits, and those that fit no batch, are sent alone.
    @Test(arguments: [
        ("activity", SeerSamples.a1, "activity.http"), ("tincan", SeerSamples.t1, "tincan.http"),
        ("instrumentation", SeerSamples.i1, "instrumentation.http"),
    ])
    func single_isTheSpecifications(kind: String, text: String, file: String) throws {
        let alone = message(text, Kind(kind), lane: "\(kind)!direct")
        let plan = try seer(["autoReportQueue": .bool(false)]).plan(for: [alone], in: fixture.planContext)
        guard case .send(let request, 1) = plan else {
            Issue.record("\(plan)")
            return
        }
        #expect(request.spelledOut == (try Fixture.bytes("\(file)")))
    }

    /// The specification's "Batches".
    @Test(arguments: [
        ([SeerSamples.a1], "activity", 208, "c1e9e43e7a0e0a18b2bb905936eb6f23d1a3f9d79f812e73d2ec48c6b1ff2d26"),
        (
            [SeerSamples.a1, SeerSamples.a2], "activity", 349,
            "4360b17ad4dcc6e0774419e1c0ae3d11211dd630a2569fd9fce51cc91cf430a6"
        ), ([SeerSamples.t1], "tincan", 327, "26211b0bf75e6f99dfdf477ea049a8247688c4243b835c9c29cda20cbdb760d2"),
        (
            [SeerSamples.t1, SeerSamples.t1], "tincan", 638,
            "1166fa98265f99666698a2fc27d1202de621a5c05d028957930a52e09693e66c"
        ),
    ])
    func batch_isTheSpecifications(items: [String], kind: String, size: Int, digest: String) throws {
        let upstream = try seer()
        let messages = try fixture.messages(of: items.map { .init(Kind(kind), $0) }, to: AnyUpstream(upstream))
        let body = try fixture.request(for: messages, to: AnyUpstream(upstream)).body
        #expect(body.count == size)
        #expect(SHA256.hash(data: body).hexadecimal == digest)
    }

    @Test(arguments: [
        "0.1000", "1e400", "-0", "123456789012345678901234567890", "9007199254740993", "18446744073709551617",
        "0.1234567890123456789012345", "0.95", "1e-7", "1234567890123456.78", "true", "1", "null",
        #""\u00eb\/\ud83d\ude80ë/🚀""#, #"{"z":1,"a":[{"y":2,"b":3.0}] , "m":{}}"#,
    ])
    func payload_leavesAsItCame(value: String) throws {
        let upstream = try seer()
        let text = SeerSamples.activity(id: "a", more: ",\t\"x\" : \(value)")
        let messages = try fixture.messages(of: [.init("activity", text)], to: AnyUpstream(upstream))
        #expect(messages[0].payload == Array(text.utf8))
        let body = try fixture.request(for: messages, to: AnyUpstream(upstream)).body
        #expect(body == Array(#"{"activities":[\#(text)]}"#.utf8))
    }

    @Test func itemThatFitsNoBatch_isSentAlone() throws {
        let upstream = try seer(["bundleSizeBytes": .integer(1024)])
        for (size, path) in [(1007, "/tincan/batch"), (1008, "/tincan")] {
            let plan = upstream.plan(
                for: [message(String(repeating: "x", count: size), "tincan")], in: fixture.planContext)
            guard case .send(let request, 1) = plan else {
                Issue.record("\(plan)")
                continue
            }
            #expect(request.url.contains("ecollege.com\(path)?"), "\(size)")
        }
    }

    /// The endpoint is logged and stored, the URL is not.
    @Test func endpoint_hasNoKey() throws {
        let upstream = try seer(["apiKey": .text("K1"), "bundleSizeBytes": .integer(1024)])
        for (size, path) in [(1007, "/tincan/batch"), (1008, "/tincan")] {
            let plan = upstream.plan(
                for: [message(String(repeating: "x", count: size), "tincan")], in: fixture.planContext)
            guard case .send(let request, 1) = plan else {
                Issue.record("\(plan)")
                continue
            }
            #expect(request.url.hasSuffix("\(path)?apikey=K1"))
            #expect(request.url == request.endpoint + "?apikey=K1")
        }
    }

    // MARK: Queue and direct reports

    private func validPayload(_ upstream: SeerUpstream, isAwaited: Bool) throws -> ValidPayload {
        let context = ValidationContext(acceptedAt: UpstreamFixture.now, isAwaited: isAwaited, random: { (5, 0) })
        return try JSONParser().parse(Array(SeerSamples.t1.utf8)) { payload throws(InvalidPayload) in
            try upstream.validate(payload, of: "tincan", in: context)
        }.get()
    }

    @Test func queue_waitsForAFlush_unlessItReportsByItself() throws {
        let byItself = try seer()
        #expect(try validPayload(byItself, isAwaited: false) == ValidPayload(lane: .named("tincan")))
        #expect(try validPayload(byItself, isAwaited: true) == ValidPayload(lane: .named("tincan")))
        let onDemand = try seer(["autoReportQueue": .bool(false)])
        #expect(
            try validPayload(onDemand, isAwaited: false)
                == ValidPayload(lane: .named("tincan", group: "tincan"), waitsFor: .schedule))
        #expect(
            try validPayload(onDemand, isAwaited: true)
                == ValidPayload(lane: .named("tincan!direct", group: "tincan")))
    }

    @Test func flush_sendsWhatItCovers() throws {
        let upstream = try seer(["autoReportQueue": .bool(false)])
        let messages = (1...3).map { message(SeerSamples.t1, "tincan", sequence: $0) }
        #expect(upstream.plan(for: messages, in: fixture.planContext) == .wait(.schedule, until: .never))
        let flushed = PlanContext(
            now: UpstreamFixture.now, token: fixture.token, state: DictionaryState(), flushedThrough: messages[1].id)
        guard case .send(_, count: 2) = upstream.plan(for: messages, in: flushed) else {
            Issue.record("not the two that were there")
            return
        }
        #expect(upstream.plan(for: [messages[2]], in: flushed) == .wait(.schedule, until: .never))
    }

    @Test func order_isRelaxed_onlyIfAskedFor() throws {
        let upstream = try seer(["maxInFlightPerKind": .integer(4)])
        #expect(try validPayload(upstream, isAwaited: false).lane == .named("tincan/1"))
    }

    @Test(arguments: [
        ("tincan", 1000), ("activity", 1000), ("instrumentation", 1), ("customendpoint", 1), ("tincan/3", 1000),
        ("tincan!direct", 1), ("activity/2!direct", 1),
    ])
    func lane_carriesBatches_whereSeerTakesThem(lane: String, messages: Int) throws {
        let limits = try seer().limits(BatchLimits(maxMessages: 1000, maxBytes: 1 << 20), ofLane: lane)
        #expect(limits == BatchLimits(maxMessages: messages, maxBytes: 102_400, overhead: 17))
    }

    // MARK: Validation

    @Test(arguments: [("activity", 3), ("instrumentation", 4), ("tincan", 5)])
    func refusal_carriesTheSDKsCode(kind: String, code: Int) throws {
        let upstream = try seer()
        for text in ["{}", "17", #"{"x":"\#(String(repeating: "x", count: 102_400))"}"#] {
            let refusal = #expect(throws: InvalidPayload.self) {
                try fixture.validate(.init(Kind(kind), text), to: AnyUpstream(upstream))
            }
            #expect(refusal?.codes == ["seerCode": code])
        }
        #expect(upstream.traits.codesWhenFull?(.queueFull) == ["seerCode": 9])
        #expect(upstream.traits.codesWhenFull?(.diskFull) == ["seerCode": 10])
    }

    @Test func payload_isAsLargeAsABundle_andNoLarger() throws {
        let upstream = try seer(["bundleSizeBytes": .integer(1024)])
        let rest = #"{"x":""}"#.utf8.count
        for (size, isTaken) in [(1024, true), (1025, false)] {
            let text = #"{"x":"\#(String(repeating: "x", count: size - rest))"}"#
            let sample = UpstreamFixture.Sample("customendpoint", text)
            if isTaken {
                #expect(throws: Never.self) { try fixture.validate(sample, to: AnyUpstream(upstream)) }
            } else {
                #expect(throws: InvalidPayload.self) { try fixture.validate(sample, to: AnyUpstream(upstream)) }
            }
        }
    }

    // MARK: Tokens

    private func token(_ body: String, status: Int = 200, nowMs: Int64 = 1_426_200_084_360) throws -> Token {
        try SeerTokenSource.make(url: "https://h", clientID: "a", clientSecret: "b")
            .token(
                from: UpstreamResponse(status: status, body: Array(body.utf8)), now: Timestamp(milliseconds: nowMs))
    }

    @Test(arguments: ["1426203684360", "\"1426203684360\"", "1426203684360.75", "1.426203684360e12"])
    func token_expiresWithItsSecond_andIsRenewedBefore(date: String) throws {
        let token = try token(
            #"{"token_type":"BearerToken","access_token":"ab/+c==","expiration_date":\#(date)}"#)
        #expect(token.value == "ab/+c==")
        // Not yet at 1426203684.000, but after it.
        #expect(token.expiresAt == Timestamp(milliseconds: 1_426_203_684_001))
        #expect(token.renewAt == Timestamp(milliseconds: 1_426_203_624_001))
    }

    @Test func shortLivedToken_isRenewedAfterNineTenths() throws {
        let token = try token(
            #"{"access_token":"a","expiration_date":1426200087000}"#, nowMs: 1_426_200_084_001)
        #expect(token.renewAt == Timestamp(milliseconds: 1_426_200_086_701))
    }

    @Test(arguments: [
        "", #","expiration_date":null"#, #","expiration_date":"soon""#, #","expiration_date":12"#,
        #","expiration_date":1426203684"#, #","expiration_date":{}"#, #","expiration_date":1e300"#, #","expires_in":5"#,
    ])
    func token_withoutAReadableDate_isUsedForFiveMinutes(member: String) throws {
        let token = try token(#"{"access_token":"a"\#(member)}"#, nowMs: 1000)
        #expect(token.expiresAt == Timestamp(milliseconds: 301_000))
        #expect(token.renewAt == Timestamp(milliseconds: 301_000))
    }

    @Test(arguments: [
        (200, ""), (200, "<html>"), (200, "[]"), (200, "{}"), (200, #"{"access_token":""}"#),
        (200, #"{"access_token":7}"#), (200, #"{"access_token":"a b"}"#), (200, #"{"access_token":"a\r\nb"}"#),
        (500, #"{"access_token":"a"}"#), (302, #"{"access_token":"a"}"#), (404, ""),
    ])
    func junk_isNoToken_andBlamesNoCredentials(status: Int, body: String) {
        let refusal = #expect(throws: Token.Failure.self) { try token(body, status: status) }
        #expect(refusal?.credentialsRefused == false)
    }

    @Test(arguments: [400, 401, 403])
    func refusedCredentials_areSaidToBe(status: Int) {
        let refusal = #expect(throws: Token.Failure.self) { try token(#"{"access_token":"a"}"#, status: status) }
        #expect(refusal?.credentialsRefused == true)
    }

    // MARK: Settings and showing

    @Test func settings_areRefused_withEveryProblem() {
        let endpoints = ["tincan": "x", "a b": "y", "TincanBatch": "//", "ok": "a b"]
        #expect(
            throws: Setting.Problems([
                ("clientId", "must not contain a colon"),
                (
                    "endpoints", "the path of 'TincanBatch' must not be empty"
                ), ("endpoints", "'a b' cannot be a kind: 1 to 64 letters, digits, '-', '_' and '.' can"),
                ("endpoints", "the path of 'ok' must be ASCII without white space and fragment"),
                (
                    "endpoints",
                    "'tincan' is a kind already; to give it another path, name the SDK's endpoint, e.g. SeerTincanReport"
                ),
            ])
        ) { try fixture.make(["endpoints": .strings(endpoints), "clientId": .text("a:b")]) }
        #expect(UpstreamType.seer.settings.first { $0.name == "bundleSizeBytes" }?.kind == .integer(1024...1_048_576))
    }

    @Test func messages_ofAKindThatIsNoLongerConfigured_wait() throws {
        let plan = try seer(["endpoints": .strings([:])]).plan(
            for: [message("{}", "customendpoint")], in: fixture.planContext)
        #expect(plan == .wait(.credentials, until: .never))
    }

    @Test func credentials_areMissed_whenTheyAreEmpty() throws {
        #expect(try seer().missingSettings == [])
        #expect(
            try seer(["clientId": .text(""), "clientSecret": .text("")]).missingSettings
                == ["clientId", "clientSecret"])
    }

    @Test func endpointTable_namesPresetsAndCustomOnes_withoutTheKey() throws {
        let upstream = try seer(["endpoints": .strings(["SeerTincanReport": "/xapi/", "mine": "m"])])
        let resource = try #require(upstream.traits.routes.first)
        #expect(resource.template == "endpoints")
        guard case .read(let respond) = resource.response,
            case .json(let text, 200, [:]) = respond(
                UpstreamRouteRequest(receivedAt: UpstreamFixture.now), DictionaryState())
        else {
            Issue.record("no table")
            return
        }
        let host = "https://seer-beacon.qaprod.ecollege.com"
        #expect(
            text.contains(
                #"{"name":"SeerTincanReport","path":"/xapi","url":"\#(host)/xapi","kind":"tincan","isBatch":false,"isPreset":true}"#
            ))
        #expect(
            text.contains(
                #"{"name":"TincanBatch","path":"/tincan/batch","url":"\#(host)/tincan/batch","kind":"tincan","isBatch":true,"isPreset":true}"#
            ))
        #expect(
            text.contains(
                #"{"name":"mine","path":"/m","url":"\#(host)/m","kind":"mine","isBatch":false,"isPreset":false}"#))
        #expect(!text.contains("KEY123"))
    }

    @Test func events_haveTheSDKsNames() throws {
        let upstream = try seer()
        let events: [UpstreamEvent] = [
            .tokenFetched, .ready, .flushFinished, .batchEnded, .settled("activity"), .settled("instrumentation"),
            .settled("tincan"),
        ]
        #expect(
            events.map(upstream.name) == [
                "SeerTokenFetch", "SeerRequestStartSession", "SeerRequestReportQueue",
                "SeerRequestResultForQueuedBatch", "SeerActivityStreamReport", "SeerInstrumentationReport",
                "SeerTincanReport",
            ])
        #expect(upstream.name(of: .settled("customendpoint")) == nil)
    }

    /// What the SDK's response objects say, for each event of the stream.
    @Test func eventsOfTheStream_areInTheSDKsWords() throws {
        let upstream = AnyUpstream(try seer())
        let batch = "SeerRequestResultForQueuedBatch"
        for (kind, report) in [
            ("activity", "SeerActivityStreamReport"), ("instrumentation", "SeerInstrumentationReport"),
            ("tincan", "SeerTincanReport"),
        ] {
            func named(_ names: [String], _ isSuccess: Bool, _ isQueued: Bool) -> NamedEvent {
                NamedEvent(
                    names: names, requestType: report, kind: Kind(kind), isSuccess: isSuccess, isQueued: isQueued,
                    failure: isSuccess ? nil : .init(code: 7, name: "SeerReporterError"))
            }
            func told(_ type: EventType) -> NamedEvent? { upstream.named(type, kind: Kind(kind)) }
            #expect(told(.messageQueued) == named([report], true, true))
            #expect(told(.messageRetrying) == named([batch], false, true))
            #expect(told(.messageDelivered) == named([batch, report], true, false))
            #expect(told(.messageFailed) == named([batch, report], false, false))
            let receipt = upstream.namedBatch(of: Kind(kind), isSuccess: true, isQueued: false)
            #expect(receipt == named([batch], true, false))
            for type in [EventType.batchSent, .messageDropped, .messageExpired, .upstreamDown, .upstreamUp] {
                #expect(told(type) == nil, "the SDK has no such event")
            }
        }
        let fetched = upstream.named(.tokenRefreshed)
        #expect(fetched?.names == ["SeerTokenFetch"] && fetched?.requestType == "SeerTokenFetch")
        let started = upstream.named(.tokenRefreshed, isFirst: true)
        #expect(started?.names == ["SeerTokenFetch", "SeerRequestStartSession"])
        #expect(started?.requestType == "SeerRequestStartSession" && started?.isSuccess == true)
        let failed = upstream.named(.tokenFailed)
        #expect(failed?.isSuccess == false && failed?.failure == .init(code: 1, name: "SeerTokenFetch"))
        let flushed = upstream.named(.flushFinished)
        #expect(flushed?.names == ["SeerRequestReportQueue"] && flushed?.isSuccess == nil && flushed?.failure == nil)
        // A custom kind has no report of its own in the SDK.
        #expect(upstream.named(.messageQueued, kind: "mine") == nil)
        let custom = upstream.named(.messageDelivered, kind: "mine")
        #expect(custom?.names == [batch] && custom?.requestType == nil && custom?.kind == "mine")
    }
}
