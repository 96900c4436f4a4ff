import InMemoryLogging
import Logging
import PosternCore
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
        _ log: InMemoryLogHandler = InMemoryLogHandler(), _ body: (TestGateway) throws -> Void
    ) throws {
        let settings = try StreamOneSettings(["id": .text("9yC-4pQxT_2a"), "psk": .text(psk)])
        var setup = Setup()
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
    private static func target(_ action: String, body: String = "") -> String {
        let seconds = SystemTime().now.milliseconds / 1000
        let query =
            "api=3&format=json&authentication_type=application&timestamp=\(seconds)&application=9yC-4pQxT_2a"
        let signature = StreamOnePlatform.signature(of: Array("/api/\(action)?\(query)&\(body)".utf8), key: psk)
        return "/v1/streamone/api/\(action)?\(query)&signature=\(signature)"
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
}
