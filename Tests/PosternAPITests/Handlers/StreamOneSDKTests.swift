import InMemoryLogging
import Logging
import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI
@testable import StreamOneAdapter
@testable import StreamOneClient

/// The platform's own SDKs over HTTP: what they send, byte by byte.
@Suite struct StreamOneSDKTests {
    private static let psk = "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"

    private static func withGateway(
        _ log: InMemoryLogHandler = InMemoryLogHandler(), _ more: [String: SettingValue] = [:],
        setup: Setup = Setup(), _ body: (TestGateway) throws -> Void
    ) throws {
        let values: [String: SettingValue] = ["id": .text("9yC-4pQxT_2a"), "psk": .text(psk)]
        let settings = try StreamOneSettings(values.merging(more) { $1 })
        var setup = setup
        setup.log = log
        setup.upstreams = [StreamOneUpstream(try #require(UpstreamName("streamone")), settings)]
        try PosternAPITests.withGateway(setup) { gateway in
            gateway.transport.answerAll { _ in
                .status(200, #"{"header":{"status":0,"statusmessage":"OK","cacheable":true},"body":[]}"#)
            }
            try body(gateway)
        }
    }

    /// The target of a signed call.
    private static func target(
        _ action: String, body: String = "", account: String? = nil, below prefix: String = "/v1/streamone",
        psk: String = psk
    ) -> String {
        let seconds = SystemTime().now.milliseconds / 1000
        let scope = account.map { "account=\($0)&" } ?? ""
        let query =
            "api=3&format=json&authentication_type=application&\(scope)timestamp=\(seconds)&application=9yC-4pQxT_2a"
        let signature = StreamOnePlatform.signature(of: Array("/api/\(action)?\(query)&\(body)".utf8), key: psk)
        return "\(prefix)/api/\(action)?\(query)&signature=\(signature)"
    }

    /// PHP without arguments sends no body and says nothing of its length; before PHP 8 it spoke HTTP/1.0.
    @Test(arguments: ["HTTP/1.1", "HTTP/1.0"])
    func callWithoutABody_isTaken(version: String) throws {
        try Self.withGateway { gateway in
            for line in ["Content-Type: application/x-www-form-urlencoded\r\n", ""] {
                let client = try HTTPClient(port: gateway.port)
                client.send(
                    "POST \(Self.target("api/info")) \(version)\r\nHost: localhost\r\nConnection: close\r\n\(line)\r\n")
                let answer = try client.answer()
                #expect(answer.status == 200)
                #expect(answer.header("Content-Type") == "application/json")
                #expect(answer.json["header"]["status"].int == 0, "\(answer.text)")
            }
        }
    }

    @Test(arguments: ["", "; charset=utf-8"])
    func form_isTaken_withOrWithoutCharset(charset: String) throws {
        try Self.withGateway { gateway in
            let body = "itemtype=video&archived=0"
            func post(_ target: String, _ body: String) throws -> HTTPClient.Answer {
                try gateway.client.post(
                    target, body, headers: [("Content-Type", "application/x-www-form-urlencoded\(charset)")])
            }
            let first = try post(Self.target("item/view", body: body), body)
            #expect(first.json["header"]["status"].int == 0 && first.header("X-Cache") == "miss")
            #expect(gateway.transport.requests.map(\.text) == [body])
            let again = try post(Self.target("item/view", body: body), body)
            #expect(again.header("X-Cache") == "hit" && again.header("Age") == "0")
        }
    }

    /// Like a wrong key. A call with the right signature is not delayed, nor is the first of an address with a wrong one.
    @Test func callWithAWrongSignature_isDelayed_afterTheFirstFew() throws {
        try Self.withGateway { gateway in
            func post(_ body: String, signedFor signed: String) throws -> (status: Int?, took: Duration) {
                let start = ContinuousClock.now
                let answer = try gateway.client.post(
                    Self.target("item/view", body: signed), body,
                    headers: [("Content-Type", "application/x-www-form-urlencoded")])
                return (answer.json["header"]["status"].int, ContinuousClock.now - start)
            }
            for _ in 0..<12 { #expect(try post("a=1", signedFor: "a=2").status == 3) }
            let refused = try post("a=1", signedFor: "a=2")
            #expect(refused.status == 3 && refused.took >= .milliseconds(50), "\(refused.took)")
            #expect(try post("a=1", signedFor: "a=1").status == 0)
        }
    }

    /// The platform's answers go to the caller. They may repeat what it sent.
    @Test(arguments: [
        (200, #"{"header":{"status":0,"statusmessage":"OK Geheimnis"},"body":[]}"#),
        (200, #"{"header":{"status":9,"statusmessage":"Geheimnis"},"body":null}"#),
        (200, #"{"header":{"status":52,"statusmessage":"Geheimnis"},"body":null}"#), (200, "Geheimnis"),
        (403, "Geheimnis"), (500, "Geheimnis"),
    ])
    func answerOfThePlatform_isNotInTheLog(status: Int, text: String) throws {
        var log = InMemoryLogHandler()
        log.logLevel = .trace
        try Self.withGateway(log) { gateway in
            gateway.transport.answerAll { _ in .status(status, text) }
            let form = [("Content-Type", "application/x-www-form-urlencoded")]
            for action in ["item/view", "session/create"] {
                let target = Self.target(action, body: "user=ann")
                let answer = try gateway.client.post(target, "user=ann", headers: form)
                #expect(answer.status >= 200)
            }
            #expect(!gateway.transport.requests.isEmpty)
        }
        #expect(!log.entries.isEmpty)
        #expect(!log.entries.contains { "\($0.message) \($0.metadata)".contains("Geheimnis") })
    }

    /// Not a problem document, and not a 400: the SDK could read neither. Order and duplicates arrive as they were sent.
    @Test func refusal_isHTTP200_withThePlatformsStatus() throws {
        try Self.withGateway { gateway in
            let good = Self.target("item/view")
            let bad = [
                (good + "&limit=3", 7), (good + "&api=3", 7), (good + "&timezone=%", 6), (good + "&timezone=UTC", 3),
                (good.replacing("api=3&format=json", with: "format=json&api=3"), 3),
                (good.replacing("item/view", with: "item/edit"), 3),
                (good.replacing("item/view", with: "item/View"), 5),
                (good + "&session=S", 282), ("/v1/streamone/api/item/view", 6),
            ]
            for (target, status) in bad {
                let answer = try gateway.client.ask("POST", target)
                #expect(answer.status == 200)
                #expect(answer.json["header"]["status"].int == status, "\(target) \(answer.text)")
                #expect(answer.json["header"]["statusmessage"].string?.isEmpty == false)
                #expect(answer.text.hasSuffix(#","body":null}"# + "\n"))
            }
            #expect(gateway.transport.requests.isEmpty)
            try gateway.client.get(good).problem(405, "method-not-allowed")
        }
    }

    // MARK: Below the prefix

    private static let served: [String: SettingValue] = [
        "sdk.enabled": .bool(true), "sdk.queueActions": .list(["item/edit"]),
    ]
    private static let form = [("Content-Type", "application/x-www-form-urlencoded")]
    private static let queued =
        #"{"header":{"status":0,"statusmessage":"OK","apiversion":3,"cacheable":false,"queued":true},"body":null}"#

    private static func count(_ outcome: String, _ gateway: TestGateway) throws -> Double? {
        try gateway.sample(#"postern_sdk_requests_total{upstream="streamone",call="call",outcome="\#(outcome)"}"#)
    }

    private struct Case: CustomTestStringConvertible {
        /// Nil: the call is not signed.
        let psk: String?
        let isUp: Bool
        let keys: [APIKey]
        var testDescription: String { "\(psk ?? "unsigned") \(isUp ? "up" : "down") \(keys.count)" }

        static let all = [nil, "wrong", StreamOneSDKTests.psk].flatMap { psk in
            [true, false].flatMap { isUp in
                [[], [key]].map { Case(psk: psk, isUp: isUp, keys: $0) }
            }
        }
        private static let key = APIKey(
            name: "k", sha256: KeyText.digest(of: "k"), scopes: [.write], upstreams: nil, limits: RateLimits(),
            expiresAt: nil)
    }

    @Test(arguments: Case.all) private func signature_decides_whateverElseIsConfigured(_ sent: Case) throws {
        try Self.withGateway(InMemoryLogHandler(), Self.served) { gateway in
            gateway.handler.replaceKeys(sent.keys, opensMetrics: true)
            if !sent.isUp { gateway.transport.answerAll { _ in .refusedConnection } }
            for prefix in ["/sdk/streamone", "/v1/streamone"] {
                var target = Self.target("item/edit", body: "a=1", below: prefix, psk: sent.psk ?? "")
                if sent.psk == nil { target = String(target.dropLast("&signature=".count + 40)) }
                let answer = try gateway.client.post(target, "a=1", headers: Self.form)
                #expect(answer.status == 200)
                guard sent.psk == Self.psk else {
                    #expect(answer.json["header"]["status"].int == 3)
                    continue
                }
                #expect(answer.json["header"]["status"].int == 0)
                #expect((answer.text == Self.queued) == !sent.isUp, "\(answer.text)")
            }
            #expect(gateway.queued == (sent.psk == Self.psk && !sent.isUp ? 2 : 0))
            let outcome = sent.psk != Self.psk ? "unauthorized" : sent.isUp ? "proxied" : "accepted"
            #expect(try Self.count(outcome, gateway) == 1)
        }
    }

    /// It is sent when the pause ends, and is a message like any other.
    @Test func callToAPausedUpstream_isQueued_andSentWhenItGoesOn() throws {
        try Self.withGateway(InMemoryLogHandler(), Self.served) { gateway in
            gateway.workers[0].pause()
            try #require(eventually { gateway.workers[0].snapshot.isPaused })
            let body = "title=a%22b"
            let answer = try gateway.client.post(
                Self.target("item/edit", body: body, below: "/sdk/streamone"), body, headers: Self.form)
            #expect(answer.text == Self.queued && answer.header("Content-Type") == "application/json")
            #expect(gateway.transport.requests.isEmpty)
            let message = try gateway.client.get("/v1/messages?upstream=streamone").json["messages"][0]
            #expect(message["via"].string == "sdk" && message["kind"].string == "call")
            #expect(message["state"].string == "queued" && !message["key"].isThere)
            _ = try gateway.client.post("/v1/upstreams/streamone/resume")
            #expect(eventually { gateway.queued == 0 })
            #expect(gateway.transport.requests.map(\.text) == [body])
        }
    }

    /// Of any account: the queue has found out that nothing answers.
    @Test func call_isQueuedUnasked_whileTheCircuitIsOpen() throws {
        try Self.withGateway(InMemoryLogHandler(), Self.served) { gateway in
            gateway.transport.answerAll { _ in .refusedConnection }
            var accounts = 0
            func post() throws {
                accounts += 1
                let target = Self.target("item/edit", account: "A\(accounts)", below: "/sdk/streamone")
                #expect(try gateway.client.post(target).text == Self.queued)
            }
            let isOpen = try eventually {
                if gateway.workers[0].snapshot.circuit != .closed { return true }
                try post()
                return false
            }
            try #require(isOpen)
            let asked = gateway.transport.requests.count
            for _ in 0..<5 { try post() }
            #expect(gateway.transport.requests.count == asked)
            #expect(gateway.queued == accounts)
        }
    }

    @Test func fullQueue_isAnInternalError_withoutTheCall() throws {
        var setup = Setup()
        setup.caps["streamone"] = QueueCap.with { $0.maxMessages = 1 }
        setup.paused = ["streamone"]
        try Self.withGateway(InMemoryLogHandler(), Self.served, setup: setup) { gateway in
            try #require(eventually { gateway.workers[0].snapshot.isPaused })
            for (status, outcome) in [(0, "accepted"), (1, "no_room")] {
                let answer = try gateway.client.post(Self.target("item/edit", below: "/sdk/streamone"))
                #expect(answer.status == 200 && answer.json["header"]["status"].int == status)
                #expect(try Self.count(outcome, gateway) == 1)
            }
            #expect(gateway.queued == 1)
        }
    }

    /// Also what the HTTP layer refuses.
    @Test func everythingBelowThePrefix_isInThePlatformsForm() throws {
        let settings = Self.served.merging(["sdk.maxBodyBytes": .integer(100_000)]) { $1 }
        try Self.withGateway(InMemoryLogHandler(), settings) { gateway in
            func expect(_ http: Int, _ status: Int, _ answer: HTTPClient.Answer) {
                #expect(answer.status == http && answer.json["header"]["status"].int == status, "\(answer.text)")
                #expect(answer.text.hasSuffix(#""apiversion":3,"cacheable":false},"body":null}"#))
                #expect(answer.header("Content-Type") == "application/json")
            }
            let good = Self.target("item/view", below: "/sdk/streamone")
            for path in ["", "/x", "/api", "/api/item", "/api/item/", "/api/item/view/", "/api/item/view/x"] {
                expect(404, 5, try gateway.client.post("/sdk/streamone\(path)"))
            }
            expect(405, 5, try gateway.client.get(good))
            #expect(try gateway.client.get(good).header("Allow") == "POST")
            expect(200, 5, try gateway.client.post("/sdk/streamone/api/item/View"))
            expect(200, 6, try gateway.client.post("/sdk/streamone/api/item/view"))
            expect(200, 7, try gateway.client.post(good + "&x=1"))
            // Larger than other bodies may be, and than its own.
            let body = "a=" + String(repeating: "x", count: 90_000)
            let large = try gateway.client.post(
                Self.target("item/edit", body: body, below: "/sdk/streamone"), body, headers: Self.form)
            #expect(large.json["header"]["status"].int == 0, "\(large.text)")
            expect(200, 6, try HTTPClient(port: gateway.port).post(good, body + body, headers: Self.form))
            for coding in ["gzip", "br"] {
                let headers = Self.form + [("Content-Encoding", coding)]
                expect(200, 6, try HTTPClient(port: gateway.port).post(good, "a=1", headers: headers))
            }
            expect(
                200, 4,
                try gateway.client.post(good, "", headers: Self.form + [("Origin", "https://elsewhere.test")]))
            let connection = try HTTPClient(port: gateway.port)
            connection.send("POST \(good) HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n")
            expect(200, 6, try connection.answer())
            // Empty segments do not count.
            #expect(try gateway.client.post(good.replacing("/api/", with: "//api//")).json["header"]["status"].int == 0)
        }
    }

    @Test func tooManyRequestsOfAnAddress_areAnInternalError() throws {
        let settings = Self.served.merging(["sdk.requestsPerSecondPerAddress": .integer(1)]) { $1 }
        try Self.withGateway(InMemoryLogHandler(), settings) { gateway in
            let target = Self.target("item/view", below: "/sdk/streamone")
            #expect(try gateway.client.post(target).json["header"]["status"].int == 0)
            let refused = try gateway.client.post(target)
            #expect(refused.status == 200 && refused.json["header"]["status"].int == 1)
            #expect(try Self.count("no_room", gateway) == 1)
        }
    }
}
