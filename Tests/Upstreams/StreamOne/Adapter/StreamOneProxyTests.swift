import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// Calls that are answered at once (the specification's sections 7.4 to 9).
@Suite struct StreamOneProxyTests {
    private let harness = StreamOneHarness()
    private var transport: ScriptedTransport { harness.transport }
    private let kept = StreamOneSamples.answer(cacheable: true, body: "[1]")

    private func upstream(_ settings: [String: SettingValue] = [:]) throws -> StreamOneUpstream {
        try StreamOneSamples.upstream(settings)
    }

    // MARK: Sending and showing

    @Test func call_isSentSigned_andItsAnswerPassedOn() throws {
        let text = #" {"body": {"x":1e400,"y":"\/"}, "header" : {"status":0,"statusmessage":"OK","new":[]}} "#
        transport.expect(.status(200, text))
        let reply = try upstream().ask(
            .post, "proxy/item/view", query: ["accounts": "A1,A2", "timezone": "Europe/Amsterdam"],
            body: #"{"limit":25,"archived":false}"#, harness)
        let shown = try #require(reply.json)
        #expect(shown.text == text)
        #expect(shown.status == 200)
        #expect(shown.headers == ["X-Cache": "miss"])
        let call = try #require(harness.calls.first)
        #expect(call.path == "api/item/view")
        #expect(call.parameters["account"] == "A1,A2")
        #expect(call.parameters["timezone"] == "Europe/Amsterdam")
        #expect(call.parameters["timestamp"] == "1450000000")
        #expect(call.parameters["signature"]?.count == 40)
        #expect(call.arguments == ["limit": "25", "archived": "0"])
    }

    @Test(arguments: Status.all.map(\.number) + [9999])
    func refusal_isPassedOn_asItsSDKsExpect(status: Int) throws {
        for action in ["view", "edit"] {
            transport.answerAll { _ in .status(200, StreamOneSamples.answer(status)) }
            let upstream = try upstream()
            let shown = try #require(try upstream.ask(.post, "proxy/item/\(action)", harness).json)
            #expect(shown.status == 200)
            #expect(shown.text == StreamOneSamples.answer(status))
        }
    }

    @Test(
        arguments: [
            (["account": "A1"], "A1", nil), (["accounts": "A1"], "A1", nil), (["accounts": ""], nil, nil),
            (["customer": "C1"], nil, "C1"), ([:], "D1", nil), (["account": ""], "D1", nil),
            (["customer": ""], "D1", nil),
        ] as [([String: String], String?, String?)])
    func scope_isTheQuerys_orTheDefault(query: [String: String], account: String?, customer: String?) throws {
        transport.expect(.status(200, StreamOneSamples.answer()))
        try upstream(["defaultAccountId": .text("D1")]).ask(.post, "proxy/item/view", query: query, harness)
        let parameters = try #require(harness.calls.first).parameters
        #expect(parameters["account"] == account)
        #expect(parameters["customer"] == customer)
    }

    @Test func badRequests_areRefused_withoutAsking() throws {
        let upstream = try upstream()
        let bad: [(path: String, query: [String: String], body: String, status: Int, slug: String)] = [
            ("proxy/Item/view", [:], "", 404, "not-found"), ("proxy/item/vi-ew", [:], "", 404, "not-found"),
            ("proxy/item/view", ["account": "a,b"], "", 400, "bad-request"),
            ("proxy/item/view", ["account": "a", "accounts": "b"], "", 400, "bad-request"),
            ("proxy/item/view", ["account": "a", "customer": "b"], "", 400, "bad-request"),
            ("proxy/item/view", [:], "{", 400, "invalid-json"), ("proxy/item/view", [:], "[]", 422, "invalid-payload"),
            ("proxy/item/view", [:], #"{"a":{}}"#, 422, "invalid-payload"),
        ]
        for (path, query, body, status, slug) in bad {
            let problem = try #require(
                try upstream.ask(.post, path, query: query, body: body, harness).problem, "\(path) \(body)")
            #expect(problem.status == status && problem.slug == slug, "\(path) \(body)")
        }
        let comma = try upstream.ask(.post, "proxy/item/view", body: #"{"a":1,}"#, harness).problem
        #expect(comma?.detail == "a comma after the last element at byte 7")
        #expect(try upstream.ask(.post, "proxy/item/view", session: "none", harness).problem?.slug == "unknown-session")
        let user = try self.upstream(["authenticationType": .text("user")])
        #expect(try user.ask(.post, "proxy/item/view", session: "none", harness).problem?.slug == "conflict")
        #expect(transport.requests.isEmpty)
    }

    // MARK: Trouble

    @Test(arguments: [
        (TransferResult.refusedConnection, 502), (.reset, 502), (.status(503), 502), (.status(404, "<html>"), 502),
        (.status(200, "<html>"), 502), (.status(200), 502), (.status(301), 502),
        (.failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "late")), 504),
    ])
    func trouble_isAProblem_afterQuickTriesOfAReadAndOneOfAWrite(result: TransferResult, status: Int) throws {
        transport.answerAll { _ in result }
        let upstream = try upstream()
        #expect(try upstream.ask(.post, "proxy/item/view", harness).problem?.status == status)
        #expect(transport.requests.count == (status == 504 ? 1 : 3))
        #expect(try upstream.ask(.post, "proxy/item/edit", harness).problem?.status == status)
        #expect(transport.requests.count == (status == 504 ? 2 : 4), "a write is not repeated")
    }

    @Test func callThatLacksAThread_isRefusedForNow_andNothingWasSent() throws {
        transport.answerAll { _ in
            .failure(TransferFailure(.lackedResources, mayHaveArrived: false, detail: "cannot start the thread"))
        }
        let upstream = try upstream()
        let login = #"{"username":"jane","password":"a","userip":"203.0.113.7"}"#
        for (path, body) in [("proxy/item/view", "{}"), ("proxy/item/edit", "{}"), ("sessions", login)] {
            let reply = try upstream.ask(.post, path, body: body, harness)
            let problem = UpstreamRouteResponse.problem(
                slug: .overloaded, status: 503, detail: "Nothing was sent to the platform: cannot start the thread.")
            #expect(reply.answer == .later(problem, after: .seconds(5)))
        }
        #expect(transport.requests.count == 3, "the lack does not end within a moment")
        #expect(try upstream.call("item/edit", harness).status == 8)
    }

    @Test func deadline_isTheCallers() throws {
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        let upstream = try upstream()
        for (prefer, seconds) in [("wait=7", 7), ("return=minimal, wait=61", 60), ("", 30), ("wait=x", 30)] {
            let headers = prefer.isEmpty ? [] : [(name: "prefer", value: prefer)]
            try upstream.ask(.post, "proxy/item/edit", headers: headers, harness)
            #expect(harness.timeouts.withLock { $0.last } == .seconds(seconds))
        }
    }

    /// Tries of a read share the caller's time.
    @Test func repeatedRead_hasWhatIsLeftOfTheTime() throws {
        let upstream = try upstream()
        let reply = try upstream.ask(.post, "proxy/item/view", headers: [("Prefer", "wait=5")], harness)
        harness.clock.advance(by: .seconds(6))
        transport.answer(.reset)
        #expect(reply.problem?.status == 504)
        #expect(transport.requests.count == 1)
    }

    @Test func callWithAWrongTimestamp_isSignedAgainOnce() throws {
        let upstream = try upstream()
        for action in ["view", "edit"] {
            transport.expect(.status(200, StreamOneSamples.answer(2)), .status(200, StreamOneSamples.answer(0)))
            #expect(try upstream.ask(.post, "proxy/item/\(action)", harness).json?.text == StreamOneSamples.answer(0))
            transport.expect(.status(200, StreamOneSamples.answer(2)), .status(200, StreamOneSamples.answer(2)))
            #expect(try upstream.ask(.post, "proxy/item/\(action)", harness).json?.text == StreamOneSamples.answer(2))
        }
        #expect(transport.requests.count == 8)
    }

    /// Assumption A2. `now` is 09:46:40.
    @Test func wrongClock_isReported_whenItIsOurs_butNotWithEachCall() throws {
        let upstream = try upstream()
        func reports(after date: String) throws -> [String] {
            transport.answerAll { _ in .status(200, StreamOneSamples.answer(2), headers: [("Date", date)]) }
            try upstream.ask(.post, "proxy/item/edit", harness)
            return harness.notices.withLock { $0 }
        }
        #expect(try reports(after: "Sun, 13 Dec 2015 09:47:30 GMT") == [])
        let notice = "the clock here is 120 s behind the platform's"
        for _ in 0..<2 { #expect(try reports(after: "Sun, 13 Dec 2015 09:48:40 GMT") == [notice]) }
        harness.clock.advance(by: .seconds(60))
        #expect(try reports(after: "Sun, 13 Dec 2015 09:49:40 GMT") == [notice, notice])
    }

    @Test func fault_isTriedAgain_forReadsOnly() throws {
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(1)) }
        let upstream = try upstream()
        #expect(try upstream.ask(.post, "proxy/item/view", harness).json?.text == StreamOneSamples.answer(1))
        #expect(transport.requests.count == 3)
        try upstream.ask(.post, "proxy/item/edit", harness)
        #expect(transport.requests.count == 4)
    }

    @Test func refusedActor_isNotUsedForAWhile() throws {
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(3)) }
        let upstream = try upstream()
        try upstream.ask(.post, "proxy/item/edit", harness)
        #expect(transport.requests.count == 2, "signed again once")
        let problem = try #require(try upstream.ask(.post, "proxy/item/view", harness).problem)
        #expect(problem.status == 502)
        #expect(transport.requests.count == 2)
        harness.clock.advance(by: .seconds(61))
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(0)) }
        #expect(try upstream.ask(.post, "proxy/item/edit", harness).json != nil)
    }

    /// Assumption A3: the queue keeps its calls.
    @Test func refusedActor_isNotUsedByTheQueueEither() throws {
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(3)) }
        let upstream = try upstream()
        try upstream.ask(.post, "proxy/item/edit", harness)
        let held = Plan.wait(.credentials, until: harness.clock.now + .seconds(60))
        #expect(try plan(by: upstream) == held)
        #expect(try plan(by: self.upstream()) == held, "also after a restart")
        #expect(
            harness.notices.withLock { $0 } == [
                "status 3 AUTHENTICATION_FAILED; nothing is sent as this actor until 2015-12-13T09:47:40.000Z"
            ])
        #expect(try isSent(plan(by: upstream, isFlushed: true)))
        for setting in ["id", "psk"] {
            #expect(try isSent(plan(by: self.upstream([setting: .text("other")]))), "\(setting)")
        }
        harness.clock.advance(by: .seconds(60))
        #expect(try isSent(plan(by: upstream)))
    }

    /// The response was on its way when another call was rejected.
    @Test func refusedActor_isUsedByTheQueueAgain_afterASuccess() throws {
        let upstream = try upstream()
        let late = try upstream.ask(.post, "proxy/item/edit", harness)
        try upstream.ask(.post, "proxy/item/view", harness)
        for _ in 0..<2 {
            transport.answer(.status(200, StreamOneSamples.answer(3))) { $0.url.contains("/view") }
        }
        #expect(try !isSent(plan(by: upstream)))
        transport.answer(.status(200, StreamOneSamples.answer()))
        #expect(late.json != nil)
        #expect(try isSent(plan(by: upstream)))
        #expect(harness.state.values.isEmpty)
    }

    private func plan(by upstream: StreamOneUpstream, isFlushed: Bool = false) throws -> Plan {
        let message = Message(
            id: MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1)), kind: "call", lane: .named("none"),
            acceptedAt: UpstreamFixture.now, payload: Array(#"{"command":"item","action":"edit"}"#.utf8))
        return upstream.plan(
            for: [message],
            in: PlanContext(
                now: harness.clock.now, token: nil, state: harness.state,
                flushedThrough: isFlushed ? message.id : nil))
    }

    private func isSent(_ plan: Plan) -> Bool {
        if case .send = plan { true } else { false }
    }

    @Test func blockedActor_isNotUsedForAWhile_norByTheQueue() throws {
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(8)) }
        let upstream = try upstream()
        try upstream.ask(.post, "proxy/item/edit", harness)
        #expect(transport.requests.count == 1)
        #expect(try upstream.ask(.post, "proxy/item/edit", harness).problem?.status == 429)
        #expect(transport.requests.count == 1)
        #expect(Pause(in: harness.state)?.reason == .rateLimited)
        harness.clock.advance(by: .seconds(60))
        try upstream.ask(.post, "proxy/item/edit", harness)
        harness.clock.advance(by: .seconds(119))
        #expect(try upstream.ask(.post, "proxy/item/edit", harness).problem?.status == 429, "twice as long")
    }

    // MARK: Cache

    @Test func cacheableRead_isServedFromTheCache_withItsAge() throws {
        transport.answerAll { [kept] _ in .status(200, kept) }
        let upstream = try upstream()
        #expect(
            try upstream.ask(.post, "proxy/item/view", body: #"{"a":1,"b":2}"#, harness).json?.headers == [
                "X-Cache": "miss"
            ])
        harness.clock.advance(by: .seconds(42))
        let hit = try #require(try upstream.ask(.post, "proxy/item/view", body: #"{"b":"2","a":"1"}"#, harness).json)
        #expect(hit.headers == ["X-Cache": "hit", "Age": "42"])
        #expect(hit.text == kept)
        #expect(transport.requests.count == 1)
        harness.clock.advance(by: .seconds(18))
        #expect(
            try upstream.ask(.post, "proxy/item/view", body: #"{"a":1,"b":2}"#, harness).json?.headers == [
                "X-Cache": "miss"
            ])
    }

    /// Canonically equivalent texts are other bytes for the platform.
    @Test func cachedResponse_isOnlyForTheSameBytesOfTheArguments() throws {
        transport.answerAll { [kept] _ in .status(200, kept) }
        let upstream = try upstream()
        for text in ["caf\u{E9}", "cafe\u{301}"] {
            for found in ["miss", "hit"] {
                let reply = try upstream.ask(.post, "proxy/item/view", body: "{\"searchtitle\":\"\(text)\"}", harness)
                #expect(reply.json?.headers["X-Cache"] == found)
            }
        }
    }

    @Test(arguments: ["account", "accounts", "customer", "timezone"])
    func cachedResponse_isOnlyForTheSameBytesOfTheScope(parameter: String) throws {
        transport.answerAll { [kept] _ in .status(200, kept) }
        let upstream = try upstream()
        for text in ["caf\u{E9}", "cafe\u{301}"] {
            for found in ["miss", "hit"] {
                let reply = try upstream.ask(.post, "proxy/item/view", query: [parameter: text], harness)
                #expect(reply.json?.headers["X-Cache"] == found)
            }
        }
    }

    @Test func otherAnswers_areNotKept() throws {
        let answers: [(String, String, [String: SettingValue])] = [
            ("item/view", StreamOneSamples.answer(cacheable: false), [:]),
            ("item/view", StreamOneSamples.answer(4, cacheable: true), [:]),
            ("item/view", StreamOneSamples.answer(9999, cacheable: true), [:]),
            ("item/edit", kept, [:]), ("session/initialize", kept, [:]), ("api/mytokens", kept, [:]),
            ("user/getmyroles", kept, [:]), ("item/view", kept, ["requestCacheSeconds": .integer(0)]),
            ("item/view", kept, ["writeActions": .list(["item/view"])]),
        ]
        for (path, answer, settings) in answers {
            let harness = StreamOneHarness()
            harness.transport.answerAll { _ in .status(200, answer) }
            let upstream = try upstream(settings)
            for _ in 0..<2 {
                let reply = try upstream.ask(.post, "proxy/\(path)", harness)
                #expect(reply.json?.headers["X-Cache"] == "miss", "\(path)")
            }
            #expect(harness.transport.requests.count == 2, "\(path)")
        }
        // Asked for by a setting.
        transport.answerAll { [kept] _ in .status(200, kept) }
        let upstream = try upstream(["readActions": .list(["api/mytokens", "item/overview"])])
        for path in ["api/mytokens", "item/overview"] {
            try upstream.ask(.post, "proxy/\(path)", harness)
            #expect(try upstream.ask(.post, "proxy/\(path)", harness).json?.headers["X-Cache"] == "hit")
        }
    }

    /// What each read was answered from, after a write of `item`.
    @Test(arguments: [
        (["account": "A1"], ["A1": "miss", "A2": "hit", "": "miss", "C": "miss"]),
        (["accounts": "A2,A3"], ["A1": "hit", "A2": "miss", "": "miss", "C": "miss"]),
        (["customer": "C"], ["A1": "miss", "A2": "miss", "": "miss", "C": "miss"]),
    ])
    func write_takesAwayWhatItMayHaveChanged(scope: [String: String], found: [String: String]) throws {
        transport.answerAll { [kept] _ in .status(200, kept) }
        let upstream = try upstream()
        func read(_ command: String, _ scope: String) throws -> String? {
            let query = scope.isEmpty ? [:] : [scope == "C" ? "customer" : "account": scope]
            return try upstream.ask(.post, "proxy/\(command)/view", query: query, harness).json?.headers["X-Cache"]
        }
        for scope in found.keys { _ = try read("item", scope) }
        _ = try read("player", "A1")
        try upstream.ask(.post, "proxy/item/edit", query: scope, harness)
        for (scope, from) in found { #expect(try read("item", scope) == from, "\(scope)") }
        #expect(try read("player", "A1") == "hit")
    }

    @Test func refusedWrite_leavesTheCache_anUnclearOneDoesNot() throws {
        let upstream = try upstream()
        func isKept(after result: TransferResult) throws -> Bool {
            transport.answerAll { [kept] request in request.url.contains("/edit") ? result : .status(200, kept) }
            try upstream.ask(.post, "proxy/item/view", harness)
            try upstream.ask(.post, "proxy/item/edit", harness)
            return try upstream.ask(.post, "proxy/item/view", harness).json?.headers["X-Cache"] == "hit"
        }
        #expect(try !isKept(after: .status(200, StreamOneSamples.answer(0))))
        #expect(try !isKept(after: .status(200, StreamOneSamples.answer(1))))
        #expect(try !isKept(after: .status(503)))
        #expect(try !isKept(after: .reset))
        #expect(try isKept(after: .status(200, StreamOneSamples.answer(6))))
    }

    @Test func queuedWrite_takesAwayToo() throws {
        transport.answerAll { [kept] _ in .status(200, kept) }
        let upstream = try upstream()
        try upstream.ask(.post, "proxy/item/view", harness)
        let message = Message(
            id: MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1)), kind: "call", lane: .named("none"),
            acceptedAt: UpstreamFixture.now, payload: Array(#"{"command":"item","action":"edit"}"#.utf8))
        let response = UpstreamResponse(status: 200, body: Array(StreamOneSamples.answer().utf8))
        let batch = Batch(id: BatchID(rawValue: 1), messages: [message])
        let context = PlanContext(now: UpstreamFixture.now, token: nil, state: harness.state)
        _ = upstream.judge(response, to: batch, in: context).afterwards?([])
        #expect(try upstream.ask(.post, "proxy/item/view", harness).json?.headers["X-Cache"] == "miss")
    }

    /// The read was under way when the write was answered: it may have seen what was before.
    @Test func readOvertakenByAWrite_isNotKept_norShared() throws {
        let upstream = try upstream()
        let early = try upstream.ask(.post, "proxy/item/view", harness)
        let write = try upstream.ask(.post, "proxy/item/edit", harness)
        transport.answer(.status(200, StreamOneSamples.answer())) { $0.url.contains("/edit") }
        #expect(write.json != nil)
        let late = try upstream.ask(.post, "proxy/item/view", harness)
        #expect(transport.openRequests.count == 2, "the later read is a request of its own")
        transport.answer(.status(200, StreamOneSamples.answer(cacheable: true, body: #""old""#)))
        #expect(early.json?.text.contains("old") == true)
        #expect(late.answer == nil)
        let between = try upstream.ask(.post, "proxy/item/view", harness)
        #expect(between.answer == nil, "what is old is not kept")
        transport.answer(.status(200, StreamOneSamples.answer(cacheable: true, body: #""new""#)))
        #expect(late.json?.text.contains("new") == true)
        let hit = try upstream.ask(.post, "proxy/item/view", harness)
        #expect(hit.json?.headers["X-Cache"] == "hit")
        #expect(hit.json?.text.contains("new") == true)
    }

    @Test func memory_isBounded_andTheOldestGo() async throws {
        var policy = CachePolicy()
        policy.maxBytes = 100_000
        let cache = Cache(policy)
        let actor = StreamOneActor(kind: .user, id: "u")
        let answer = try #require(
            Answer(
                Array(StreamOneSamples.answer(cacheable: true, body: "\"\(String(repeating: "x", count: 1000))\"").utf8)
            ))
        var now = MonotonicInstant(nanoseconds: 0)
        func find(_ number: Int) async -> Cache.Lookup {
            let call = StreamOneCall(command: "c\(number % 7)", action: "view", timezone: "\(number)")
            return await cache.find(.init(call, by: actor), session: nil, deadline: now + .seconds(30), now: now)
        }
        for number in 0..<10_000 {
            now = now + .milliseconds(1)
            guard case .lead(let read) = await find(number) else {
                Issue.record("not asked for")
                return
            }
            cache.complete(read, .success(answer), keeping: .init(lifetime: .seconds(60)), now: now)
            #expect(cache.bytes <= 100_000)
        }
        #expect((50...100).contains(cache.count))
        guard case .hit = await find(9999), case .lead = await find(0) else {
            Issue.record("the newest is kept, the oldest is not")
            return
        }
        for command in 0..<7 { _ = cache.invalidate("c\(command)", .none) }
        #expect(cache.bytes == 0 && cache.count == 0)
    }

    // MARK: Single flight

    @Test func equalReads_shareOneRequest() throws {
        let upstream = try upstream()
        let replies = try (0..<20).map { _ in try upstream.ask(.post, "proxy/item/view", body: #"{"a":1}"#, harness) }
        let other = try upstream.ask(.post, "proxy/item/view", body: #"{"a":2}"#, harness)
        #expect(transport.openRequests.count == 2)
        transport.answer(.status(200, StreamOneSamples.answer(body: "1")))
        for reply in replies { #expect(reply.json?.text == StreamOneSamples.answer(body: "1")) }
        #expect(other.answer == nil)
        let writes = try (0..<3).map { _ in try upstream.ask(.post, "proxy/item/edit", harness) }
        #expect(transport.openRequests.count == 4)
        #expect(writes.allSatisfy { $0.answer == nil })
        while transport.answer(.status(200, StreamOneSamples.answer())) {}
    }

    @Test func waiters_getTheFailureToo() throws {
        let upstream = try upstream()
        let replies = try (0..<3).map { _ in try upstream.ask(.post, "proxy/item/view", harness) }
        for _ in 0..<3 { transport.answer(.refusedConnection) }
        for reply in replies { #expect(reply.problem?.status == 502) }
        #expect(transport.requests.count == 3)
    }

    /// No caller waits longer than it requested, and none is cut short by one with less time.
    @Test func deadlines_areEachCallersOwn() throws {
        let upstream = try upstream()
        let timeout = TransferResult.failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "late"))
        func read(_ seconds: Int) throws -> StreamOneReply {
            try upstream.ask(.post, "proxy/item/view", headers: [("Prefer", "wait=\(seconds)")], harness)
        }
        let short = try read(5)
        let long = try [read(20), read(10), read(5)]
        #expect(transport.openRequests.count == 1)
        let hurried = try read(3)
        #expect(transport.openRequests.count == 2, "it cannot wait for a slower one")
        harness.clock.advance(by: .seconds(5))
        transport.answer(timeout)
        #expect(short.problem?.status == 504)
        #expect(long[2].problem?.status == 504)
        #expect(long[0].answer == nil && long[1].answer == nil)
        transport.answer(timeout)
        #expect(hurried.problem?.status == 504)
        #expect(transport.openRequests.count == 1, "one of those with time left leads on")
        transport.answer(.status(200, StreamOneSamples.answer()))
        #expect(long[0].json != nil && long[1].json != nil)
    }

    // MARK: Callers that hang up

    @Test func read_isAborted_onceItsCallerHasLeft() throws {
        let reply = try upstream().ask(.post, "proxy/item/view", harness)
        #expect(transport.openRequests.count == 1)
        reply.hangUp()
        #expect(transport.openRequests.isEmpty)
        #expect(transport.requests.count == 1, "nor is it tried again")
    }

    @Test func write_runsToItsEnd_andItsChangesLeaveTheCache() throws {
        transport.answerAll { [kept] request in request.url.contains("/edit") ? nil : .status(200, kept) }
        let upstream = try upstream()
        try upstream.ask(.post, "proxy/item/view", harness)
        let write = try upstream.ask(.post, "proxy/item/edit", harness)
        write.hangUp()
        #expect(transport.openRequests.count == 1)
        transport.answer(.status(200, StreamOneSamples.answer()))
        #expect(try upstream.ask(.post, "proxy/item/view", harness).json?.headers["X-Cache"] == "miss")
    }

    @Test func writeThatWasNotSentYet_isNotSent_onceItsCallerHasLeft() throws {
        let upstream = try upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        let next = try self.upstream()
        let sent = transport.requests.count
        let gate = Gate()
        harness.whileReading.withLock { $0 = { _ in await gate.wait() } }
        let reply = try next.ask(.post, "proxy/item/edit", session: session, harness)
        reply.hangUp()
        gate.open()
        #expect(reply.answer != nil)
        #expect(transport.requests.count == sent)
    }

    @Test func waiterThatHangsUp_leavesTheOthersAlone() throws {
        let upstream = try upstream()
        let replies = try (0..<3).map { _ in try upstream.ask(.post, "proxy/item/view", harness) }
        replies[1].hangUp()
        #expect(replies[1].problem?.status == 504)
        #expect(transport.openRequests.count == 1)
        transport.answer(.status(200, StreamOneSamples.answer()))
        #expect(replies[0].json != nil && replies[2].json != nil)
    }

    /// The others' answer comes by a request of their own.
    @Test func leaderThatLeaves_handsOver() throws {
        let upstream = try upstream()
        let replies = try (0..<3).map { _ in try upstream.ask(.post, "proxy/item/view", harness) }
        replies[0].hangUp()
        #expect(transport.requests.count == 2)
        #expect(transport.openRequests.count == 1)
        replies[1].hangUp()
        #expect(transport.openRequests.count == 1)
        transport.answer(.status(200, StreamOneSamples.answer()))
        #expect(replies[2].json != nil)
        #expect(transport.requests.count == 3)
        try upstream.ask(.post, "proxy/item/view", harness)
        #expect(transport.openRequests.count == 1, "a read without waiting callers is not shared")
        transport.answer(.status(200, StreamOneSamples.answer()))
    }

    @Test(arguments: [("wait=5", "wait=5"), ("wait=600", "wait=60"), ("wait=soon", nil)])
    func deadlineOfTheCaller_isConfirmed(preference: String, applied: String?) throws {
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        let reply = try StreamOneSamples.upstream().ask(
            .post, "proxy/item/view", headers: [("Prefer", preference)], harness)
        #expect(reply.json?.headers["Preference-Applied"] == applied)
    }

    @Test(arguments: ["A1,,A2", ",", "A1,"]) func emptyAccountInAList_isRefused(accounts: String) throws {
        let reply = try StreamOneSamples.upstream().ask(
            .post, "proxy/item/view", query: ["accounts": accounts], harness)
        #expect(reply.problem?.status == 400)
        #expect(transport.requests.isEmpty)
    }
}

/// Blocks a task until the test opens it.
private final class Gate: Sendable {
    private let waiting = Mutex<CheckedContinuation<Void, Never>?>(nil)
    func wait() async { await withCheckedContinuation { continuation in waiting.withLock { $0 = continuation } } }
    func open() { waiting.withLock { $0.take() }?.resume() }
}
