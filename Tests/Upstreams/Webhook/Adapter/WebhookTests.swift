import Foundation
import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import WebhookAdapter

/// What is specific to webhooks; the rest is in `WebhookConformance`.
@Suite struct WebhookTests {
    private let fixture = UpstreamFixture.webhook

    private func message(_ number: Int64, _ text: String = "{}", of kind: Kind = "order", at milliseconds: Int64 = 7)
        -> Message
    {
        Message(
            id: MessageID(sequence: number, upstream: UpstreamNumber(rawValue: 1)), kind: kind,
            acceptedAt: Timestamp(milliseconds: milliseconds), payload: Array(text.utf8))
    }

    // MARK: Signatures

    /// The test vector of the libraries of Standard Webhooks.
    @Test func signature_isThatOfTheSpecification() {
        let signer = Signer([Secret(UpstreamFixture.signingSecret)])
        let body = Array(#"{"test": 2432232314}"#.utf8)
        #expect(
            signer.signatures(id: "msg_p5jXN8AQM9LWM0D4loKWxJek", seconds: 1_614_265_330, body: body)
                == ["g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="])
    }

    private static func secret(_ size: Int) -> String {
        "whsec_" + Data(repeating: 7, count: size).base64EncodedString()
    }

    static let secrets: [(text: String, size: Int?)] = [
        (secret(24), 24), (secret(64), 64), (secret(25).replacing("=", with: ""), 25), (secret(23), nil),
        (secret(65), nil), (String(secret(24).dropFirst(6)), nil), ("whsec_", nil), ("", nil),
        ("whsec_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_", nil), ("whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", nil),
    ]

    @Test(arguments: secrets)
    func secret_hasTheSpecifiedForm(text: String, size: Int?) {
        #expect(Signer.key(of: text)?.count == size)
    }

    // MARK: The key of a batch

    @Test func key_isThatOfTheMessages_andOfNothingElse() throws {
        let upstream = try fixture.make(["batch": .text("array")])
        let batch = [message(1), message(2, "[1]")]
        let key = try header("Idempotency-Key", of: fixture.request(for: batch, to: upstream))
        #expect(key.wholeMatch(of: #/[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/#) != nil)

        var retried = batch
        for index in retried.indices {
            (retried[index].attempts, retried[index].mayHaveArrived, retried[index].wasRetried) = (3, true, true)
        }
        let later = PlanContext(now: UpstreamFixture.now + .seconds(3600), token: nil, state: DictionaryState())
        guard case .send(let request, 2) = upstream.plan(for: retried, in: later) else {
            Issue.record("not sent")
            return
        }
        #expect(try header("Idempotency-Key", of: request) == key)
        #expect(try header("webhook-id", of: request) == key)
        #expect(try header("webhook-timestamp", of: request) == "1479992464")
    }

    @Test func key_isAnother_forOtherMessages() throws {
        let name = try #require(UpstreamName("webhook"))
        let batches = [
            [message(1)], [message(2)], [message(1), message(2)], [message(2), message(1)], [message(1, "[]")],
            // Another gateway may give out the same ids.
            [message(1, at: 8)],
        ]
        let keys = batches.map { BatchKey.of($0, for: name) } + [BatchKey.of(batches[0], for: UpstreamName("other")!)]
        #expect(Set(keys).count == keys.count)
    }

    // MARK: Requests

    @Test(arguments: [
        ("http://h", "", "http://h"), ("http://h/", "", "http://h/"), ("http://h/a/", "/", "http://h/a/"),
        ("https://h.example/hook/", "", "https://h.example/hook/"), ("http://h/a/", "?x", "http://h/a/?x"),
        ("http://h/a//", "/b", "http://h/a/b"),
        ("http://h/a", "/b/?c=d", "http://h/a/b/?c=d"), ("http://h", "?x", "http://h?x"),
        ("http://h/a?b=c", "", "http://h/a?b=c"), ("http://h/a?b=c", "/d?e", "http://h/a/d?b=c&e"),
    ])
    func url_isJoined(url: String, path: String, joined: String) throws {
        let settings: [String: SettingValue] = [
            "url": .text(url), "query": .strings([:]), "kinds": .objects(["k": ["path": .text(path)]]),
        ]
        #expect(try fixture.request(for: [message(1, of: "k")], to: fixture.make(settings)).url == joined)
        let further = try fixture.make(settings.merging(["query": .strings(["z": "", "a b": "c&d+é"])]) { $1 })
        let request = try fixture.request(for: [message(1, of: "k")], to: further)
        #expect(request.url == joined + (joined.contains("?") ? "&" : "?") + "a%20b=c%26d%2B%C3%A9&z=")
    }

    /// The names of endpoints are logged, stored, and shown.
    @Test func endpoint_showsNoValueOfAQuery_andIsThatOfOneURL() throws {
        let upstream = try fixture.make([
            "url": .text("http://h/a?v=1"), "query": .strings(["sig": "T0P/secret=="]),
            "kinds": .objects(["k": ["path": "?token"], "l": ["path": "?token"], "m": [:], "n": ["path": "?other"]]),
        ])
        func endpoint(_ kind: Kind) throws -> String {
            try fixture.request(for: [message(1, of: kind)], to: upstream).endpoint
        }
        // By which the messages that wait for it are known.
        for kind in upstream.kinds { #expect(try upstream.endpoint(of: kind) == endpoint(kind)) }
        #expect(upstream.endpoint(of: "gone") == nil)
        #expect(try endpoint("m") == "POST http://h/a?v=***&sig=***")
        #expect(try endpoint("k") == "POST http://h/a?v=***&***&sig=*** (k)")
        #expect(try endpoint("n") == "POST http://h/a?v=***&***&sig=*** (n)")
    }

    @Test(arguments: [
        ("url", SettingValue.text("http://h/?sig=T0Psecret")), ("query", .strings(["sig": "T0Psecret"])),
        ("kinds", .objects(["k": ["path": "/x?a=b&sig=T0Psecret"]])),
        ("kinds", .objects(["k": ["path": "?T0Psecret"]])),
    ])
    func valueOfAQuery_isMaskedInWhatAReceiverSays(setting: String, value: SettingValue) throws {
        let kinds: [String: SettingValue] = ["kinds": .objects(["k": [:]])]
        let upstream = try fixture.make(kinds.merging([setting: value]) { $1 })
        let batch = Batch(id: BatchID(rawValue: 1), messages: [message(1, of: "k")])
        let response = UpstreamResponse(status: 400, body: Array("bad: T0Psecret, T0P%73ecret".utf8))
        let verdict = upstream.judge(.success(response), to: batch, in: fixture.planContext).judgement.verdict
        #expect(verdict == .split(reason: "HTTP 400: bad: ***, ***"))
    }

    @Test func dryRun_masksShortValuesOfAQueryAndOfHeaders() throws {
        let upstream = try fixture.make([
            "url": .text("http://h/a?v=1"), "headers": .strings(["X-Pin": "7"]), "auth.username": .text("h"),
            "auth.password": .text("p"), "kinds": .objects(["k": [:]]),
        ])
        let request = try fixture.request(for: [message(1, of: "k")], to: upstream)
        let mask = upstream.mask(besides: request.proofs)
        #expect(upstream.shown(url: request.url, mask) == "http://h/a?v=***&sig=***")
        let headers = request.headers.map { ($0.name, upstream.shown(header: $0, mask)) }
        #expect(headers.contains { $0 == ("Authorization", "Basic ***") })
        #expect(headers.contains { $0 == ("X-Pin", "***") })
    }

    @Test(arguments: [("none", 1, 0), ("array", 50, 2), ("ndjson", 50, 1), ("wrapped", 50, 12)])
    func limits_leaveRoomForWhatIsAroundThePayloads(batch: String, most: Int, overhead: Int) throws {
        let limits = try fixture.make(["batch": .text(batch)]).limits(BatchLimits(maxMessages: 50, maxBytes: 900))
        #expect(limits == BatchLimits(maxMessages: most, maxBytes: 900, overhead: overhead))
        let messages = (1...3).map { message($0, #"{"n":1}"#) }
        guard most > 1 else { return }
        let body = try fixture.request(for: messages, to: fixture.make(["batch": .text(batch)])).body
        #expect(body.count == 3 * 7 + 2 + overhead)
    }

    @Test func message_ofAKindThatIsNoLongerConfigured_waits() throws {
        let plan = try fixture.make().plan(for: [message(1, of: "gone")], in: fixture.planContext)
        #expect(plan == .wait(.credentials, until: .never))
    }

    // MARK: Order

    static let lanes: [(pointer: String, payload: String, value: String?)] = [
        ("", #"{"a":1}"#, nil), ("/a", "[1]", nil), ("/a", #"{"a":null}"#, nil), ("/a", "7", nil),
        ("/a", #"{"b":1,"a":"x"}"#, "x"), ("/a", #"{"a":"\u0078"}"#, "x"), ("/a", #"{"a":1.0}"#, "1.0"),
        ("/a", #"{"a":true}"#, "true"), ("/a/b", #"{"a":{"b":"é"}}"#, "é"), ("/a/1", #"{"a":["x","y"]}"#, "y"),
        ("/a/01", #"{"a":["x","y"]}"#, nil), ("/a/-1", #"{"a":["x","y"]}"#, nil), ("/a/2", #"{"a":["x","y"]}"#, nil),
        ("/m~1n~0o~01", #"{"m/n~o~1":"x"}"#, "x"), ("/", #"{"":"x"}"#, "x"), ("//a", #"{"":{"a":"x"}}"#, "x"),
    ]

    @Test(arguments: lanes) func lane_isThatOfTheValue(pointer: String, payload: String, value: String?) throws {
        let upstream = try fixture.make(["orderBy": .text(pointer)])
        let valid = try fixture.validate(.init("order", payload), to: upstream).valid
        #expect(valid.lane == value.map { .digest(of: $0.utf8) } ?? .none)
        let read = JSONParser().parse(Array(payload.utf8)) { upstream.traits.laneName?($0, "order") }
        #expect(try read.get() == value)
        #expect(valid.rewritten == nil)
    }

    // MARK: Responses

    @Test func successStatuses_decide_andOtherSuccessesAreNotTrusted() throws {
        let upstream = try fixture.make(["successStatuses": .integers([202, 409])])
        func verdict(_ status: Int) throws -> Verdict {
            let batch = Batch(id: BatchID(rawValue: 1), messages: [message(1)])
            return upstream.judge(.success(.init(status: status)), to: batch, in: fixture.planContext).judgement
                .verdict
        }
        #expect(try verdict(202) == .delivered())
        #expect(try verdict(409) == .delivered())
        for status in [200, 204] {
            #expect(
                try verdict(status)
                    == .holdUpstream(.configuration, detail: "HTTP \(status), which is not one of successStatuses"))
        }
        #expect(try verdict(410) == .split(reason: "HTTP 410"))
        #expect(try verdict(503) == .retry(after: nil))
    }

    @Test func listedStatuses_areSentAgain_orRejectTheMessage() throws {
        let upstream = try fixture.make([
            "auth.type": .text("oauth2"), "retryStatuses": .integers([204, 409, 500]),
            "rejectStatuses": .integers([401, 404, 503]),
        ])
        func verdict(_ status: Int) throws -> Verdict {
            let batch = Batch(id: BatchID(rawValue: 1), messages: [message(1)])
            let response = UpstreamResponse(status: status, headers: [("Retry-After", "7")])
            return upstream.judge(.success(response), to: batch, in: fixture.planContext).judgement.verdict
        }
        for status in [204, 409, 500] { #expect(try verdict(status) == .retry(after: .seconds(7))) }
        for status in [401, 404, 503] { #expect(try verdict(status) == .split(reason: "HTTP \(status)")) }
        #expect(try verdict(200) == .delivered())
    }

    /// The text of a status that may be about something else is kept for the operator.
    @Test func doubtfulStatus_keepsItsText() throws {
        let batch = Batch(id: BatchID(rawValue: 1), messages: [message(1)])
        let response = UpstreamResponse(status: 423, headers: [("Retry-After", "7")], body: Array("locked".utf8))
        let judgement = try fixture.make().judge(.success(response), to: batch, in: fixture.planContext).judgement
        #expect(judgement.verdict == .suspect(after: .seconds(7)))
        #expect(judgement.reason == "HTTP 423: locked")
    }

    @Test func token_isFetchedAgain_afterA401_ifThereIsOne() throws {
        let upstream = try fixture.make(["auth.type": .text("oauth2")])
        let batch = Batch(id: BatchID(rawValue: 1), messages: [message(1)])
        let judgement = upstream.judge(.success(.init(status: 401)), to: batch, in: fixture.planContext).judgement
        #expect(judgement.verdict == .refreshToken)
        #expect(try fixture.make().tokenSource == nil)
    }

    // MARK: Tokens

    private func source(_ scope: String = "", _ more: [String: SettingValue] = [:]) throws -> any TokenSource {
        let settings: [String: SettingValue] = [
            "auth.type": .text("oauth2"), "auth.tokenURL": .text("https://h/token?tenant=a%20b&c"),
            "auth.clientId": .text("a:b c"), "auth.scope": .text(scope),
        ]
        return try #require(try fixture.make(settings.merging(more) { $1 }).tokenSource)
    }

    /// RFC 6749, sections 2.3.1 and 4.4.2.
    @Test(arguments: [
        ("", "grant_type=client_credentials"),
        ("read write:x", "grant_type=client_credentials&scope=read%20write%3Ax"),
    ])
    func tokenRequest_isAForm_withEncodedCredentials(scope: String, body: String) throws {
        let request = try source(scope).tokenRequest
        #expect(request.method == .post)
        #expect(request.url == "https://h/token?tenant=a%20b&c", "the query is kept (RFC 6749, section 3.2)")
        #expect(String(decoding: request.body, as: UTF8.self) == body)
        let login = Data("a%3Ab%20c:client%20secret%3F".utf8).base64EncodedString()
        #expect(try header("Authorization", of: request) == "Basic \(login)")
        #expect(try header("Content-Type", of: request) == "application/x-www-form-urlencoded")
    }

    /// RFC 6749, section 2.3.1: never in both, nor in the query.
    @Test func tokenRequest_hasCredentialsAndFurtherParameters_inTheForm() throws {
        let request = try source(
            "read",
            [
                "auth.clientAuthentication": .text("post"),
                "auth.parameters": .strings(["resource": "https://api.example/a?b=c&d", "audience": "ä b"]),
            ]
        ).tokenRequest
        let parts = [
            "grant_type=client_credentials", "scope=read", "audience=%C3%A4%20b",
            "resource=https%3A%2F%2Fapi.example%2Fa%3Fb%3Dc%26d", "client_id=a%3Ab%20c",
            "client_secret=client%20secret%3F",
        ]
        #expect(String(decoding: request.body, as: UTF8.self) == parts.joined(separator: "&"))
        #expect(request.headers.map(\.name) == ["Content-Type", "Accept"])
        #expect(request.url == "https://h/token?tenant=a%20b&c")
    }

    @Test(arguments: [
        ("", 300, 300), (#","expires_in":3600"#, 3540, 3600), (#","expires_in":"100""#, 90, 100),
        (#","expires_in":99.9"#, 89, 99), (#","expires_in":0"#, 300, 300), (#","expires_in":-5"#, 300, 300),
        (#","expires_in":1e300"#, 300, 300), (#","expires_in":null"#, 300, 300), (#","expires_in":{}"#, 300, 300),
    ])
    func token_isUsedAsLongAsItSays(member: String, renewal: Int, expiry: Int) throws {
        let token = try source().token(
            from: .init(status: 200, body: Array(#"{"access_token":"t"\#(member)}"#.utf8)), now: UpstreamFixture.now)
        #expect(token.value == "t")
        #expect((token.renewAt - UpstreamFixture.now).components.seconds == renewal)
        #expect(token.expiresAt.map { ($0 - UpstreamFixture.now).components.seconds } == Int64(expiry))
    }

    private func header(_ name: String, of request: UpstreamRequest) throws -> String {
        try #require(request.headers.first { $0.name == name }).value
    }
}
