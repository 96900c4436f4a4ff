import InMemoryLogging
import Logging
import PosternCompression
import PosternCore
import PosternDelivery
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// Design, section 7: which metrics exist from the start, and in which format.
@Suite struct MetricsTests {
    /// The series of a family, as label pairs.
    private func series(_ name: String, in text: String) -> Set<String> {
        Set(
            text.split(separator: "\n").filter { $0.hasPrefix(name + "{") || $0.hasPrefix(name + " ") }
                .map { String($0.dropFirst(name.count).prefix { $0 != " " }) })
    }

    private func product(_ label: String, _ values: [String], upstreams: [String] = ["picky", "plain"]) -> Set<String> {
        Set(upstreams.flatMap { name in values.map { #"{upstream="\#(name)",\#(label)="\#($0)"}"# } })
    }

    @Test func everySeries_isThereFromTheStart_withZero() throws {
        var setup = Setup()
        setup.upstreams = [PickyUpstream("picky"), PlainUpstream("plain", kinds: ["event"])]
        try withPausedGateway(setup) { gateway in
            let text = try gateway.client.get("/metrics").text
            let reasons = ProblemSlug.refusingMessages.map(\.rawValue)
            let ended = MessageState.allCases.filter { $0 != .queued }.map(\.name)
            let each: Set = [#"{upstream="picky"}"#, #"{upstream="plain"}"#]
            let zero: [(String, Set<String>)] = [
                (
                    "postern_messages_accepted_total",
                    product("kind", ["event", "note"], upstreams: ["picky"])
                        .union(product("kind", ["event"], upstreams: ["plain"]))
                ),
                (
                    "postern_messages_refused_total",
                    product("reason", reasons.filter { $0 != "unknown-upstream" })
                        .union(product("reason", reasons, upstreams: ["unknown"]))
                ),
                ("postern_messages_settled_total", product("state", ended)),
                ("postern_messages_replayed_total", product("outcome", Metrics.replayOutcomes)),
                ("postern_outbox_messages", product("state", MessageState.allCases.map(\.name))),
                ("postern_attempts_total", product("outcome", Settlement.Outcome.allCases.map(\.rawValue))),
                ("postern_outbox_bytes", each), ("postern_outbox_unbalanced_messages", each),
                ("postern_outbox_oldest_queued_seconds", each),
                ("postern_ambiguous_sends_total", each), ("postern_attempt_duration_seconds_count", each),
                ("postern_batch_messages_count", each), ("postern_commit_messages_count", [""]),
                (
                    "postern_worker_stalled",
                    [#"{worker="picky"}"#, #"{worker="plain"}"#, #"{worker="writer"}"#]
                ),
            ]
            for (name, expected) in zero {
                #expect(series(name, in: text) == expected, "\(name)")
                for labels in expected { #expect(text.contains("\(name)\(labels) 0\n"), "\(name)\(labels)") }
            }
            let healths = UpstreamSnapshot.Health.allCases.map(\.rawValue)
            #expect(series("postern_upstream_health", in: text) == product("health", healths))
            #expect(
                series("postern_circuit_state", in: text) == product("state", ["closed", "open", "half-open"]))
            #expect(text.contains(#"postern_upstream_health{upstream="picky",health="paused"} 1"# + "\n"))
            let routes = Set(Route.common.map(\.template.text))
            #expect(
                series("postern_http_request_duration_seconds_count", in: text)
                    == Set(routes.map { #"{route="\#($0)"}"# }))
            let requests = series("postern_http_requests_total", in: text)
            for route in Route.common {
                for status in route.statuses {
                    #expect(requests.contains(#"{route="\#(route.template.text)",status="\#(status)"}"#))
                }
            }
            #expect(requests.contains(#"{route="/v1/{upstream}/{kind}",status="507"}"#))
        }
    }

    @Test func successes_haveTheirSeries_andOnlyThose() throws {
        var setup = Setup()
        let shelf = UpstreamRoute(.put, "shelf", status: 204, .read { _, _ in .empty() })
        setup.upstreams = [PlainUpstream("shop", routes: [shelf])]
        try withPausedGateway(setup) { gateway in
            let requests = series("postern_http_requests_total", in: try gateway.client.get("/metrics").text)
            let expected: [(String, Set<Int>)] = [
                ("/v1/{upstream}/{kind}", [200, 202]), ("/v1/cloudevents", [200, 202]),
                ("/v1/messages/{id}", [200]), ("/v1/messages/{id}/retry", [200, 202]),
                ("/v1/messages/retry", [200, 202]),
                ("/v1/messages/cancel", [200, 202]), ("/v1/messages/purge", [200, 202]),
                ("/v1/messages/erase", [200]),
                ("/v1/upstreams/{name}/flush", [200, 202]),
                ("/v1/upstreams/{name}/pause", [202]), ("/v1/upstreams/{name}/resume", [202]),
                ("/v1/upstreams/{name}/probe", [200]), ("/v1/{upstream}/shelf", [204]),
            ]
            for (route, statuses) in expected {
                let found = (200..<300).filter { requests.contains(#"{route="\#(route)",status="\#($0)"}"#) }
                #expect(Set(found) == statuses, "\(route)")
            }
        }
    }

    @Test func tokens_haveTheirSeries_onlyWhereTheyAreFetched() throws {
        try withPausedGateway { gateway in
            let text = try gateway.client.get("/metrics").text
            #expect(series("postern_token_refreshes_total", in: text) == [])
        }
    }

    // MARK: Refusals

    private func refused(_ gateway: TestGateway, _ upstream: String, _ slug: ProblemSlug) throws -> Int? {
        let labels = #"{upstream="\#(upstream)",reason="\#(slug.rawValue)"}"#
        return try gateway.sample("postern_messages_refused_total\(labels)").map { Int($0) }
    }

    @Test func refusal_isCounted_whateverItsReason() throws {
        try withPausedGateway { gateway in
            let client = gateway.client
            func post(
                _ path: String, _ body: String, type: String = "application/json", headers: [(String, String)] = []
            ) throws -> Int {
                try HTTPClient(port: gateway.port)
                    .ask("POST", path, Array(body.utf8), headers: [("Content-Type", type)] + headers).status
            }
            let path = "/v1/picky/event"
            let status = try post(path, "{")
            #expect(status == 400)
            #expect(try post(path, "{}", type: "text/plain") == 415)
            #expect(try post(path, #"[{"n":"x"},{"n":"y"},{"n":1}]"#) == 422)
            #expect(try post(path, String(repeating: " ", count: 65 << 10)) == 413)
            #expect(try post(path + "?dryrun=1", #"{"n":1}"#) == 400)
            #expect(try post("/v1/picky/nonsense", "{}") == 404)
            #expect(try post("/v1/absent/event", "{}") == 404)
            #expect(try post("/v1/messages", "nonsense") == 400)
            #expect(try post(path, "{", headers: [("Sec-Fetch-Site", "cross-site")]) == 403)
            let expected: [(String, ProblemSlug, Int)] = [
                ("picky", .invalidJSON, 1), ("picky", .unsupportedMediaType, 1), ("picky", .invalidPayload, 2),
                ("picky", .payloadTooLarge, 1), ("picky", .badRequest, 1), ("picky", .forbidden, 1),
                ("unknown", .unknownKind, 1), ("unknown", .unknownUpstream, 1),
                ("unknown", .invalidJSON, 1),
            ]
            for (upstream, slug, count) in expected {
                #expect(try refused(gateway, upstream, slug) == count, "\(upstream) \(slug.rawValue)")
            }
            // Queries and dry runs do not count as rejections.
            #expect(try client.post("/v1/messages/retry", "{").status == 400)
            #expect(try post(path + "?dryRun=true", "{") == 400)
            #expect(try refused(gateway, "picky", .invalidJSON) == 1)
            #expect(try refused(gateway, "unknown", .invalidJSON) == 1)
        }
    }

    /// The server refuses such a body before it is read.
    @Test func bodyThatDoesNotFitIntoMemory_isCountedAndLogged_asOverloaded() throws {
        let log = InMemoryLogHandler()
        var setup = Setup()
        setup.log = log
        setup.bodyMemory = ByteBudget(1000)
        setup.bodyMemory.takeAnyway(1000)
        try withPausedGateway(setup) { gateway in
            try HTTPClient(port: gateway.port).post("/v1/picky/event", #"{"n":1}"#).problem(503, "overloaded")
            #expect(try refused(gateway, "picky", .overloaded) == 1)
            #expect(try refused(gateway, "picky", .badRequest) == 0)
            let line = try #require(log.entries.first { $0.message == "request rejected" })
            #expect(line.metadata["problem"] == "overloaded")
        }
    }

    @Test func refusalBecauseOfTheKey_isCounted_byReason() throws {
        try withPausedGateway { gateway in
            func key(
                _ text: String, _ scopes: Set<APIKey.Scope> = [.write], upstreams: Set<UpstreamName>? = nil,
                limits: RateLimits = RateLimits()
            ) -> APIKey {
                APIKey(
                    name: text, sha256: KeyText.digest(of: text), scopes: scopes, upstreams: upstreams, limits: limits)
            }
            let keys = [
                key("reader", [.read]), key("stranger", upstreams: [UpstreamName("plain")!]),
                key("slow", limits: RateLimits(requestsPerSecond: 0.01, burst: 1)),
            ]
            gateway.handler.replaceKeys(keys, opensMetrics: true)
            func post(_ key: String?, _ path: String = "/v1/picky/event") throws -> Int {
                let authorization = key.map { [("Authorization", "Bearer \($0)")] } ?? []
                return try gateway.client.ask(
                    "POST", path, Array(#"{"n":1}"#.utf8),
                    headers: [("Content-Type", "application/json")] + authorization
                ).status
            }
            let status = try post(nil)
            #expect(status == 401)
            // The last ones are delayed, and counted once like the others.
            for _ in 0..<12 { #expect(try post("wrong") == 401) }
            #expect(try post("reader") == 403)
            #expect(try post("stranger") == 403)
            #expect(try post("reader", "/v1/messages") == 403)
            #expect(try post("slow") == 202)
            for _ in 0..<3 { #expect(try post("slow") == 429) }
            #expect(try refused(gateway, "picky", .unauthorized) == 13)
            #expect(try refused(gateway, "picky", .forbidden) == 2)
            #expect(try refused(gateway, "unknown", .forbidden) == 1)
            #expect(try refused(gateway, "picky", .rateLimited) == 3)
            // Who may not read what is stored is refused no message.
            #expect(try gateway.client.get("/v1/upstreams/picky").status == 401)
            #expect(try refused(gateway, "picky", .unauthorized) == 13)
        }
    }

    /// The server refuses such requests before the gateway has their heads.
    @Test func requestWithoutHead_isCountedAndLogged() throws {
        let log = InMemoryLogHandler()
        var setup = Setup()
        setup.log = log
        setup.hasAdminListener = true
        try withPausedGateway(setup) { gateway in
            for port in [gateway.port, gateway.adminPort] {
                let client = try HTTPClient(port: port)
                client.send("PUT /v1/messages HTTP/1.1\r\nX-Request-Id: mine-\(port)\r\n\r\n")
                try client.answer().problem(400, "bad-request")
                let lines = log.entries.map { $0.metadata.mapValues { "\($0)" } }
                let line = try #require(lines.first { $0["request.id"] == "mine-\(port)" })
                #expect(line["http.status"] == "400" && line["http.method"] == "PUT" && line["route"] == "unknown")
                #expect(line["problem"] == "bad-request" && line["client"] == "127.0.0.1")
            }
            let operators = try HTTPClient(port: gateway.adminPort)
            let text = try operators.get("/metrics").text
            #expect(text.contains(#"postern_http_requests_total{route="unknown",status="400"} 2"# + "\n"))
            #expect(text.contains(#"postern_http_requests_total{route="unknown",status="431"} 0"# + "\n"))
        }
    }

    // MARK: Forms

    @Test(
        arguments: [
            (nil, false), ("*/*", false), ("text/plain", false), ("application/openmetrics-text", true),
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", true),
            ("application/openmetrics-text;q=0.2,text/plain;q=0.9", false), ("application/openmetrics-text;q=0", false),
        ] as [(String?, Bool)])
    func openMetrics_isSent_ifAcceptPrefersIt(accept: String?, isOpen: Bool) throws {
        try withPausedGateway { gateway in
            let headers = accept.map { [("Accept", $0)] } ?? []
            let answer = try gateway.client.ask("GET", "/metrics", headers: headers)
            #expect(answer.header("Content-Type")?.hasPrefix(isOpen ? "application/openmetrics" : "text/plain") == true)
            #expect(answer.text.hasSuffix("\n# EOF\n") == isOpen)
            #expect(answer.text.contains("# TYPE postern_messages_accepted counter\n") == isOpen)
            #expect(answer.text.contains(#"postern_messages_accepted_total{upstream="picky",kind="event"} 0"#))
        }
    }

    @Test func metrics_areCompressed_onlyOnRequest() throws {
        try withPausedGateway { gateway in
            let plain = try gateway.client.get("/metrics")
            #expect(plain.header("Content-Encoding") == nil)
            #expect(plain.header("Vary") == "Accept, Accept-Encoding")
            let small = try gateway.client.ask("GET", "/metrics", headers: [("Accept-Encoding", "deflate, gzip")])
            #expect(small.header("Content-Encoding") == "gzip")
            let text = try Gzip.decompress(small.body, maxBytes: 1 << 20)
            #expect(String(decoding: text, as: UTF8.self).contains("# TYPE postern_store_bytes gauge\n"))
            #expect(small.body.count * 4 < text.count)
            let refused = try gateway.client.ask("GET", "/metrics", headers: [("Accept-Encoding", "gzip;q=0")])
            #expect(refused.header("Content-Encoding") == nil)
        }
    }
}
