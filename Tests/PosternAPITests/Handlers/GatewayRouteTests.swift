import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternAPI
@testable import PosternMetrics

/// What the console shows of the gateway, of the books of its upstreams, and of their history.
@Suite(.timeLimit(.minutes(10))) struct GatewayRouteTests {
    private static func key(
        _ name: String, _ scopes: Set<APIKey.Scope> = [.read], upstreams: Set<UpstreamName>? = nil
    ) -> APIKey {
        APIKey(name: name, sha256: KeyText.digest(of: "key-\(name)"), scopes: scopes, upstreams: upstreams)
    }

    private static func bearer(_ name: String) -> [(String, String)] { [("Authorization", "Bearer key-\(name)")] }

    private func get(_ path: String, by name: String? = nil, _ gateway: TestGateway) throws -> JSON {
        try gateway.client.ask("GET", path, headers: name.map(Self.bearer) ?? []).json
    }

    // MARK: The gateway

    @Test func gateway_saysWhatItIs() throws {
        try withGateway { gateway in
            _ = try gateway.accept()
            let found = try get("/v1/gateway", gateway)
            #expect(
                found.keys == [
                    "version", "instance", "startedAt", "ready", "reasons", "notes", "simulated", "store", "commit",
                    "memoryBytes", "key",
                ])
            #expect(found["version"].string == PosternVersion.current)
            #expect(found["startedAt"].string == "\(gateway.context.startedAt)")
            #expect(found["ready"].bool == true && found["simulated"].bool == false)
            #expect(found["reasons"].array.isEmpty && found["notes"].array.isEmpty)
            for figure in ["bytes", "walBytes", "freeBytes"] {
                #expect(found["store"][figure].int.map { $0 > 0 } == true, "\(figure)")
            }
            let (p50, p99) = (found["commit"]["p50Ms"].double, found["commit"]["p99Ms"].double)
            #expect(p50.map { $0 > 0 } == true && p99.map { $0 >= p50 ?? 0 } == true)
            #expect(found["memoryBytes"].int.map { $0 > 1 << 20 } == true)
            #expect(!found["key"].isThere)
            let again = try get("/v1/gateway", gateway)["instance"].string
            #expect(again == found["instance"].string && again?.isEmpty == false)
        }
    }

    @Test func gateway_showsTheCallersKey() throws {
        try withGateway { gateway in
            let plain = UpstreamName("plain")!
            gateway.handler.replaceKeys(
                [Self.key("all", [.read, .admin]), Self.key("one", upstreams: [plain])], opensMetrics: false)
            let all = try get("/v1/gateway", by: "all", gateway)["key"]
            #expect(all["name"].string == "all" && all["scopes"].strings == ["read", "admin"])
            #expect(all["upstreams"].strings == ["*"])
            #expect(try get("/v1/gateway", by: "one", gateway)["key"]["upstreams"].strings == ["plain"])
        }
    }

    @Test func gateway_answersAlsoWhenItIsNotReady_andNamesNoForeignUpstream() throws {
        var setup = Setup()
        setup.stalled = ["picky", "writer"]
        try withPausedGateway(setup) { gateway in
            gateway.handler.replaceKeys(
                [Self.key("all"), Self.key("one", upstreams: [UpstreamName("plain")!])], opensMetrics: false)
            let all = try gateway.client.ask("GET", "/v1/gateway", headers: Self.bearer("all"))
            #expect(all.status == 200 && all.json["ready"].bool == false)
            #expect(all.json["reasons"].strings == ["worker picky is stalled", "worker writer is stalled"])
            #expect(
                try get("/v1/gateway", by: "one", gateway)["reasons"].strings
                    == ["worker of another upstream is stalled", "worker writer is stalled"])
        }
    }

    @Test func gateway_notesDisabledUpstreams_toThoseWhoMayUseThem() throws {
        var setup = Setup()
        setup.folder = ScratchFolder()
        try withPausedGateway(setup) { gateway in _ = try gateway.accept("/v1/plain/thing", "{}") }
        setup.upstreams = [PickyUpstream("picky")]
        try withPausedGateway(setup) { gateway in
            gateway.handler.replaceKeys(
                [Self.key("all"), Self.key("one", upstreams: [UpstreamName("picky")!])], opensMetrics: false)
            #expect(
                try get("/v1/gateway", by: "all", gateway)["notes"].strings
                    == ["upstream plain is disabled or not configured; messages wait"])
            #expect(try get("/v1/gateway", by: "one", gateway)["notes"].array.isEmpty)
            // It has books, and a history without requests.
            gateway.context.sampleHistory()
            let found = try get("/v1/upstreams?include=history", by: "all", gateway)
            #expect(found["upstreams"].array.map { $0["counts"]["queued"].int } == [0, 1])
            #expect(found["history"]["upstreams"].keys == ["picky", "plain"])
            let own = try get("/v1/upstreams?include=history", by: "one", gateway)
            #expect(own["history"]["upstreams"].keys == ["picky"])
        }
    }

    // MARK: The books

    @Test func counts_balance_andKeptOnesAreThoseThatAreStored() throws {
        var setup = Setup()
        setup.results = [.status(200), .status(422)]
        try withGateway(setup) { gateway in
            try gateway.waitForState("delivered", of: gateway.accept())
            try gateway.waitForState("failed", of: gateway.accept())
            #expect(try gateway.client.post("/v1/upstreams/picky/pause").status == 202)
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let (waiting, cancelled) = (try gateway.accept(), try gateway.accept())
            #expect(try gateway.client.ask("DELETE", "/v1/messages/\(cancelled)").status == 200)
            #expect(try gateway.message(waiting)["state"].string == "queued")
            let counts = try gateway.upstream()["counts"]
            #expect(counts.keys == ["accepted", "queued", "delivered", "failed", "cancelled", "dropped", "expired"])
            #expect(MessageState.allCases.map { counts[$0.name].int } == [1, 1, 1, 1, 0, 0])
            #expect(counts["accepted"].int == 4)
            let kept = try gateway.upstream()["kept"]
            #expect(kept.keys == ["delivered", "failed", "cancelled", "dropped", "expired"])
            #expect(MessageState.settled.map { kept[$0.name].int } == [1, 1, 1, 0, 0])
            let listed = try get("/v1/upstreams", gateway)["upstreams"]
            #expect(listed[0]["counts"]["accepted"].int == 4 && listed[1]["counts"]["accepted"].int == 0)
        }
    }

    @Test func pause_saysWhoseItIs_untilItEnds() throws {
        var setup = Setup()
        let time = ManualTime()
        setup.time = time
        setup.folder = ScratchFolder()
        try withGateway(setup) { gateway in
            #expect(try !gateway.upstream()["pausedBy"].isThere)
            gateway.handler.replaceKeys(
                [Self.key("ops", [.read, .admin]), Self.key("eve", [.admin])], opensMetrics: false)
            let now = time.now
            for name in ["ops", "eve"] {
                let paused = try gateway.client.post("/v1/upstreams/picky/pause", headers: Self.bearer(name))
                #expect(paused.status == 202)
                try #require(
                    try eventually { try get("/v1/upstreams/picky", by: "ops", gateway)["health"].string == "paused" })
                time.advance(by: .seconds(5))
            }
            let found = try get("/v1/upstreams/picky", by: "ops", gateway)["pausedBy"]
            #expect(found["key"].string == "ops" && found["at"].string == "\(now)")
        }
        try withGateway(setup) { gateway in
            let kept = try gateway.upstream()["pausedBy"]
            #expect(kept["key"].string == "ops")
            #expect(try gateway.client.post("/v1/upstreams/picky/resume").status == 202)
            #expect(try eventually { try !gateway.upstream()["pausedBy"].isThere })
            // Without keys, none is named.
            #expect(try gateway.client.post("/v1/upstreams/picky/pause").status == 202)
            #expect(try eventually { try gateway.upstream()["pausedBy"]["at"].isThere })
            #expect(try !gateway.upstream()["pausedBy"]["key"].isThere)
        }
    }

    // MARK: History

    @Test func history_hasAStepForTenSeconds_andOnlyThoseSince() throws {
        var setup = Setup()
        let time = ManualTime()
        setup.time = time
        setup.results = [.status(200), .status(422)]
        try withGateway(setup) { gateway in
            let start = time.now
            for state in ["delivered", "failed"] { try gateway.waitForState(state, of: gateway.accept()) }
            // The worker and the writer count after the commit.
            let metrics = gateway.context.metrics
            try #require(
                eventually {
                    metrics.deliveryWait("picky").count == 1 && metrics.settled("picky", "failed").value == 1
                })
            time.advance(by: .seconds(10))
            gateway.context.sampleHistory()
            #expect(try gateway.client.post("/v1/upstreams/picky/pause").status == 202)
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            _ = try gateway.accept()
            time.advance(by: .seconds(10))
            gateway.context.sampleHistory()
            let all = try get("/v1/history", gateway)
            #expect(all["step"].int == 10 && all["from"].string == "\(start)")
            #expect(all["to"].string == "\(start + .seconds(20))")
            let picky = all["upstreams"]["picky"]
            #expect(picky.keys == Set(UpstreamHistory.Series.allCases.map(\.rawValue)))
            func values(_ name: String) -> [Int?] { picky[name].array.map(\.int) }
            #expect(values("accepted") == [2, 1] && values("delivered") == [1, 0] && values("failed") == [1, 0])
            #expect(values("queued") == [0, 1] && values("oldestSeconds") == [0, 10])
            #expect(values("requests") == [2, 0] && values("requestsFailed") == [1, 0])
            #expect(picky["waitP99Ms"].array.map(\.isThere) == [true, false])
            #expect(all["upstreams"]["plain"]["accepted"].array.map(\.int) == [0, 0])
            let later = try get("/v1/history?since=\(start + .seconds(10))", gateway)
            #expect(later["upstreams"]["picky"]["accepted"].array.map(\.int) == [1])
            #expect(later["from"].string == "\(start + .seconds(10))")
            let since = "?include=history&since=\(start + .seconds(20))"
            #expect(try get("/v1/upstreams\(since)", gateway)["history"]["upstreams"]["picky"]["queued"].array.isEmpty)
            let one = try get("/v1/upstreams/picky?include=history", gateway)["history"]
            #expect(one["upstreams"].keys == ["picky"] && one["to"].string == all["to"].string)
            #expect(try !get("/v1/upstreams/picky", gateway)["history"].isThere)
        }
    }

    @Test func history_showsAKeyItsOwnUpstreams() throws {
        try withPausedGateway { gateway in
            gateway.handler.replaceKeys([Self.key("one", upstreams: [UpstreamName("plain")!])], opensMetrics: false)
            for path in ["/v1/history", "/v1/upstreams?include=history"] {
                let answer = try gateway.client.ask("GET", path, headers: Self.bearer("one"))
                #expect(answer.status == 200 && !answer.text.contains("picky"), "\(answer.text)")
                #expect(answer.text.contains(#""plain":{"accepted""#))
            }
        }
    }

    @Test(arguments: [
        "/v1/history?since=yesterday", "/v1/upstreams?include=payload", "/v1/upstreams/picky?since=1",
        "/v1/upstreams?include=history&include=history", "/v1/upstreams/picky/batches?limit=0",
        "/v1/upstreams/picky/batches?cursor=x", "/v1/gateway?include=history",
    ])
    func senselessQuery_isRefused(path: String) throws {
        try withPausedGateway { gateway in try gateway.client.get(path).problem(400, "bad-request") }
    }

    // MARK: Requests

    @Test func batches_areListedNewestFirst_inPages() throws {
        var setup = Setup()
        setup.results = [.status(200), .status(422), .status(200)]
        try withGateway(setup) { gateway in
            for state in ["delivered", "failed", "delivered"] {
                try gateway.waitForState(state, of: gateway.accept())
            }
            let first = try get("/v1/upstreams/picky/batches?limit=2", gateway)
            let shown = first["batches"].array
            #expect(shown.map { $0["outcome"].string } == ["delivered", "rejected"])
            #expect(shown.map { $0["status"].int } == [200, 422])
            // The members of the receipt, without the ids.
            let batch = try #require(shown[1]["batch"].string)
            let receipt = try get("/v1/upstreams/picky/batches/\(batch)", gateway)
            #expect(shown[1].keys == receipt.keys.subtracting(["ids"]))
            for member in shown[1].keys { #expect(shown[1][member].string == receipt[member].string) }
            let next = try #require(first["next"].string)
            let rest = try get("/v1/upstreams/picky/batches?limit=2&cursor=\(next)", gateway)
            #expect(rest["batches"].array.map { $0["status"].int } == [200] && !rest["next"].isThere)
            #expect(try get("/v1/upstreams/plain/batches", gateway)["batches"].array.isEmpty)
        }
    }
}
