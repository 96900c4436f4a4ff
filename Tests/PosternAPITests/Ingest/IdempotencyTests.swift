import PosternCore
import PosternHTTP
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternAPI

/// `Idempotency-Key`: the response to a repeated request.
@Suite struct IdempotencyTests {
    @Test(arguments: [StoreError.unknown(detail: "the sync failed"), .unresolved(detail: "the server left")])
    func outcomeThatIsNotKnown_namesTheWaysToAvoidADuplicate(error: StoreError) {
        let detail = Problem(error).detail
        #expect(detail.contains("`Idempotency-Key`") && detail.contains("`key`") && detail.contains("twice"))
    }

    private static let path = "/v1/picky/event"

    private static func key(_ key: String, _ more: (String, String)...) -> [(String, String)] {
        [("Idempotency-Key", key)] + more
    }

    private func post(
        _ body: String, _ headers: [(String, String)], to gateway: TestGateway, path: String = Self.path
    ) throws -> HTTPClient.Answer {
        try gateway.client.post(path, body, headers: headers)
    }

    /// The response without the parts that are specific to one request.
    private func same(_ answer: HTTPClient.Answer, _ first: HTTPClient.Answer) -> Bool {
        func headers(_ answer: HTTPClient.Answer) -> [String] {
            let own: Set = ["x-request-id", "date", "idempotent-replay"]
            return answer.headers.filter { !own.contains($0.name.lowercased()) }.map { "\($0.name): \($0.value)" }
                .sorted()
        }
        return answer.status == first.status && answer.body == first.body && headers(answer) == headers(first)
    }

    @Test(arguments: [
        (#"{"n":1}"#, ""), (#"[{"n":1},{"n":2}]"#, ""), (#"[{"n":1},{"n":true}]"#, "handling=lenient"),
        (#"[{"n":true}]"#, "handling=lenient"), (#"[{"n":1},{"n":2}]"#, "return=minimal"), ("[]", ""),
    ])
    func repeat_getsTheFirstResponse_andStoresNothing(body: String, preference: String) throws {
        try withPausedGateway { gateway in
            let headers = Self.key(#""one""#) + (preference.isEmpty ? [] : [("Prefer", preference)])
            let first = try post(body, headers, to: gateway)
            #expect(first.status == 202, "\(first.text)")
            #expect(first.header("Idempotent-Replay") == nil)
            let queued = gateway.queued
            for _ in 0..<2 {
                let again = try post(body, headers, to: gateway)
                #expect(same(again, first), "\(again.text) \(again.headers)")
                #expect(again.header("Idempotent-Replay") == "true")
            }
            #expect(gateway.queued == queued)
        }
    }

    @Test func repeat_isFound_afterARestart() throws {
        var setup = Setup()
        setup.folder = ScratchFolder()
        var first: HTTPClient.Answer?
        try withPausedGateway(setup) { first = try post(#"{"n":1}"#, Self.key("one"), to: $0) }
        try withPausedGateway(setup) { gateway in
            let again = try post(#"{"n":1}"#, Self.key("one"), to: gateway)
            #expect(same(again, try #require(first)))
            #expect(gateway.queued == 1)
        }
    }

    @Test func envelopes_areRemembered() throws {
        try withPausedGateway { gateway in
            let body = #"{"upstream":"picky","kind":"event","payload":{"n":1}}"#
            let first = try post(body, Self.key("one"), to: gateway, path: "/v1/messages")
            #expect(same(try post(body, Self.key("one"), to: gateway, path: "/v1/messages"), first))
            #expect(gateway.queued == 1)
        }
    }

    @Test func otherRequest_underTheSameKey_isRefused() throws {
        try withPausedGateway { gateway in
            #expect(try post(#"{"n":1}"#, Self.key("one"), to: gateway).status == 202)
            for (path, body) in [
                (Self.path, #"{"n":2}"#), ("/v1/picky/note", #"{"n":1}"#), (Self.path + "?dryRun=false", #"{"n":1}"#),
            ] {
                try post(body, Self.key("one"), to: gateway, path: path).problem(422, "idempotency-mismatch")
            }
            #expect(gateway.queued == 1)
        }
    }

    /// Its attributes are headers, and its body may be that of another event.
    @Test(arguments: [
        ("ce-id", "2"), ("ce-source", "/b"), ("ce-type", "picky.note"), ("ce-type", "plain.thing"),
        ("ce-subject", "s"), ("ce-other", "1"),
    ])
    func otherBinaryEvent_underTheSameKey_isRefused(name: String, value: String) throws {
        try withPausedGateway { gateway in
            let event = [
                "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "picky.event",
                "ce-traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ]
            func post(_ changes: [String: String]) throws -> HTTPClient.Answer {
                let headers = Self.key("one") + event.merging(changes) { $1 }.map { ($0, $1) }
                return try self.post(#"{"n":1}"#, headers, to: gateway, path: "/v1/cloudevents")
            }
            let first = try post([:])
            #expect(first.status == 202, "\(first.text)")
            try post([name: value]).problem(422, "idempotency-mismatch")
            let span = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
            #expect(same(try post(["ce-traceparent": span]), first), "the same event within another span")
            #expect(gateway.queued == 1)
        }
    }

    /// A list, for example, is one payload on a line of its own, and several payloads as the whole body.
    @Test func sameText_inAnotherForm_isAnotherRequest() throws {
        try withPausedGateway { gateway in
            let lines = [("Content-Type", "application/x-ndjson")]
            let first = try post(#"{"n":1}"#, Self.key("one") + lines, to: gateway)
            #expect(first.status == 202 && first.json["accepted"].int == 1, "\(first.text)")
            try post(#"{"n":1}"#, Self.key("one"), to: gateway).problem(422, "idempotency-mismatch")
            #expect(same(try post(#"{"n":1}"#, Self.key("one") + lines, to: gateway), first))
            #expect(gateway.queued == 1)
        }
    }

    @Test func quotedAndBareKey_areTheSame() throws {
        try withPausedGateway { gateway in
            _ = try post(#"{"n":1}"#, Self.key(#""a\"b\\c""#), to: gateway)
            let again = try post(#"{"n":1}"#, Self.key(#"a"b\c"#), to: gateway)
            #expect(again.header("Idempotent-Replay") == "true")
        }
    }

    @Test(arguments: [
        "", "\"\"", "\"open", "\"a\"b", #""a\b""#, "caf\u{E9}", String(repeating: "a", count: 256), "a\tb",
    ])
    func keyThatIsNotValid_isRefused(key: String) throws {
        try withPausedGateway { gateway in
            try post(#"{"n":1}"#, Self.key(key), to: gateway).problem(400, "bad-request")
            #expect(gateway.queued == 0)
        }
    }

    @Test func longestKey_isTaken() throws {
        try withPausedGateway { gateway in
            let key = String(repeating: "k", count: 255)
            let answer = try post(#"{"n":1}"#, Self.key("\"\(key)\""), to: gateway)
            #expect(answer.status == 202)
        }
    }

    @Test func rejectedRequest_isNotRemembered() throws {
        try withPausedGateway { gateway in
            try post(#"{"n":true}"#, Self.key("one"), to: gateway).problem(422, "invalid-payload")
            try post("{", Self.key("one"), to: gateway).problem(400, "invalid-json")
            let first = try post(#"{"n":1}"#, Self.key("one"), to: gateway)
            #expect(first.status == 202 && first.header("Idempotent-Replay") == nil)
        }
    }

    @Test func dryRun_isNotRemembered() throws {
        try withPausedGateway { gateway in
            let dry = try post(#"{"n":1}"#, Self.key("one"), to: gateway, path: Self.path + "?dryRun=true")
            #expect(dry.status == 200)
            #expect(try post(#"{"n":2}"#, Self.key("one"), to: gateway).status == 202)
        }
    }

    @Test func key_isForgotten_afterItsRetention() throws {
        var setup = Setup()
        let time = ManualTime()
        setup.time = time
        try withPausedGateway(setup) { gateway in
            let first = try post(#"{"n":1}"#, Self.key("one"), to: gateway)
            time.advance(by: .seconds(86_399))
            #expect(same(try post(#"{"n":1}"#, Self.key("one"), to: gateway), first))
            time.advance(by: .seconds(1))
            let next = try post(#"{"n":2}"#, Self.key("one"), to: gateway)
            #expect(next.status == 202 && next.body != first.body)
            #expect(try post(#"{"n":2}"#, Self.key("one"), to: gateway).body == next.body)
        }
    }

    @Test func eachAPIKey_hasKeysOfItsOwn() throws {
        try withPausedGateway { gateway in
            let keys = ["a", "b"].map { APIKey(name: $0, sha256: KeyText.digest(of: "key-\($0)"), scopes: [.write]) }
            gateway.handler.replaceKeys(keys, opensMetrics: false)
            func post(_ key: String) throws -> HTTPClient.Answer {
                try self.post(
                    #"{"n":1}"#, Self.key("one", ("Authorization", "Bearer key-\(key)")), to: gateway)
            }
            let (first, other) = (try post("a"), try post("b"))
            #expect(first.status == 202 && other.status == 202 && first.body != other.body)
            #expect(same(try post("a"), first))
            #expect(same(try post("b"), other))
        }
    }

    // MARK: While the first request runs

    @Test func repeat_isRefused_whileTheFirstWaits_andGetsItsEnd() throws {
        var setup = Setup()
        setup.results = []
        try withGateway(setup) { gateway in
            let headers = Self.key("one", ("Prefer", "wait=60"))
            let waiting = try HTTPClient(port: gateway.port)
            waiting.sendRequest("POST", Self.path, Array(#"{"n":1}"#.utf8), headers: headers)
            try gateway.waitForOpenRequest()
            let refused = try post(#"{"n":1}"#, headers, to: gateway)
            refused.problem(409, "conflict")
            #expect(refused.header("Retry-After") == "1")
            gateway.transport.answer(.status(200, "{}"))
            let first = try waiting.answer()
            #expect(first.status == 200)
            let again = try post(#"{"n":1}"#, headers, to: gateway)
            #expect(same(again, first), "\(again.text)")
        }
    }

    /// Only success is kept, so a repeat is a new attempt.
    @Test func messageThatFailed_whileItWasWaitedFor_isNotRemembered() throws {
        var setup = Setup()
        setup.results = [.status(422, "no"), .status(200, "{}")]
        try withGateway(setup) { gateway in
            let headers = Self.key("one", ("Prefer", "wait=60"))
            try post(#"{"n":1}"#, headers, to: gateway).problem(502, "delivery-failed")
            let next = try post(#"{"n":1}"#, headers, to: gateway)
            #expect(next.status == 200 && next.header("Idempotent-Replay") == nil)
        }
    }

    /// The 202 is stored with the message, so it remains the response after the client has hung up.
    @Test func clientThatHungUp_findsTheMessageAccepted() throws {
        try withGateway { gateway in
            let headers = Self.key("one", ("Prefer", "wait=60"))
            do {
                let waiting = try HTTPClient(port: gateway.port)
                waiting.sendRequest("POST", Self.path, Array(#"{"n":1}"#.utf8), headers: headers)
                try gateway.waitForOpenRequest()
                // Its time does not end any more.
                gateway.context.timer.stop()
            }
            var again = try post(#"{"n":1}"#, headers, to: gateway)
            #expect(
                try eventually {
                    again = try post(#"{"n":1}"#, headers, to: gateway)
                    return again.status == 202
                })
            #expect(again.header("Idempotent-Replay") == "true")
            #expect(gateway.queued == 1)
        }
    }

    @Test func manyRequestsAtOnce_storeOneMessage() throws {
        try withPausedGateway { gateway in
            let clients = try (0..<100).map { _ in try HTTPClient(port: gateway.port) }
            for client in clients {
                client.sendRequest("POST", Self.path, Array(#"{"n":1}"#.utf8), headers: Self.key("one"))
            }
            let answers = try clients.map { try $0.answer() }
            #expect(answers.allSatisfy { $0.status == 202 || $0.status == 409 })
            #expect(Set(answers.filter { $0.status == 202 }.map(\.text)).count == 1)
            #expect(gateway.queued == 1)
        }
    }
}
