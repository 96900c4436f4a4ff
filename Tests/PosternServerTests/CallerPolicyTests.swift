import PosternTestKit
import Testing

@testable import PosternServer

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
}
