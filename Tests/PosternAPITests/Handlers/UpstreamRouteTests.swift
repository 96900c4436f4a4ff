import Glibc
import PosternCompression
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI
@testable import PosternStore

/// What the resources of all types have in common.
@Suite struct ResourceTests {
    /// Returns what it received, synchronously or asynchronously.
    private static let echo: @Sendable (UpstreamRouteRequest) -> UpstreamRouteResponse = { request in
        .json(String(decoding: request.body, as: UTF8.self), status: 203)
    }

    private static let setup: Setup = {
        let resources = [
            UpstreamRoute(.post, "echo/at-once", .perform { request, _ in echo(request) }),
            UpstreamRoute(.post, "echo/of-anything", body: .any, .perform { request, _ in echo(request) }),
            UpstreamRoute(.post, "echo/query", query: nil, .perform { request, _ in .json(request.queryText) }),
            UpstreamRoute(.put, "echo/read", .read { request, _ in echo(request) }),
            UpstreamRoute(.post, "echo/changed", .change { request, _ in UpstreamRouteChange(answer: echo(request)) }),
            UpstreamRoute(.get, "thread", .perform { _, _ in .json(await nameOfThread()) }),
            sending("aborted", isAbortable: true), sending("finished", isAbortable: false),
            UpstreamRoute(
                .get, "keeps",
                .perform { _, tools in .json("\((try? await tools.read { $0.credential(of: "u") != nil }) ?? true)") }),
        ]
        var setup = Setup()
        setup.upstreams = [PlainUpstream("plain", routes: resources)]
        return setup
    }()

    private static func nameOfThread() async -> String {
        guard let file = fopen("/proc/thread-self/comm", "r") else { return "" }
        defer { fclose(file) }
        var name = [UInt8](repeating: 0, count: 32)
        let count = fread(&name, 1, name.count, file)
        return String(decoding: name.prefix(count), as: UTF8.self)
    }

    private static func sending(_ name: String, isAbortable: Bool) -> UpstreamRoute {
        UpstreamRoute(
            .post, "sent/\(name)",
            .perform { _, tools in
                _ = await tools.send(
                    UpstreamRequest(url: "http://plain.test/"), timeout: .seconds(60), isAbortable: isAbortable)
                return .empty()
            })
    }

    /// What is sent for a request belongs to its trace.
    @Test(arguments: [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true), ("not-a-trace", false), (nil, false),
    ])
    func callAtOnce_isSentWithTheTraceOfTheRequest(header: String?, isSent: Bool) throws {
        var setup = Self.setup
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let headers = header.map { [("traceparent", $0)] } ?? []
            #expect(try gateway.client.post("/v1/plain/sent/finished", "", headers: headers).status == 204)
            let sent = try #require(gateway.transport.requests.first).headers.filter { $0.name == "traceparent" }
            #expect(sent.map(\.value) == (isSent ? [header] : []))
        }
    }

    private static let ways = [("POST", "at-once"), ("PUT", "read"), ("POST", "changed")]

    @Test(arguments: ways) func gzippedBody_comesUnpacked(method: String, way: String) throws {
        try withGateway(Self.setup) { gateway in
            let answer = try gateway.client.ask(
                method, "/v1/plain/echo/\(way)", Gzip.compress(Array(#"{"n":1}"#.utf8)),
                headers: [("Content-Encoding", "gzip")])
            #expect(answer.status == 203)
            #expect(answer.text == #"{"n":1}"# + "\n")
        }
    }

    @Test(arguments: ways) func spoiledOrHugeGzip_isRefused(method: String, way: String) throws {
        try withGateway(Self.setup) { gateway in
            try gateway.client.ask(
                method, "/v1/plain/echo/\(way)", Array("no gzip".utf8), headers: [("Content-Encoding", "gzip")]
            ).problem(400, "bad-request")
            let bomb = Gzip.compress([UInt8](repeating: 32, count: 8 << 20))
            try gateway.client.ask(method, "/v1/plain/echo/\(way)", bomb, headers: [("Content-Encoding", "gzip")])
                .problem(413, "payload-too-large")
            try gateway.client.ask(
                method, "/v1/plain/echo/\(way)", Array("{}".utf8), headers: [("Content-Encoding", "br")]
            ).problem(415, "unsupported-media-type")
        }
    }

    @Test(arguments: ways) func bodyThatIsNotJSON_isRefused_byItsMediaType(method: String, way: String) throws {
        try withGateway(Self.setup) { gateway in
            let type = [("Content-Type", "application/x-www-form-urlencoded")]
            let answer = try gateway.client.ask(method, "/v1/plain/echo/\(way)", Array("n=1".utf8), headers: type)
            answer.problem(415, "unsupported-media-type")
            #expect(answer.header("Accept") == "application/json")
            #expect(try gateway.client.ask(method, "/v1/plain/echo/\(way)", [], headers: type).status == 203)
        }
    }

    @Test func resourceThatTakesAnything_getsIt() throws {
        try withGateway(Self.setup) { gateway in
            let answer = try gateway.client.ask(
                "POST", "/v1/plain/echo/of-anything", Array("n=1".utf8),
                headers: [("Content-Type", "application/x-www-form-urlencoded")])
            #expect(answer.text == "n=1\n")
        }
    }

    @Test func resourceThatJudgesItsQuery_getsItAsItWasSent() throws {
        try withGateway(Self.setup) { gateway in
            let query = "b=%41&a=+&b=2&c"
            #expect(try gateway.client.post("/v1/plain/echo/query?\(query)").text == query + "\n")
            #expect(try gateway.client.post("/v1/plain/echo/query").text == "\n")
            try gateway.client.post("/v1/plain/echo/at-once?\(query)").problem(400, "bad-request")
        }
    }

    @Test func bodyOfAResource_mayBeAsLargeAsAnyOther() throws {
        try withGateway(Self.setup) { gateway in
            let limit = Self.setup.limits.maxBodyBytes
            let largest = "\"" + String(repeating: "x", count: limit - 2) + "\""
            #expect(try gateway.client.post("/v1/plain/echo/at-once", largest).status == 203)
            try gateway.client.post("/v1/plain/echo/at-once", largest + " ").problem(413, "payload-too-large")
        }
    }

    @Test(arguments: ["shelf=%zz", "shelf=%f", "shelf=%ff", "shelf=a&shelf=b"])
    func queryThatCanBeReadInTwoWays_isRefused(query: String) throws {
        var setup = Setup()
        setup.upstreams = [
            PlainUpstream(
                "plain", routes: [UpstreamRoute(.get, "books", query: ["shelf"], .read { _, _ in .empty() })])
        ]
        try withGateway(setup) { gateway in
            try gateway.client.get("/v1/plain/books?\(query)").problem(400, "bad-request")
            let answer = try gateway.client.get("/v1/plain/books?shelf=%C3%A9%2Fa")
            #expect(answer.status == 204)
        }
    }

    @Test func messageInASession_isRefused_whereThereAreSessions() throws {
        var setup = Setup()
        setup.upstreams = [PlainUpstream("plain"), PlainUpstream("personal", hasSessions: true)]
        let session = [("Postern-Session", "S1")]
        try withPausedGateway(setup) { gateway in
            try gateway.client.post("/v1/personal/thing", "{}", headers: session).problem(422, "invalid-payload")
            try gateway.client.post(
                "/v1/messages", #"{"upstream":"personal","kind":"thing","payload":{}}"#, headers: session
            ).problem(422, "invalid-payload")
            #expect(gateway.queued == 0)
            let plain = try gateway.client.post("/v1/plain/thing", "{}", headers: session)
            let personal = try gateway.client.post("/v1/personal/thing", "{}")
            #expect([plain.status, personal.status] == [202, 202])
        }
    }

    @Test(arguments: [
        (StoreError.full(detail: "as the test demands"), 507, "disk-full"),
        (StoreError.failed(detail: "as the test demands"), 503, "store-failed"),
    ])
    func storeError_hasAProblemOfItsOwn(error: StoreError, status: Int, slug: String) {
        let problem = Problem(error)
        #expect((problem.status, problem.slug.rawValue) == (status, slug))
        #expect(problem.headers.contains { $0.name == "Retry-After" && $0.value == "30" })
    }

    /// Clients return at different times, not all at once.
    @Test(arguments: [
        StoreError.unavailable(detail: "as the test demands"), .ownershipLost,
        .unresolved(detail: "as the test demands"),
    ])
    func unavailableStore_isAnswered503_withATimeThatVaries(error: StoreError) {
        let problems = (0..<100).map { _ in Problem(error) }
        #expect(Set(problems.map(\.slug)) == [.storeUnavailable] && Set(problems.map(\.status)) == [503])
        let times = problems.compactMap { $0.headers.first { $0.name == "Retry-After" }.flatMap { Int($0.value) } }
        #expect(times.count == 100 && times.allSatisfy { (1...5).contains($0) } && Set(times).count > 1)
    }

    @Test func readOfAStore_isAnswered503_onlyIfAnotherReadMaySucceedSoon() {
        #expect(Problem(reading: .unavailable(detail: "as the test demands")).slug == .storeUnavailable)
        #expect(Problem(reading: .ownershipLost).slug == .storeUnavailable)
        #expect(Problem(reading: .closed).slug == .shuttingDown)
        #expect(Problem(reading: .failed(detail: "as the test demands")).status == 500)
    }

    /// What the route decided on a state that could not be read is void.
    @Test func changeThatTheStoreRefuses_isAnsweredLikeOtherWrites() throws {
        var setup = Setup()
        let change = UpstreamRoute(
            .put, "shelf",
            .change { _, state in UpstreamRouteChange(answer: .json("\(state.value(of: "a") == nil)")) })
        setup.upstreams = [PlainUpstream("plain", routes: [change])]
        try withPausedGateway(setup) { gateway in
            try gateway.outbox.writer.changeNow { _ = try $0.sql.run("ALTER TABLE state RENAME TO hidden") }
            let answer = try gateway.client.ask("PUT", "/v1/plain/shelf", Array("{}".utf8))
            answer.problem(503, "store-failed")
            #expect(answer.header("Retry-After") == "30")
        }
    }

    @Test func bodyThatARouteCannotParse_isRefusedWithItsOffset() throws {
        var setup = Setup()
        let fault = "duplicate member name at byte 7"
        let route = UpstreamRoute(.post, "shelf", .read { _, _ in .invalidJSON(fault, offset: 7) })
        setup.upstreams = [PlainUpstream("plain", routes: [route])]
        try withPausedGateway(setup) { gateway in
            let answer = try gateway.client.post("/v1/plain/shelf", #"{"n":1,"n":2}"#)
            answer.problem(400, "invalid-json")
            #expect(answer.json["offset"].int == 7)
            #expect(answer.json["detail"].string == "The body is not acceptable JSON: \(fault).")
        }
    }

    /// For example a cached response: no other thread has to be woken for it.
    @Test func answerThatNeedsNoWaiting_isMadeOnTheConnectionsThread() throws {
        try withGateway(Self.setup) { gateway in
            let name = try gateway.client.get("/v1/plain/thread").text
            #expect(name.hasPrefix("postern-http-"), "\(name)")
        }
    }

    /// Its task is cancelled, which aborts what can be aborted; the request is counted as 499.
    @Test func callerThatHangsUp_endsItsCall() throws {
        try withGateway(Self.setup) { gateway in
            for (path, isAbortable) in [("aborted", true), ("finished", false)] {
                do {
                    let client = try HTTPClient(port: gateway.port)
                    client.sendRequest("POST", "/v1/plain/sent/\(path)", [], headers: [])
                    try gateway.waitForOpenRequest()
                }
                #expect(eventually { gateway.server.runningRequests == 0 })
                if isAbortable {
                    #expect(eventually { gateway.transport.openRequests.isEmpty })
                } else {
                    #expect(gateway.transport.openRequests.count == 1, "it was cut off")
                    gateway.transport.answer(.status(200))
                }
                let series = #"postern_http_requests_total{route="/v1/{upstream}/sent/\#(path)",status="499"}"#
                #expect(try eventually { try gateway.sample(series) == 1 })
            }
        }
    }

    @Test func resourceThatTakesItsTime_mayReadTheState() throws {
        try withGateway(Self.setup) { gateway in
            let answer = try gateway.client.get("/v1/plain/keeps")
            #expect(answer.text == "false\n")
        }
    }

    @Test func replacedUpstream_hasItsNewKindsAndRoutes_andNoOldOnes() throws {
        func upstream(_ word: String) -> PlainUpstream {
            PlainUpstream(
                "plain", kinds: [Kind(word)],
                routes: [UpstreamRoute(.get, word, .read { _, _ in .json(#""\#(word)""#) })])
        }
        var setup = Setup()
        setup.upstreams = [upstream("old")]
        try withPausedGateway(setup) { gateway in
            #expect(try gateway.client.post("/v1/plain/old", "{}").status == 202)
            try gateway.outbox.replace(upstream("new"), of: gateway.workers[0].queue.target)
            gateway.handler.refreshUpstreams()
            try HTTPClient(port: gateway.port).post("/v1/plain/old", "{}").problem(404, "unknown-kind")
            try gateway.client.get("/v1/plain/old").problem(404, "unknown-kind")
            #expect(try gateway.client.post("/v1/plain/new", "{}").status == 202)
            #expect(try gateway.client.get("/v1/plain/new").text == #""new""# + "\n")
            let envelope = #"{"upstream":"plain","kind":"new","payload":{}}"#
            #expect(try gateway.client.post("/v1/messages", envelope).status == 202)
            #expect(try gateway.upstream("plain")["kinds"][0].string == "new")
        }
    }
}
