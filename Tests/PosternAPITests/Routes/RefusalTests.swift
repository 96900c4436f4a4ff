import PosternCompression
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// Design, section 3.6: which requests are rejected, and how.
@Suite struct RefusalTests {
    @Test(arguments: [
        ("GET", "/", 404, "not-found"), ("GET", "/v1", 404, "not-found"), ("GET", "/v2/upstreams", 404, "not-found"),
        ("GET", "/nothing", 404, "not-found"), ("GET", "/livez/", 404, "not-found"),
        ("POST", "/v1/picky/event/more", 404, "not-found"), ("POST", "/v1/events", 404, "not-found"),
        ("POST", "/v1/stream/event", 404, "not-found"), ("POST", "/v1//event", 404, "not-found"),
        ("POST", "/v1/absent/event", 404, "unknown-upstream"), ("POST", "/v1/picky/nothing", 404, "unknown-kind"),
        ("GET", "/v1/upstreams/absent", 404, "unknown-upstream"),
        ("POST", "/v1/upstreams/absent/flush", 404, "unknown-upstream"),
        ("POST", "/v1/upstreams/picky/jump", 404, "not-found"),
        ("GET", "/v1/messages/xyz", 404, "not-found"), ("GET", "/v1/messages/0000000000101", 404, "not-found"),
        ("DELETE", "/v1/messages/z000000000101", 404, "not-found"),
        ("POST", "/v1/messages/0000000000101/retry", 404, "not-found"),
        ("GET", "/v1/messages?upstream=absent", 404, "unknown-upstream"),
        ("GET", "/v1/../livez", 404, "unknown-upstream"), ("GET", "/%2e%2e/livez", 404, "not-found"),
        ("GET", "/livez%2f", 404, "not-found"), ("GET", "/v1/messages/..%2f..%2fetc%2fpasswd", 404, "not-found"),
        ("POST", "/v1/picky%2Fevent", 404, "not-found"),
    ])
    func unknownPlace_isNotFound(method: String, path: String, status: Int, slug: String) throws {
        try withPausedGateway { gateway in
            let body: [UInt8]? = method == "POST" ? Array("{}".utf8) : nil
            try gateway.client.ask(method, path, body).problem(status, slug)
        }
    }

    @Test func unknownUpstreamAndKind_nameTheKnownOnes() throws {
        try withPausedGateway { gateway in
            let upstream = try HTTPClient(port: gateway.port).post("/v1/absent/event", "{}")
            #expect(upstream.json["detail"].string?.contains("picky, plain") == true)
            let kind = try HTTPClient(port: gateway.port).post("/v1/picky/nothing", "{}")
            #expect(kind.json["detail"].string?.contains("event, note") == true)
        }
    }

    @Test(arguments: [
        ("GET", "/v1/picky/event", "POST"), ("HEAD", "/v1/picky/event", "POST"), ("PUT", "/v1/picky/event", "POST"),
        ("DELETE", "/v1/messages", "GET, HEAD, POST"), ("GET", "/v1/messages/retry", "POST"),
        ("POST", "/v1/messages/0000000000101", "DELETE, GET, HEAD"),
        ("GET", "/v1/messages/0000000000101/retry", "POST"), ("POST", "/v1/upstreams", "GET, HEAD"),
        ("POST", "/v1/upstreams/picky", "GET, HEAD"), ("GET", "/v1/upstreams/picky/pause", "POST"),
        ("POST", "/livez", "GET, HEAD"), ("DELETE", "/readyz", "GET, HEAD"), ("PUT", "/metrics", "GET, HEAD"),
        ("POST", "/openapi.yaml", "GET, HEAD"), ("OPTIONS", "/v1/messages", "GET, HEAD, POST"),
    ])
    func wrongMethod_isRefusedWithTheRightOnes(method: String, path: String, allowed: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.ask(method, path)
            #expect(answer.status == 405)
            #expect(answer.header("Allow") == allowed)
            if method != "HEAD" { answer.problem(405, "method-not-allowed") }
        }
    }

    /// As in `openapi.yaml`, which has one entry for the path, whatever type an upstream is of.
    @Test func options_namesTheMethodsOfAPath_thatTypesShare() throws {
        var setup = Setup()
        let reading = UpstreamRoute(.get, "shelf/{number}", .read { _, _ in .empty() })
        let removing = UpstreamRoute(.delete, "shelf/{number}", .read { _, _ in .empty() })
        setup.upstreams = [
            PlainUpstream("plain", routes: [reading]), PlainUpstream("other", routes: [reading, removing]),
        ]
        try withPausedGateway(setup) { gateway in
            for name in ["plain", "other"] {
                let answer = try gateway.client.ask("OPTIONS", "/v1/\(name)/shelf/1")
                #expect(answer.header("Allow") == "DELETE, GET, HEAD")
            }
            #expect(try gateway.client.ask("DELETE", "/v1/plain/shelf/1").header("Allow") == "GET, HEAD")
            #expect(try gateway.client.ask("DELETE", "/v1/other/shelf/1").status == 204)
        }
    }

    @Test(arguments: [
        "/v1/picky/event?dryrun=true", "/v1/messages?dryRun=true&x=1", "/livez?x", "/readyz?a=b", "/metrics?name=x",
        "/v1/upstreams?limit=1", "/v1/messages/0000000000101?payload=true", "/openapi.yaml?v=1",
    ])
    func unknownQueryParameter_isRefusedByName(path: String) throws {
        try withPausedGateway { gateway in
            let isPost = path.hasPrefix("/v1/picky") || path.contains("dryRun")
            let answer = try gateway.client.ask(
                isPost ? "POST" : "GET", path, isPost ? Array(#"{"n":1}"#.utf8) : nil)
            answer.problem(400, "bad-request")
            #expect(answer.json["detail"].string?.contains("query parameter") == true)
            #expect(gateway.queued == 0)
        }
    }

    @Test(arguments: [
        "include=everything", "limit=0", "limit=1001", "limit=x", "limit=-1", "cursor=x", "state=lost", "state=",
    ])
    func senselessListQuery_isRefused(query: String) throws {
        try withPausedGateway { gateway in
            try gateway.client.get("/v1/messages?\(query)").problem(400, "bad-request")
        }
    }

    // MARK: Bodies

    @Test(arguments: [
        "text/plain", "application/xml", "application/json; charset=latin1", "application/cloudevents+json",
        "multipart/form-data; boundary=x",
    ])
    func unknownMediaType_isRefused(type: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: [("Content-Type", type)])
            answer.problem(415, "unsupported-media-type")
            #expect(answer.header("Accept-Post")?.contains("application/json") == true)
        }
    }

    /// A form of another site's page cannot send JSON, and so cannot steer anything with a body.
    @Test(arguments: [
        "/v1/upstreams/picky/pause", "/v1/upstreams/picky/flush", "/v1/messages/retry",
        "/v1/messages/0000000000101/retry",
    ])
    func steeringBody_isRefused_unlessItIsJSON(path: String) throws {
        try withPausedGateway { gateway in
            let form = [("Content-Type", "application/x-www-form-urlencoded")]
            let answer = try gateway.client.post(path, #"{"upstream":"picky"}"#, headers: form)
            answer.problem(415, "unsupported-media-type")
            #expect(try gateway.client.post(path, #"{"upstream":"picky"}"#).status != 415)
            #expect(try gateway.client.post(path, "", headers: form).status != 415)
        }
    }

    @Test(arguments: [
        ("/v1/upstreams", "text/html", 406), ("/v1/upstreams", "text/html, */*;q=0.1", 200),
        ("/v1/upstreams", "*/*", 200), ("/v1/upstreams", "", 200), ("/v1/upstreams", "application/*", 200),
        ("/v1/upstreams", "Application/JSON; charset=utf-8", 200), ("/v1/upstreams", "*/*;q=0", 406),
        ("/v1/upstreams", "*/*, application/json;q=0", 406), ("/v1/upstreams", "application/xml;q=1, text/*", 406),
        ("/v1/messages", "image/png", 406), ("/livez", "text/html", 200), ("/metrics", "text/html", 200),
        ("/openapi.yaml", "text/html", 200), ("/v1/upstreams", "*", 200),
        ("/v1/upstreams", "text/html, image/gif, *; q=.2", 200), ("/v1/upstreams", "*, application/json;q=0", 406),
    ])
    func accept_isHonored_whereResponsesAreJSON(path: String, accept: String, status: Int) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.ask("GET", path, headers: [("Accept", accept)])
            #expect(answer.status == status)
            if status == 406 { answer.problem(406, "not-acceptable") }
            let many = try gateway.client.ask(
                "GET", "/v1/upstreams", headers: [("Accept", "text/html"), ("Accept", "application/json")])
            #expect(many.status == 200, "the lines of a list are one list")
        }
    }

    /// What the client would rather get as a receipt is no reason to lose its message.
    @Test(arguments: ["text/html", "text/plain", "*", "application/json;q=0"])
    func accept_doesNotMatter_toWhatIsWritten(accept: String) throws {
        try withPausedGateway { gateway in
            for (path, body, status) in [
                ("/v1/picky/event", #"{"n":1}"#, 202), ("/v1/upstreams/picky/pause", "", 202),
                ("/v1/messages/cancel", #"{"upstream":"picky"}"#, 200),
            ] {
                let answer = try gateway.client.post(path, body, headers: [("Accept", accept)])
                #expect(answer.status == status, "\(path): \(answer.text)")
            }
        }
    }

    @Test(arguments: [
        "utf8", "UTF-8", "'utf-8'", "\"utf8\"", "us-ascii", "\"US-ASCII\"", "utf-8; q=1",
    ])
    func charsetsOfUTF8_areAccepted(charset: String) throws {
        try withPausedGateway { gateway in
            let type = [("Content-Type", "application/json; charset=\(charset)")]
            #expect(try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: type).status == 202)
            let event = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/a"), ("ce-type", "picky.event")]
            let answer = try gateway.client.post("/v1/cloudevents", #"{"n":1}"#, headers: type + event)
            #expect(answer.status == 202, "\(answer.text)")
        }
    }

    @Test func missingMediaType_isRefused() throws {
        try withPausedGateway { gateway in
            gateway.client.send(
                "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{\"n\":1}")
            try gateway.client.answer().problem(415, "unsupported-media-type")
        }
    }

    @Test(arguments: ["br", "deflate", "gzip, gzip"])
    func unknownContentEncoding_isRefused(coding: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", "x", headers: [("Content-Encoding", coding)])
            answer.problem(415, "unsupported-media-type")
            #expect(answer.header("Accept-Encoding") == "gzip")
        }
    }

    @Test(arguments: [
        ("", 0), ("  ", 2), ("{", 1), (#"{"n":1"#, 6), (#"{"n":1} x"#, 8), (#"{"n":1}{"n":2}"#, 7), (#"{"n":01}"#, 5),
        (#"{"n":1,"n":2}"#, 7), (#"{"n":1,"\u006e":2}"#, 7), (#"{"n":"\ud800"}"#, 6), (#"{"n":"\x"}"#, 6),
        (#"[{"n":1},]"#, 9), ("{'n':1}", 1), ("\u{feff}{}", 0), (#"{"a":{"b":1,"b":2}}"#, 12), ("nul", 0),
    ])
    func badJSON_isRefusedWithItsOffset(body: String, offset: Int) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", body)
            answer.problem(400, "invalid-json")
            #expect(answer.json["offset"].int == offset, "\(answer.text)")
            #expect(gateway.queued == 0)
        }
    }

    @Test func badUTF8_isRefusedWithItsOffset() throws {
        try withPausedGateway { gateway in
            let body = Array(#"{"n":""#.utf8) + [0xC0, 0xAF] + Array(#""}"#.utf8)
            let answer = try gateway.client.ask("POST", "/v1/picky/event", body)
            answer.problem(400, "invalid-json")
            #expect(answer.json["offset"].int == 6)
        }
    }

    @Test func nesting_isTakenUpTo64Levels() throws {
        func nested(_ depth: Int) -> String {
            #"{"n":1,"x":"# + String(repeating: "[", count: depth - 1) + String(repeating: "]", count: depth - 1) + "}"
        }
        try withPausedGateway { gateway in
            #expect(try gateway.client.post("/v1/picky/event", nested(64)).status == 202)
            try gateway.client.post("/v1/picky/event", nested(65)).problem(400, "invalid-json")
            try gateway.client.post("/v1/picky/event", nested(30_000)).problem(400, "invalid-json")
        }
    }

    @Test func badLineOfNDJSON_isRefusedWithItsOffset() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", "{\"n\":1}\n{\"n\":}\n", headers: [("Content-Type", "application/x-ndjson")])
            answer.problem(400, "invalid-json")
            #expect(answer.json["offset"].int == 13, "\(answer.text)")
            #expect(answer.json["detail"].string?.contains("at byte 13, on line 2.") == true, "\(answer.text)")
            #expect(gateway.queued == 0)
        }
    }

    @Test func invalidMessageOfNDJSON_isNamedByItsLine() throws {
        try withPausedGateway { gateway in
            let lines = "{\"n\":1}\n\n{\"n\":\"x\"}\r\n{\"n\":2}\n \n{\"n\":\"y\"}"
            var headers = [("Content-Type", "application/x-ndjson")]
            let answer = try gateway.client.post("/v1/picky/event", lines, headers: headers)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"].array.map { $0["index"].int } == [1, 3], "\(answer.text)")
            #expect(answer.json["errors"].array.map { $0["line"].int } == [3, 6], "\(answer.text)")
            headers.append(("Prefer", "handling=lenient"))
            let lenient = try gateway.client.post("/v1/picky/event", lines, headers: headers)
            #expect(lenient.json["rejected"].array.map { $0["line"].int } == [3, 6], "\(lenient.text)")
        }
    }

    @Test(arguments: [
        ("{\"n\":1}\n{\"n\":2}\n", "at byte 8; send texts on separate lines as application/x-ndjson."),
        (#"{"n":1,"n":2}"#, #"duplicate member name "n" at byte 7."#),
        (#"{"n":1,}"#, "a comma after the last element at byte 7."),
    ])
    func badJSON_isExplained(body: String, detail: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", body)
            answer.problem(400, "invalid-json")
            #expect(answer.json["detail"].string?.hasSuffix(detail) == true, "\(answer.text)")
        }
    }

    @Test func envelopeThatIsNotValid_isNotSaidToBreakTheRulesOfAnUpstream() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/messages", #"{"upstream":"picky","kind":"event"}"#)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["detail"].string == "The message is not valid; nothing was stored. See errors.")
        }
    }

    @Test func announcedBodyThatIsTooLong_isRefusedUnread() throws {
        try withPausedGateway { gateway in
            gateway.client.send(
                "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 65537\r\n\r\n"
            )
            try gateway.client.answer().problem(413, "payload-too-large")
        }
    }

    @Test func tooManyMessages_areRefused() throws {
        try withPausedGateway { gateway in
            let body = "[" + [String](repeating: #"{"n":1}"#, count: 1001).joined(separator: ",") + "]"
            try gateway.client.post("/v1/picky/event", body).problem(413, "payload-too-large")
            let lines = [String](repeating: #"{"n":1}"#, count: 1001).joined(separator: "\n")
            try gateway.client.post("/v1/picky/event", lines, headers: [("Content-Type", "application/x-ndjson")])
                .problem(413, "payload-too-large")
            #expect(gateway.queued == 0)
        }
    }

    @Test func limitOfMessages_isKeptExactly() throws {
        try withPausedGateway { gateway in
            let body = "[" + [String](repeating: #"{"n":1}"#, count: 1000).joined(separator: ",") + "]"
            let answer = try gateway.client.post("/v1/picky/event", body)
            #expect(answer.json["accepted"].int == 1000)
        }
    }

    @Test func limitAboveWhatTheParserCounts_isKeptToo() throws {
        var setup = Setup()
        setup.limits.maxMessagesPerRequest = 70_000
        setup.limits.maxBodyBytes = 1 << 20
        try withPausedGateway(setup) { gateway in
            func body(_ count: Int) -> String {
                "[" + [String](repeating: "0", count: count).joined(separator: ",") + "]"
            }
            let lenient = [("Prefer", "handling=lenient")]
            let most = try gateway.client.post("/v1/picky/event?dryRun=true", body(70_000), headers: lenient)
            #expect(most.status == 422)
            try gateway.client.post("/v1/picky/event?dryRun=true", body(70_001)).problem(413, "payload-too-large")
        }
    }

    // MARK: Room

    @Test func fullQueue_isRefusedUntilThereIsRoom() throws {
        var setup = Setup()
        setup.caps = ["picky": QueueCap.with { $0.maxMessages = 2 }]
        try withPausedGateway(setup) { gateway in
            #expect(try gateway.client.post("/v1/picky/event", #"[{"n":1},{"n":2}]"#).status == 202)
            let refused = try gateway.client.post("/v1/picky/event", #"{"n":3}"#)
            refused.problem(503, "outbox-full")
            #expect(refused.header("Retry-After").flatMap { Int($0) } ?? 0 > 0)
            #expect(gateway.queued == 2)
            // Other upstreams' queues are not full.
            #expect(try gateway.client.post("/v1/plain/thing", "{}").status == 202)
        }
    }

    @Test func fullQueue_asksToComeBack_whenItWillBeEmpty_withinLimits() throws {
        var setup = Setup()
        let time = ManualTime()
        (setup.time, setup.results) = (time, [.status(200)])
        setup.caps["picky"] = QueueCap.with { $0.maxMessages = 3 }
        try withGateway(setup) { gateway in
            try gateway.waitForState("delivered", of: gateway.accept())
            // The first of them is never answered.
            for _ in 0..<3 { _ = try gateway.accept() }
            var waits: [String?] = []
            for seconds in [1, 29, 270] {
                time.advance(by: .seconds(seconds))
                let refused = try gateway.client.post("/v1/picky/event", #"{"n":1}"#)
                refused.problem(503, "outbox-full")
                waits.append(refused.header("Retry-After"))
            }
            #expect(waits == ["10", "90", "300"])
            #expect(try gateway.upstream()["drainSeconds"].double == 900)
            #expect(try gateway.sample(#"postern_outbox_drain_seconds{upstream="picky"}"#) == 900)
        }
    }

    /// Waiting would not help.
    @Test(arguments: [QueueCap.WhenFull.reject, .dropOldest])
    func requestThatNeverFits_isTooLarge(whenFull: QueueCap.WhenFull) throws {
        var setup = Setup()
        setup.maxBytes = 100
        setup.caps = ["picky": QueueCap.with { ($0.maxMessages, $0.maxBytes, $0.whenFull) = (2, 50, whenFull) }]
        try withPausedGateway(setup) { gateway in
            func post(_ body: String, to path: String = "/v1/picky/event") throws -> HTTPClient.Answer {
                try gateway.client.post(path, body)
            }
            let many = try post(#"[{"n":1},{"n":2},{"n":3}]"#)
            many.problem(413, "payload-too-large")
            #expect(many.text.contains("queue.maxMessages") && many.header("Retry-After") == nil)
            try post(#"{"n":1,"name":"\#(String(repeating: "x", count: 60))"}"#).problem(413, "payload-too-large")
            let large = try post("{\"a\":\"\(String(repeating: "x", count: 100))\"}", to: "/v1/plain/thing")
            large.problem(413, "payload-too-large")
            #expect(large.text.contains("outbox.maxBytes"))
            #expect(gateway.queued == 0)
            #expect(try post(#"[{"n":1},{"n":2}]"#).status == 202)
        }
    }

    @Test func fullOutbox_isRefused() throws {
        var setup = Setup()
        setup.maxBytes = 20
        try withPausedGateway(setup) { gateway in
            #expect(try gateway.client.post("/v1/picky/event", #"{"n":1}"#).status == 202)
            #expect(try gateway.client.post("/v1/plain/thing", #"{"n":1}"#).status == 202)
            try gateway.client.post("/v1/plain/thing", #"{"n":1}"#).problem(503, "outbox-full")
        }
    }

    @Test func droppedOldest_isNamed() throws {
        var setup = Setup()
        setup.caps = ["picky": QueueCap.with { ($0.maxMessages, $0.whenFull) = (1, .dropOldest) }]
        try withPausedGateway(setup) { gateway in
            let first = try gateway.accept()
            let second = try gateway.client.post("/v1/picky/event", #"{"n":2}"#)
            #expect(second.status == 202)
            #expect(second.json["evicted"].strings == [first])
            #expect(try gateway.message(first)["state"].string == "dropped")
            let third = try gateway.client.post("/v1/picky/event", #"[{"n":3}]"#)
            #expect(third.json["evicted"].strings == [second.json["id"].string])
        }
    }

    /// How a body's size is announced.
    enum Announcement: CaseIterable { case length, chunked, gzip }

    /// A body that is admitted is not refused once it was read, however little its headers say of its size.
    @Test(arguments: Announcement.allCases)
    func burstOfLargeBodies_isRefusedBeforeTheBodies_orAccepted(announcement: Announcement) throws {
        var random = SplitMix64(state: 7)
        let filler = (0..<25_000).map { _ in String(random.next() % 10_000) }.joined(separator: " ").prefix(100_000)
        let text = Array(#"{"n":1,"filler":"\#(filler)"}"#.utf8)
        var setup = Setup()
        setup.limits.maxBodyBytes = 200_000
        let chunks = Array("\(String(text.count, radix: 16))\r\n".utf8) + text + Array("\r\n0\r\n\r\n".utf8)
        let packed = Gzip.compress(text)
        let (body, needed, header): ([UInt8], Int, String) =
            switch announcement {
            case .length: (text, 8 * text.count, "Content-Length: \(text.count)")
            case .chunked: (chunks, 8 * 200_000, "Transfer-Encoding: chunked")
            // The most that it may become.
            case .gzip:
                (packed, packed.count + 8 * 200_000, "Content-Encoding: gzip\r\nContent-Length: \(packed.count)")
            }
        // Seven eighths hold three of them.
        setup.memory = ByteBudget((3 * needed + 1000) * 8 / 7)
        setup.bodyMemory = setup.memory
        try withPausedGateway(setup) { gateway in
            let clients = try (0..<24).map { _ in try HTTPClient(port: gateway.port) }
            for client in clients {
                client.send(
                    "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        + "Expect: 100-continue\r\n\(header)\r\n\r\n")
            }
            let first = try clients.map { try $0.answer() }
            let admitted = zip(clients, first).filter { $1.status == 100 }.map(\.0)
            #expect(admitted.count == 3)
            #expect(first.allSatisfy { [100, 503].contains($0.status) })
            // A small one fits besides them.
            #expect(try gateway.client.post("/v1/picky/event", #"{"n":1}"#).status == 202)
            for client in admitted { client.send(body) }
            for client in admitted { #expect(try client.answer().status == 202) }
            #expect(gateway.queued == admitted.count + 1)
            #expect(eventually { gateway.context.memory.bytesInUse == 0 })
        }
    }

    /// Most chunked bodies are small, and their clients wait for nothing: they take little until they become large.
    @Test func chunkedBody_isRefused_onceItIsLarge_orReadToItsEnd() throws {
        let (most, part) = (200_000, 70_000)
        var setup = Setup()
        setup.limits.maxBodyBytes = most
        setup.memory = ByteBudget((2 * 8 * most + 100_000) * 8 / 7)
        setup.bodyMemory = setup.memory
        let start = #"{"n":1,"filler":""#
        let first = start + String(repeating: "x", count: part - start.utf8.count)
        let last = String(repeating: "y", count: 100_000) + "\"}"
        func chunk(_ text: String) -> String { "\(String(text.utf8.count, radix: 16))\r\n\(text)\r\n" }
        try withPausedGateway(setup) { gateway in
            func begin() throws -> HTTPClient {
                let client = try HTTPClient(port: gateway.port)
                client.send(
                    "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        + "Transfer-Encoding: chunked\r\n\r\n\(chunk(first))")
                return client
            }
            var admitted: [HTTPClient] = []
            for count in 1...2 {
                admitted.append(try begin())
                #expect(eventually { gateway.context.memory.bytesInUse == count * 8 * most })
            }
            for _ in 0..<3 { try begin().answer().problem(503, "overloaded") }
            let (small, tiny) = (try HTTPClient(port: gateway.port), chunk(#"{"n":2}"#))
            small.send(
                "POST /v1/picky/event HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    + "Transfer-Encoding: chunked\r\n\r\n\(tiny)0\r\n\r\n")
            #expect(try small.answer().status == 202)
            for client in admitted { client.send(chunk(last) + "0\r\n\r\n") }
            for client in admitted { #expect(try client.answer().status == 202) }
            #expect(eventually { gateway.context.memory.bytesInUse == 0 })
        }
    }

    @Test func drainingGateway_refusesMessages() throws {
        try withPausedGateway { gateway in
            let id = try gateway.accept()
            gateway.context.beginDraining()
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":1}"#)
            answer.problem(503, "shutting-down")
            #expect(answer.header("Retry-After") != nil)
            let other = try HTTPClient(port: gateway.port)
            #expect(try other.get("/v1/messages/\(id)").status == 200)
            let ready = try other.get("/readyz")
            #expect(ready.status == 503)
            #expect(ready.json["reasons"].strings == ["draining"])
            #expect(try other.get("/livez").status == 200)
        }
    }

    // MARK: Form

    @Test func requestID_isEchoedOrMade() throws {
        try withPausedGateway { gateway in
            let echoed = try gateway.client.ask("GET", "/livez", headers: [("X-Request-Id", "abc-1")])
            #expect(echoed.header("X-Request-Id") == "abc-1")
            let refused = try gateway.client.ask("GET", "/nowhere", headers: [("X-Request-Id", "abc-2")])
            #expect(refused.json["requestId"].string == "abc-2")
            let made = try (0..<2).map { _ in try gateway.client.get("/livez").header("X-Request-Id") ?? "" }
            #expect(made.allSatisfy { !$0.isEmpty } && made[0] != made[1])
        }
    }

    @Test(arguments: ["/livez", "/readyz", "/metrics", "/openapi.yaml", "/v1/upstreams", "/v1/messages"])
    func head_isAnsweredLikeGetWithoutTheBody(path: String) throws {
        try withPausedGateway { gateway in
            let head = try gateway.client.ask("HEAD", path)
            #expect(head.status == 200)
            #expect(head.body.isEmpty)
            // The connection is still in sync: a response follows, not the rest of a body.
            #expect(try gateway.client.get("/livez").status == 200)
        }
    }
}
