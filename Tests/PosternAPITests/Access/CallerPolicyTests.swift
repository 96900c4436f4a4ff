import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// What protects a gateway without keys from the web pages that its operator visits.
@Suite struct CallerPolicyTests {
    @Test(arguments: [
        "localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:8080", "10.1.2.3", "[::1]", "[::1]:8080",
        "[2001:db8::1]:80", "gateway.example", "Gateway.Example:8080",
    ])
    func host_isAccepted_whenItIsLocalOrAnAddressOrListed(host: String) {
        #expect(CallerPolicy(hosts: ["gateway.example"]).acceptsHost(host))
    }

    @Test(arguments: [
        "", "evil.example", "localhost.evil.example", "evil.localhost", "127.0.0.1.evil.example", "1.2.3", "1.2.3.4.5",
        "256.1.1.1", "1..2.3", "0x7f.0.0.1", "2130706433", "[::1", "::1", "[::1]x", "[evil]", "gateway.example.evil",
        "agateway.example", "example",
    ])
    func host_isRejected_whenItIsAnyOtherName(host: String) {
        #expect(!CallerPolicy(hosts: ["gateway.example"]).acceptsHost(host))
    }

    @Test(arguments: [
        ("http://127.0.0.1:8080", "127.0.0.1:8080"), ("http://localhost", "localhost:80"),
        ("https://gateway.example", "gateway.example"), ("https://gateway.example", "gateway.example:443"),
        ("HTTPS://Console.Example", "elsewhere"), ("https://console.example", "127.0.0.1:8080"),
    ])
    func origin_isAccepted_whenItIsOurOwnOrListed(origin: String, host: String) {
        #expect(CallerPolicy(origins: ["https://console.example"]).acceptsOrigin(origin, host: host))
    }

    @Test(arguments: [
        ("null", "localhost"), ("", "localhost"), ("http://localhost:3000", "localhost:8080"),
        ("http://localhost", "localhost:8080"), ("http://localhost:8080", "localhost"),
        ("http://evil.example", "localhost"), ("https://console.example.evil", "localhost"),
        ("http://console.example", "localhost"), ("https://console.example:8443", "localhost"),
    ])
    func origin_isRejected_whenItIsAnotherOne(origin: String, host: String) {
        #expect(!CallerPolicy(origins: ["https://console.example"]).acceptsOrigin(origin, host: host))
    }

    @Test func ownOrigin_isHTTPSOnly_whenTheGatewayItselfServesTLS() {
        let policy = CallerPolicy(servesTLS: true)
        #expect(policy.acceptsOrigin("https://10.0.0.1:8443", host: "10.0.0.1:8443"))
        #expect(!policy.acceptsOrigin("http://10.0.0.1:8443", host: "10.0.0.1:8443"))
    }

    // MARK: Over a socket

    /// A form of 0 bytes, and `fetch` without CORS: what a page can send without being asked.
    @Test(arguments: [
        ["Origin: http://evil.example"], ["Origin: null"], ["Sec-Fetch-Site: cross-site"],
        ["Sec-Fetch-Site: same-site"], ["Origin: http://127.0.0.1:1"],
        ["Origin: http://evil.example", "Sec-Fetch-Site: same-origin"],
        ["Content-Type: application/x-www-form-urlencoded", "Origin: http://evil.example"],
    ])
    func crossSiteRequest_changesNothing(headers: [String]) throws {
        try withGateway { gateway in
            for (method, path) in Self.changing {
                let lines = ["\(method) \(path) HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 0"] + headers
                gateway.client.send(lines.joined(separator: "\r\n") + "\r\n\r\n")
                try gateway.client.answer().problem(403, "forbidden")
            }
            #expect(try gateway.upstream()["health"].string == "up")
            #expect(gateway.queued == 0)
        }
    }

    private static let changing = [
        ("POST", "/v1/upstreams/picky/pause"), ("POST", "/v1/upstreams/picky/flush"),
        ("POST", "/v1/upstreams/picky/resume"), ("POST", "/v1/messages/retry"), ("POST", "/v1/messages"),
        ("POST", "/v1/picky/event"), ("DELETE", "/v1/messages/00697znkr0001"), ("PUT", "/v1/nothing"),
    ]

    @Test func requestOfOurOwnPage_isServed() throws {
        try withGateway { gateway in
            let own = [("Origin", "http://127.0.0.1"), ("Sec-Fetch-Site", "same-origin")]
            let paused = try gateway.client.post("/v1/upstreams/picky/pause", headers: own)
            #expect(paused.status == 202)
            let typed = [("Sec-Fetch-Site", "none")]
            let resumed = try gateway.client.post("/v1/upstreams/picky/resume", headers: typed)
            #expect(resumed.status == 202)
        }
    }

    @Test func reading_isAllowedToOtherOrigins() throws {
        try withGateway { gateway in
            let foreign = [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")]
            for method in ["GET", "HEAD"] {
                let answer = try gateway.client.ask(method, "/livez", headers: foreign)
                #expect(answer.status == 200)
            }
        }
    }

    /// A page under a name of its own that points at this address may read nothing, not even which upstreams there are.
    @Test(arguments: ["GET /v1/messages", "GET /nothing", "GET /v1/unknown/x", "POST /v1/picky/event", "HEAD /livez"])
    func reboundName_isRefused(line: String) throws {
        try withGateway { gateway in
            gateway.client.send("\(line) HTTP/1.1\r\nHost: rebound.example\r\nContent-Length: 0\r\n\r\n")
            let answer = try gateway.client.answer(hasBody: !line.hasPrefix("HEAD"))
            #expect(answer.status == 403)
            // Another upstream than the one that the request names.
            #expect(!answer.text.contains("plain"))
        }
    }

    @Test func requestOfHTTP10WithoutHost_isServed() throws {
        try withGateway { gateway in
            gateway.client.send("GET /livez HTTP/1.0\r\n\r\n")
            let answer = try gateway.client.answer()
            #expect(answer.status == 200)
        }
    }

    @Test func refusal_isCountedOnItsRoute() throws {
        try withGateway { gateway in
            _ = try gateway.client.post("/v1/upstreams/picky/pause", headers: [("Origin", "http://evil.example")])
            let series = #"postern_http_requests_total{route="/v1/upstreams/{name}/pause",status="403"}"#
            #expect(try gateway.sample(series) == 1)
        }
    }

    // MARK: Cross-origin resource sharing

    private static let page = "https://Console.example"

    private func withListedOrigin(keys: Bool, _ body: (TestGateway) throws -> Void) throws {
        var setup = Setup()
        setup.callers = CallerPolicy(origins: ["https://console.example"])
        try withPausedGateway(setup) { gateway in
            let key = APIKey(name: "a", sha256: KeyText.digest(of: "k"), scopes: [.write])
            if keys { gateway.handler.replaceKeys([key], opensMetrics: false) }
            try body(gateway)
        }
    }

    private func preflight(_ gateway: TestGateway, _ path: String, origin: String) throws -> HTTPClient.Answer {
        try gateway.client.ask(
            "OPTIONS", path,
            headers: [
                ("Origin", origin), ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", "authorization,content-type"),
            ])
    }

    /// What a browser does for `fetch(url, {method: "POST", headers: {Authorization: …}})`.
    @Test(arguments: [true, false]) func listedOrigin_mayAskForPermission_send_andReadTheResponse(keys: Bool) throws {
        try withListedOrigin(keys: keys) { gateway in
            let permission = try preflight(gateway, "/v1/picky/event", origin: Self.page)
            #expect(permission.status == 204)
            #expect(permission.header("Access-Control-Allow-Origin") == Self.page)
            #expect(permission.header("Access-Control-Allow-Methods")?.contains("POST") == true)
            let allowed = permission.header("Access-Control-Allow-Headers")?.lowercased() ?? ""
            #expect(allowed.contains("authorization") && allowed.contains("content-type"))
            #expect(permission.header("Vary") == "Origin")
            #expect(permission.header("Access-Control-Allow-Credentials") == nil)
            let answer = try gateway.client.post(
                "/v1/picky/event", #"{"n":1}"#, headers: [("Origin", Self.page), ("Authorization", "Bearer k")])
            #expect(answer.status == 202)
            #expect(answer.header("Access-Control-Allow-Origin") == Self.page)
            #expect(answer.header("Access-Control-Expose-Headers")?.contains("Location") == true)
        }
    }

    /// What the API understands from a page: repeats, resumed streams, documents that are current, CloudEvents.
    @Test func preflight_allowsTheHeadersThatTheAPIReads() throws {
        try withListedOrigin(keys: false) { gateway in
            let permission = try gateway.client.ask(
                "OPTIONS", "/v1/cloudevents",
                headers: [
                    ("Origin", Self.page), ("Access-Control-Request-Method", "POST"),
                    ("Access-Control-Request-Headers", "ce-id,ce-source, CE-Partitionkey,x-forwarded-for"),
                ])
            let allowed = permission.header("Access-Control-Allow-Headers")?.lowercased().split(separator: ", ") ?? []
            for name in [
                "authorization", "content-encoding", "content-type", "idempotency-key", "if-none-match",
                "last-event-id", "postern-session", "prefer", "traceparent", "x-request-id", "ce-id", "ce-source",
                "ce-partitionkey",
            ] {
                #expect(allowed.contains(name[...]), "\(name)")
            }
            #expect(!allowed.contains("x-forwarded-for"))
            let document = try gateway.client.ask("GET", "/openapi.yaml", headers: [("Origin", Self.page)])
            #expect(document.header("Access-Control-Expose-Headers")?.contains("ETag") == true)
        }
    }

    /// A page has to be able to read why it was refused, by whichever part of the gateway.
    @Test func refusals_canBeReadByTheListedOrigin() throws {
        try withListedOrigin(keys: true) { gateway in
            let large = String(repeating: " ", count: 70 << 10)
            for (key, body, status) in [("x", "{}", 401), ("k", "{", 400), ("k", large, 413)] {
                let answer = try HTTPClient(port: gateway.port).post(
                    "/v1/picky/event", body, headers: [("Origin", Self.page), ("Authorization", "Bearer \(key)")])
                #expect(answer.status == status)
                #expect(answer.header("Access-Control-Allow-Origin") == Self.page, "\(status)")
            }
        }
    }

    @Test func otherOrigins_areGivenNoPermission() throws {
        try withListedOrigin(keys: true) { gateway in
            let refused = try preflight(gateway, "/v1/picky/event", origin: "https://evil.example")
            refused.problem(403, "forbidden")
            let read = try gateway.client.ask("GET", "/livez", headers: [("Origin", "https://evil.example")])
            #expect(read.status == 200)
            for answer in [refused, read] {
                #expect(answer.header("Access-Control-Allow-Origin") == nil && answer.header("Vary") == "Origin")
            }
        }
    }

    /// Without a key, or for a path that does not exist, a preflight says the same.
    @Test func preflight_saysNothingOfPaths() throws {
        try withListedOrigin(keys: true) { gateway in
            let known = try preflight(gateway, "/v1/picky/event", origin: Self.page)
            let unknown = try preflight(gateway, "/nothing", origin: Self.page)
            func comparable(_ answer: HTTPClient.Answer) -> [String] {
                answer.headers.filter { !["X-Request-Id", "Date"].contains($0.name) }.map { "\($0.name): \($0.value)" }
            }
            #expect(known.status == unknown.status && comparable(known) == comparable(unknown))
        }
    }

    @Test func withoutListedOrigins_noResponseSpeaksOfThem() throws {
        try withGateway { gateway in
            let answer = try gateway.client.ask("GET", "/livez", headers: [("Origin", "http://127.0.0.1")])
            #expect(!answer.headers.contains { $0.name.hasPrefix("Access-Control") || $0.name == "Vary" })
            let asked = try gateway.client.ask(
                "OPTIONS", "/v1/messages",
                headers: [("Origin", "http://127.0.0.1"), ("Access-Control-Request-Method", "POST")])
            #expect(asked.status == 405)
        }
    }
}
