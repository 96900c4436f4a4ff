import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// What all responses have in common, whichever part of the gateway makes them.
@Suite struct ResponseFormTests {
    private static let requests: [(method: String, path: String, body: String?)] = [
        ("POST", "/v1/picky/event", #"{"n":1}"#), ("POST", "/v1/picky/event", #"[{"n":1},{"n":2}]"#),
        ("POST", "/v1/picky/event?dryRun=true", #"{"n":1}"#), ("POST", "/v1/picky/event", "{"),
        ("POST", "/v1/picky/event", #"{"n":"x"}"#), ("GET", "/v1/messages", nil), ("GET", "/v1/messages?x=1", nil),
        ("GET", "/v1/messages/0000000000101", nil), ("GET", "/v1/upstreams", nil), ("GET", "/v1/upstreams/picky", nil),
        ("GET", "/v1/gateway", nil), ("GET", "/v1/history", nil), ("GET", "/v1/upstreams/picky/batches", nil),
        ("GET", "/v1/upstreams/picky/lanes", nil), ("GET", "/v1/upstreams/picky/failures", nil),
        ("POST", "/v1/upstreams/picky/resume", ""), ("POST", "/v1/messages/retry", #"{"upstream":"picky"}"#),
        ("GET", "/v1/keys", nil), ("GET", "/livez", nil), ("GET", "/readyz", nil), ("GET", "/metrics", nil),
        ("GET", "/nothing", nil), ("DELETE", "/livez", nil), ("GET", "/v1/plain/shelf", nil),
    ]

    private func withShelf(_ body: (TestGateway) throws -> Void) throws {
        let shelf = UpstreamRoute(.get, "shelf", .read { _, _ in .json("{}") })
        let passedOn = UpstreamRoute(
            .get, "passed-on", .read { _, _ in .forwarded(Array("{ }".utf8), headers: ["Age": "1"]) })
        var setup = Setup()
        setup.upstreams = [PickyUpstream("picky"), PlainUpstream("plain", routes: [shelf, passedOn])]
        try withPausedGateway(setup, body)
    }

    @Test func text_endsWithANewline_andNothingIsCached() throws {
        try withShelf { gateway in
            for (method, path, body) in Self.requests {
                let answer = try gateway.client.ask(method, path, body.map { Array($0.utf8) })
                #expect(answer.text.hasSuffix("\n") && !answer.text.hasSuffix("\n\n"), "\(path): \(answer.text)")
                #expect(answer.headers.filter { $0.name == "Cache-Control" }.map(\.value) == ["no-store"], "\(path)")
                #expect(answer.header("X-Content-Type-Options") == "nosniff", "\(path)")
            }
        }
    }

    /// Responses of the server itself, some of which precede the request.
    @Test(arguments: [
        ("nonsense\r\n\r\n", 400), ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: t\r\nX-Long: \(String(repeating: "h", count: 20_000))\r\n\r\n", 431),
        (
            "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 65537\r\n\r\n",
            413
        ),
        (
            "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            400
        ),
    ])
    func refusalOfTheServer_hasThatForm(request: String, status: Int) throws {
        try withShelf { gateway in
            gateway.client.send(request)
            let answer = try gateway.client.answer()
            #expect(answer.status == status)
            #expect(answer.text.hasSuffix("}\n"))
            #expect(answer.header("Cache-Control") == "no-store")
            #expect(answer.header("X-Content-Type-Options") == "nosniff")
        }
    }

    @Test func whatAnUpstreamSent_isPassedOnAsItIs() throws {
        try withShelf { gateway in
            let answer = try gateway.client.get("/v1/plain/passed-on")
            #expect(answer.status == 200 && answer.text == "{ }")
            #expect(answer.header("Content-Type") == "application/json" && answer.header("Age") == "1")
            #expect(answer.header("Cache-Control") == "no-store")
            #expect(answer.header("X-Content-Type-Options") == "nosniff")
        }
    }

    // MARK: The description of the API

    @Test func document_isSentOnce_untilItChanges() throws {
        try withPausedGateway { gateway in
            let first = try gateway.client.get("/openapi.yaml")
            let tag = try #require(first.header("ETag"))
            #expect(tag.hasPrefix("\"") && tag.hasSuffix("\"") && tag.count > 10)
            #expect(first.headers.filter { $0.name == "Cache-Control" }.map(\.value) == ["no-cache"])
            for value in [tag, "*", "\"other\", W/\(tag)"] {
                gateway.client.sendRequest("GET", "/openapi.yaml", headers: [("If-None-Match", value)])
                let answer = try gateway.client.answer(hasBody: false)
                #expect(answer.status == 304 && answer.header("ETag") == tag, "\(value)")
                // That of the document, or none (RFC 9110, section 8.6).
                #expect(answer.header("Content-Length").map { $0 == "\(first.body.count)" } ?? true)
            }
            for value in ["\"other\"", "W/\"other\", \(tag.dropLast())", ""] {
                let answer = try gateway.client.ask("GET", "/openapi.yaml", headers: [("If-None-Match", value)])
                #expect(answer.status == 200 && answer.body == first.body, "\(value)")
            }
            let head = try gateway.client.ask("HEAD", "/openapi.yaml", headers: [("If-None-Match", tag)])
            #expect(head.status == 304)
        }
    }

    // MARK: Counting what the server refuses

    @Test(arguments: [
        ("Content-Length: 65537\r\n\r\n", 413), ("Transfer-Encoding: chunked\r\n\r\n10001\r\n", 413),
        ("Transfer-Encoding: chunked\r\n\r\nx\r\n", 400),
    ])
    func requestWhoseBodyTheServerRefuses_isCounted(rest: String, status: Int) throws {
        try withPausedGateway { gateway in
            let client = try HTTPClient(port: gateway.port)
            client.send(
                "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + rest)
            #expect(try client.answer().status == status)
            let series = #"postern_http_requests_total{route="/v1/{upstream}/{kind}",status="\#(status)"}"#
            #expect(try gateway.sample(series) == 1)
        }
    }
}
