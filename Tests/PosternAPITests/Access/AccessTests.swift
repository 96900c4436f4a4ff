import PosternCore
import PosternEvents
import PosternTestKit
import PosternThreads
import PosternUpstream
import Synchronization
import Testing

@testable import PosternAPI
@testable import PosternHTTP

/// Who may do what: the expectations come from the route table itself.
@Suite(.timeLimit(.minutes(10))) struct AccessTests {
    enum Who: CaseIterable { case absent, stranger, expired, wrongScope, wrongUpstream, right }

    private static let resources = [
        UpstreamRoute(.get, "shelf", .read { _, _ in .json(#"{"books":1}"#) }),
        UpstreamRoute(.put, "shelf", .change { _, _ in UpstreamRouteChange(answer: .empty()) }),
        UpstreamRoute(.post, "api/{command}", access: .open, .read { _, _ in .json("{}") }),
    ]

    private static func key(
        _ name: String, _ scopes: Set<APIKey.Scope>, upstreams: Set<UpstreamName>? = nil,
        limits: RateLimits = RateLimits(), expiresAt: Timestamp? = nil
    ) -> APIKey {
        APIKey(
            name: name, sha256: KeyText.digest(of: "key-\(name)"), scopes: scopes, upstreams: upstreams, limits: limits,
            expiresAt: expiresAt)
    }

    private static func bearer(_ name: String) -> [(String, String)] { [("Authorization", "Bearer key-\(name)")] }

    private static let keys: [APIKey] =
        APIKey.Scope.allCases.flatMap { scope in
            [
                key("only-\(scope.rawValue)", [scope]),
                key("not-\(scope.rawValue)", Set(APIKey.Scope.allCases).subtracting([scope])),
            ]
        } + [
            key("all", Set(APIKey.Scope.allCases)),
            key("plain", Set(APIKey.Scope.allCases), upstreams: [UpstreamName("plain")!]),
            key("old", Set(APIKey.Scope.allCases), expiresAt: Timestamp(milliseconds: 1000)),
        ]

    private func withKeys(
        _ keys: [APIKey] = AccessTests.keys, opensMetrics: Bool = false, _ body: (TestGateway, String) throws -> Void
    ) throws {
        var setup = Setup()
        setup.upstreams = [
            PickyUpstream("picky"), PlainUpstream("plain"), PlainUpstream("shop", routes: Self.resources),
        ]
        try withPausedGateway(setup) { gateway in
            let id = try gateway.accept()
            gateway.handler.replaceKeys(keys, opensMetrics: opensMetrics)
            // Of probes.
            gateway.transport.answerAll { _ in .status(200) }
            try body(gateway, id)
        }
    }

    // MARK: Failed attempts

    /// Requests that hang up before their refusal is due do not use up the delays of others.
    @Test func abandonedAttempts_leaveTheDelayOfOthers() throws {
        try withKeys { gateway, _ in
            let wrong = [("Authorization", "Bearer wrong")]
            for _ in 0..<11 {
                try gateway.client.ask("GET", "/v1/upstreams", headers: wrong).problem(401, "unauthorized")
            }
            for _ in 0..<300 {
                let client = try HTTPClient(port: gateway.port)
                client.send(
                    "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n"
                        + "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
                // The head was read.
                #expect(try client.answer().status == 100)
            }
            let start = ContinuousClock.now
            try gateway.client.ask("GET", "/v1/upstreams", headers: wrong).problem(401, "unauthorized")
            #expect(ContinuousClock.now - start >= .milliseconds(50))
        }
    }

    /// Their responses show whether a key is valid, so a wrong one counts there as it does elsewhere. The status is for any
    /// probe.
    @Test(arguments: [
        ("/readyz", "127.0.0.1", 200), ("/readyz", "evil.example", 200), ("/livez", "127.0.0.1", 200),
        ("/metrics", "127.0.0.1", 200), ("/metrics", "evil.example", 403),
    ])
    func wrongKey_isDelayed_whereNoneIsRequired(path: String, host: String, status: Int) throws {
        try withKeys(opensMetrics: true) { gateway, _ in
            func ask(_ key: String?) throws -> (status: Int, took: Duration) {
                let client = try HTTPClient(port: gateway.port)
                let start = ContinuousClock.now
                let line = key.map { "Authorization: Bearer \($0)\r\n" } ?? ""
                client.send("GET \(path) HTTP/1.1\r\nHost: \(host)\r\n\(line)\r\n")
                return (try client.answer().status, ContinuousClock.now - start)
            }
            for key in ["wrong", "key-old"] {
                for _ in 0..<6 { #expect(try ask(key).status == status) }
            }
            let refused = try ask("wrong")
            #expect(refused.status == status && refused.took >= .milliseconds(50), "\(refused.took)")
            // The same delays meet requests that require a key.
            let start = ContinuousClock.now
            try gateway.client.ask("GET", "/v1/upstreams", headers: [("Authorization", "Bearer wrong")])
                .problem(401, "unauthorized")
            #expect(ContinuousClock.now - start >= .milliseconds(50))
        }
    }

    // MARK: Every route × every caller

    private struct Row {
        let method: String
        let path: String
        let access: RouteAccess
        /// Whether the path names an upstream, or a message of one, that the key `plain` may not use.
        let isForeign: Bool
        let body: String?
    }

    private func rows(_ id: String, operation: String = "x") -> [Row] {
        let common = Route.common.map { ($0, "picky") }
        let own = Self.resources.map { (Route($0), "shop") }
        return (common + own).map { route, upstream in
            let values = [
                "upstream": upstream, "kind": "event", "name": upstream, "id": id, "batch": "1", "command": "c",
                "file": "main.js", "operation": operation,
            ]
            let path = values.reduce(route.template.text) { $0.replacing("{\($1.key)}", with: $1.value) }
            return Row(
                method: route.method.rawValue, path: path, access: route.access,
                isForeign: path != route.template.text,
                body: route.method == .get || route.method == .delete ? nil : #"{"n":1}"#)
        }
    }

    private func answer(_ row: Row, by name: String?, _ gateway: TestGateway) throws -> HTTPClient.Answer {
        try HTTPClient(port: gateway.port).ask(
            row.method, row.path, row.body.map { Array($0.utf8) }, headers: name.map(Self.bearer) ?? [])
    }

    @Test(arguments: Who.allCases) func everyRoute_isGuardedAsTheTableSays(who: Who) throws {
        try withKeys { gateway, id in
            let begun = try gateway.client.post(
                "/v1/messages/retry", #"{"upstream":"picky"}"#,
                headers: OperationTests.asynchronously + Self.bearer("all"))
            let operation = try #require(begun.json["operation"].string, "\(begun.text)")
            for row in rows(id, operation: operation) {
                let scope: APIKey.Scope? = if case .scope(let scope) = row.access { scope } else { nil }
                let name: String? =
                    switch who {
                    case .absent: nil
                    case .stranger: "stranger"
                    case .expired: "old"
                    case .wrongScope: "not-\(scope?.rawValue ?? "read")"
                    case .wrongUpstream: "plain"
                    case .right: "only-\(scope?.rawValue ?? "read")"
                    }
                let found = try answer(row, by: name, gateway)
                let label: Comment = "\(row.method) \(row.path) by \(who): \(found.status) \(found.text)"
                switch who {
                case .absent, .stranger, .expired:
                    #expect((found.status == 401) == (row.access != .open), label)
                    guard row.access != .open else { continue }
                    found.problem(401, "unauthorized")
                    #expect(found.header("WWW-Authenticate")?.hasPrefix("Bearer") == true)
                case .wrongScope:
                    #expect((found.status == 403) == (scope != nil), label)
                    if let scope { #expect(found.json["detail"].string?.contains("scope \(scope.rawValue)") == true) }
                case .wrongUpstream:
                    guard row.isForeign, row.access != .open else {
                        #expect(![401, 403].contains(found.status), label)
                        continue
                    }
                    // A caller is not even told that another caller's message exists.
                    let isHidden = row.path.contains(id) || row.path.contains(operation)
                    found.problem(isHidden ? 404 : 403, isHidden ? "not-found" : "forbidden")
                case .right:
                    #expect(![401, 403].contains(found.status), label)
                    if row.path.contains(operation) { #expect(found.status == 200, label) }
                }
            }
        }
    }

    @Test func caller_needsNoKey_ifNoneIsConfigured() throws {
        try withKeys([]) { gateway, id in
            for row in rows(id) where row.path != "/v1/keys" {
                let status = try answer(row, by: nil, gateway).status
                #expect(status != 401 && status != 403)
            }
        }
    }

    @Test func stranger_learnsNothingOfPaths() throws {
        try withKeys { gateway, _ in
            for path in ["/", "/v1/none", "/v1/absent/event", "/v1/messages/zzz", "/openapi.yaml", "/metrics"] {
                try gateway.client.get(path).problem(401, "unauthorized")
            }
            #expect(try gateway.client.get("/livez").status == 200)
            #expect(try gateway.client.get("/readyz").status == 200)
            #expect(try gateway.client.ask("GET", "/v1/absent/event", headers: Self.bearer("all")).status == 404)
        }
    }

    @Test func refusal_saysWhetherAKeyWasThere() throws {
        try withKeys { gateway, _ in
            #expect(try gateway.client.get("/v1/upstreams").header("WWW-Authenticate") == "Bearer")
            let wrong = try gateway.client.ask("GET", "/v1/upstreams", headers: Self.bearer("absent"))
            #expect(wrong.header("WWW-Authenticate") == #"Bearer error="invalid_token""#)
        }
    }

    // MARK: Scopes

    @Test func dryRun_wantsToRead_notToWrite() throws {
        try withKeys { gateway, _ in
            let path = "/v1/picky/event?dryRun=true"
            #expect(try gateway.client.post(path, #"{"n":1}"#, headers: Self.bearer("only-read")).status == 200)
            try gateway.client.post(path, #"{"n":1}"#, headers: Self.bearer("only-write")).problem(403, "forbidden")
            let real = "/v1/picky/event?dryRun=false"
            try gateway.client.post(real, #"{"n":1}"#, headers: Self.bearer("only-read")).problem(403, "forbidden")
        }
    }

    @Test(arguments: [true, false]) func metrics_areOpenOnRequest(opens: Bool) throws {
        try withKeys(opensMetrics: opens) { gateway, _ in
            let status = try gateway.client.get("/metrics").status
            #expect(status == (opens ? 200 : 401))
        }
    }

    /// A page that has pointed its name at the gateway has no key.
    @Test(arguments: [
        ("localhost:1", String?.none, 200), ("evil.example", nil, 403), ("evil.example", "only-read", 200),
    ])
    func openMetrics_checkTheHost_withoutAKey(host: String, key: String?, status: Int) throws {
        try withKeys(opensMetrics: true) { gateway, _ in
            let line = key.map { "Authorization: Bearer key-\($0)\r\n" } ?? ""
            gateway.client.send("GET /metrics HTTP/1.1\r\nHost: \(host)\r\n\(line)\r\n")
            #expect(try gateway.client.answer().status == status)
            let forged = try HTTPClient(port: gateway.port)
            forged.send("GET /metrics HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer forged\r\n\r\n")
            #expect(try forged.answer().status == 403)
        }
    }

    /// They name upstreams and what is wrong with the disk. The status is for any probe.
    @Test(arguments: [
        ("127.0.0.1", String?.none, true), ("evil.example", nil, false), ("evil.example", "only-write", true),
    ])
    func reasonsOfReadiness_areForTheMachine_andForKeys(host: String, key: String?, isShown: Bool) throws {
        try withKeys { gateway, _ in
            gateway.context.isDraining.store(true, ordering: .releasing)
            let line = key.map { "Authorization: Bearer key-\($0)\r\n" } ?? ""
            gateway.client.send("GET /readyz HTTP/1.1\r\nHost: \(host)\r\n\(line)\r\n")
            let answer = try gateway.client.answer()
            #expect(answer.status == 503 && answer.json["status"].string == "unready")
            #expect(answer.json["reasons"].isThere == isShown, "\(answer.text)")
        }
    }

    /// Whatever name it asks for.
    @Test(arguments: [("127.0.0.1", true), ("::1", true), ("192.0.2.1", false), ("2001:db8::1", false)])
    func reasonsOfReadiness_areNotForAnotherMachine(address: String, areShown: Bool) throws {
        try withKeys { gateway, _ in
            var reader = RequestReader()
            var position = 0
            var found: RequestHead?
            Array("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8).withUnsafeBufferPointer { bytes in
                _ = reader.read(bytes, from: &position) { parsed in
                    found = RequestHead(parsed, peer: PeerAddress(text: address))
                    return .discard(limit: 0)
                }
            }
            let head = try #require(found)
            #expect(gateway.handler.explainsProbes(to: head, nil) == areShown)
        }
    }

    // MARK: Upstreams

    @Test func restrictedKey_seesOnlyItsOwn() throws {
        try withKeys { gateway, id in
            let own = Self.bearer("plain")
            let client = gateway.client
            let mine = try client.post("/v1/plain/thing", "{}", headers: own).json["id"].string ?? ""
            let listed = try client.ask("GET", "/v1/messages", headers: own).json["messages"].array
            #expect(listed.compactMap { $0["id"].string } == [mine])
            let upstreams = try client.ask("GET", "/v1/upstreams", headers: own).json["upstreams"].array
            #expect(upstreams.compactMap { $0["name"].string } == ["plain"])
            try client.ask("GET", "/v1/messages?upstream=picky", headers: own).problem(403, "forbidden")
            let unknown = try client.post("/v1/absent/event", "{}", headers: own)
            #expect(unknown.json["detail"].string?.contains("picky") == false)
            let metrics = try client.ask("GET", "/metrics", headers: own).text
            #expect(metrics.contains(#"upstream="plain""#) && !metrics.contains(#""picky""#))
            #expect(metrics.contains(#"postern_outbox_bytes{upstream="plain"} 2"# + "\n"), "none of another's bytes")
            #expect(try client.ask("GET", "/metrics", headers: Self.bearer("all")).text.contains(#""picky""#))
        }
    }

    /// The kinds of an upstream are its own, too.
    @Test func unknownKindOfAForeignUpstream_isForbidden() throws {
        try withKeys { gateway, _ in
            let foreign = try gateway.client.post("/v1/picky/nothing", "{}", headers: Self.bearer("plain"))
            foreign.problem(403, "forbidden")
            #expect(!foreign.text.contains("event"))
            let own = try gateway.client.post("/v1/plain/nothing", "{}", headers: Self.bearer("plain"))
            own.problem(404, "unknown-kind")
        }
    }

    /// The messages of an upstream that is disabled, or was removed, still belong to the keys that name it.
    @Test func messageOfADisabledUpstream_isSeenByItsKey_andByNoOther() throws {
        let folder = ScratchFolder()
        var setup = Setup()
        setup.folder = folder
        var id = ""
        try withPausedGateway(setup) { gateway in id = try gateway.accept("/v1/plain/thing", "{}") }
        setup.upstreams = [PickyUpstream("picky")]
        try withPausedGateway(setup) { gateway in
            let keys = ["plain", "picky"].map {
                Self.key($0, Set(APIKey.Scope.allCases), upstreams: [UpstreamName($0)!])
            }
            gateway.handler.replaceKeys(keys, opensMetrics: false)
            func status(_ method: String, _ path: String, _ name: String) throws -> Int {
                try gateway.client.ask(method, path, headers: Self.bearer(name)).status
            }
            #expect(try status("GET", "/v1/messages/\(id)", "picky") == 404)
            #expect(try status("DELETE", "/v1/messages/\(id)", "picky") == 404)
            #expect(try status("GET", "/v1/messages/\(id)", "plain") == 200)
            #expect(try status("DELETE", "/v1/messages/\(id)", "plain") == 200)
            let metrics = try gateway.client.ask("GET", "/metrics", headers: Self.bearer("picky")).text
            #expect(metrics.contains(#"upstream="picky""#) && !metrics.contains(#"upstream="plain""#))
        }
    }

    @Test func envelopeForAForeignUpstream_isForbidden_andStoresNothing() throws {
        try withKeys { gateway, _ in
            let body =
                #"[{"upstream":"plain","kind":"thing","payload":{}},{"upstream":"picky","kind":"event","payload":{"n":1}}]"#
            let answer = try gateway.client.post("/v1/messages", body, headers: Self.bearer("plain"))
            answer.problem(403, "forbidden")
            #expect(answer.json["detail"].string?.contains("picky") == true)
            #expect(gateway.queued == 1, "what was there before")
        }
    }

    @Test func retry_leavesForeignMessagesAlone() throws {
        try withKeys { gateway, id in
            let byIDs = try gateway.client.post(
                "/v1/messages/retry", #"{"ids":["\#(id)"]}"#, headers: Self.bearer("plain"))
            #expect(byIDs.json["retried"].int == 0)
            try gateway.client.post("/v1/messages/retry", #"{"upstream":"picky"}"#, headers: Self.bearer("plain"))
                .problem(403, "forbidden")
        }
    }

    // MARK: Limits

    @Test func limitedKey_isShownItsAllowance_andRefusedBeyondIt() throws {
        let limited = Self.key("slow", [.write], limits: .init(requestsPerSecond: 0.01, burst: 2))
        try withKeys([limited]) { gateway, _ in
            let first = try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: Self.bearer("slow"))
            #expect(first.status == 202)
            #expect(first.header("RateLimit-Policy") == #""requests";q=2;w=200"#)
            #expect(first.header("RateLimit")?.hasPrefix(#""requests";r=1;t="#) == true)
            let refused = try gateway.client.post("/v1/picky/event", "{", headers: Self.bearer("slow"))
            #expect(refused.status == 400 && refused.header("RateLimit") != nil)
            let third = try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: Self.bearer("slow"))
            third.problem(429, "rate-limited")
            #expect(Int(third.header("Retry-After") ?? "").map { (90...100).contains($0) } == true)
            #expect(third.header("RateLimit")?.contains("r=0") == true)
        }
    }

    /// These are not answered by the handler.
    @Test func refusalOfTheServer_saysTheAllowanceToo() throws {
        let limited = Self.key("slow", [.write], limits: .init(requestsPerSecond: 0.01, burst: 9))
        try withKeys([limited]) { gateway, _ in
            let large = String(repeating: " ", count: 70 << 10)
            let refused = try gateway.client.post("/v1/picky/event", large, headers: Self.bearer("slow"))
            refused.problem(413, "payload-too-large")
            #expect(refused.header("RateLimit")?.hasPrefix(#""requests";r=8;"#) == true)
            #expect(refused.headers.count { $0.name == "RateLimit-Policy" } == 1)
        }
    }

    @Test func messages_areLimitedToo_andThoseRefusedAreNotStored() throws {
        let limited = Self.key("slow", [.write], limits: .init(messagesPerSecond: 0.01, burst: 3))
        try withKeys([limited]) { gateway, _ in
            let before = gateway.queued
            let two = "[\(#"{"n":1},{"n":2}"#)]"
            #expect(try gateway.client.post("/v1/picky/event", two, headers: Self.bearer("slow")).status == 202)
            let refused = try gateway.client.post("/v1/picky/event", two, headers: Self.bearer("slow"))
            refused.problem(429, "rate-limited")
            #expect(gateway.queued == before + 2)
            // An invalid request does not count against the limit.
            #expect(try gateway.client.post("/v1/picky/event", "[{}]", headers: Self.bearer("slow")).status == 422)
            #expect(try gateway.client.post("/v1/picky/event", #"{"n":3}"#, headers: Self.bearer("slow")).status == 202)
        }
    }

    // MARK: Keys

    @Test func keys_areListedByName_neverByDigest() throws {
        try withKeys { gateway, _ in
            let answer = try gateway.client.ask("GET", "/v1/keys", headers: Self.bearer("all"))
            let listed = answer.json["keys"].array
            #expect(listed.compactMap { $0["name"].string } == Self.keys.map(\.name).sorted())
            let all = try #require(listed.first { $0["name"].string == "all" })
            #expect(all["scopes"].array.compactMap(\.string) == ["write", "read", "admin"])
            #expect(all["upstreams"].array.compactMap(\.string) == ["*"])
            #expect(all["lastUsedAt"].string != nil)
            let old = try #require(listed.first { $0["name"].string == "old" })
            #expect(old["expiresAt"].string == "1970-01-01T00:00:01.000Z" && old["lastUsedAt"].string == nil)
            for key in Self.keys { #expect(!answer.text.contains(key.sha256.hexadecimal)) }
        }
    }

    @Test func keyOfSomeUpstreams_learnsOfNoOthersFromTheList() throws {
        let both = Self.key("both", [.write], upstreams: [UpstreamName("plain")!, UpstreamName("picky")!])
        let foreign = Self.key("foreign", [.write], upstreams: [UpstreamName("picky")!])
        try withKeys(Self.keys + [both, foreign]) { gateway, _ in
            let answer = try gateway.client.ask("GET", "/v1/keys", headers: Self.bearer("plain"))
            let listed = answer.json["keys"].array
            #expect(listed.compactMap { $0["name"].string } == (Self.keys.map(\.name) + ["both"]).sorted())
            let seen = try #require(listed.first { $0["name"].string == "both" })
            #expect(seen["upstreams"].array.compactMap(\.string) == ["plain"])
            #expect(!answer.text.contains("picky"))
        }
    }

    @Test func replacedKeys_areInForceAtOnce_onOpenConnectionsToo() throws {
        try withKeys { gateway, _ in
            func status(_ name: String) throws -> Int {
                try gateway.client.ask("GET", "/v1/upstreams", headers: Self.bearer(name)).status
            }
            let before = try status("all")
            gateway.handler.replaceKeys([Self.key("new", [.read])], opensMetrics: false)
            let (old, new) = (try status("all"), try status("new"))
            #expect(before == 200 && old == 401 && new == 200)
        }
    }

    @Test func replacedKeys_endTheStreamsOfThoseRemoved_atOnce() throws {
        try withKeys { gateway, _ in
            let listening = try ["all", "only-read"].map { name in
                let client = try HTTPClient(port: gateway.port)
                client.sendRequest("GET", "/v1/stream", headers: Self.bearer(name))
                return client
            }
            #expect(eventually { gateway.context.stream.listenerCount == 2 })
            // The next heartbeat, which would end them too, does not come.
            gateway.context.timer.stop()
            gateway.handler.replaceKeys(Self.keys.filter { $0.name != "all" }, opensMetrics: false)
            #expect(eventually { gateway.context.stream.listenerCount == 1 })
            withExtendedLifetime(listening) {}
        }
    }
}
