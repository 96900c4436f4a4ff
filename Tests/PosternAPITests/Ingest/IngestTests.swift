import PosternCompression
import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI
@testable import CurioAdapter
@testable import SamsaraAdapter
@testable import SeerAdapter

/// Design, section 3.1: accepting messages.
@Suite struct IngestTests {
    @Test func oneObject_isAcceptedWithItsPlace() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":1}"#)
            #expect(answer.status == 202)
            let id = try #require(answer.json["id"].string)
            #expect(answer.header("Location") == "/v1/messages/\(id)")
            #expect(answer.json["upstream"].string == "picky")
            #expect(answer.json["kind"].string == "event")
            #expect(answer.json["state"].string == "queued")
            #expect(answer.header("Preference-Applied") == nil)
            #expect(gateway.queued == 1)
        }
    }

    @Test func payload_isKeptByteForByte() throws {
        let text = #"{ "z":1.50, "n" : 1,"é":"\u00e9\/",  "a":[1e3,-0] }"#
        try withPausedGateway { gateway in
            let id = try gateway.accept("/v1/picky/event", text)
            let shown = try gateway.client.get("/v1/messages/\(id)?include=payload").text
            #expect(shown.contains(#""payload":"# + text))
        }
    }

    @Test(arguments: [
        ("application/json", #"[{"n":1},{"n":2},{"n":3}]"#),
        ("application/json; charset=UTF-8", #"[{"n":1},{"n":2},{"n":3}]"#),
        ("application/x-ndjson", "{\"n\":1}\n{\"n\":2}\r\n\n{\"n\":3}"),
        ("application/x-ndjson", "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"),
    ])
    func manyObjects_areAcceptedInTheirOrder(type: String, body: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", body, headers: [("Content-Type", type)])
            #expect(answer.status == 202, "\(answer.text)")
            #expect(answer.json["accepted"].int == 3)
            let ids = answer.json["ids"].strings
            #expect(ids.count == 3 && ids == ids.sorted())
            let numbers = try ids.map { try gateway.message($0, include: "payload")["payload"]["n"].int }
            #expect(numbers == [1, 2, 3])
        }
    }

    @Test(arguments: [("application/json", "[]"), ("application/json", " [ ] ")])
    func emptyArray_isAcceptedAsNothing(type: String, body: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", body, headers: [("Content-Type", type)])
            #expect(answer.status == 202)
            #expect(answer.text == #"{"accepted":0,"ids":[]}"# + "\n")
            #expect(gateway.queued == 0)
        }
    }

    @Test func oneLineOfNDJSON_isAnsweredAsAList() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"{"n":1}"#, headers: [("Content-Type", "application/x-ndjson")])
            #expect(answer.status == 202)
            #expect(answer.json["ids"].array.count == 1)
        }
    }

    @Test func arrayInALineOfNDJSON_isABadPayload() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", "[]\n", headers: [("Content-Type", "application/x-ndjson")])
            answer.problem(422, "invalid-payload")
        }
    }

    // MARK: Bad payloads

    @Test func badPayload_isRefusedWithEveryFault() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":"x","name":7}"#)
            answer.problem(422, "invalid-payload")
            let errors = answer.json["errors"].array
            #expect(errors.map { $0["pointer"].string } == ["/n", "/name"])
            #expect(errors.map { $0["detail"].string } == ["must be an integer", "must be a string"])
            #expect(errors.allSatisfy { !$0["index"].isThere })
            #expect(gateway.queued == 0)
        }
    }

    @Test(arguments: ["7", #""text""#, "null", "true"])
    func scalar_isABadPayload(body: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", body)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"][0]["pointer"].string == "")
        }
    }

    @Test func oneBadPayloadOfMany_refusesAllAndListsEveryBadOne() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"[{"n":1},{"n":"x"},{"n":2},{"name":[]}]"#)
            answer.problem(422, "invalid-payload")
            let errors = answer.json["errors"].array
            #expect(errors.map { $0["index"].int } == [1, 3, 3])
            #expect(errors.map { $0["pointer"].string } == ["/n", "/n", "/name"])
            #expect(gateway.queued == 0)
        }
    }

    @Test func lenient_storesTheGoodOnesAndNamesTheBad() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"[{"n":1},{"n":"x"},{"n":2}]"#, headers: [("Prefer", "handling=lenient")])
            #expect(answer.status == 202)
            #expect(answer.json["accepted"].int == 2)
            #expect(answer.json["ids"].array.count == 2)
            #expect(answer.json["rejected"].array.map { $0["index"].int } == [1])
            #expect(answer.json["rejected"][0]["errors"][0]["pointer"].string == "/n")
            #expect(answer.header("Preference-Applied") == "handling=lenient")
            #expect(gateway.queued == 2)
        }
    }

    /// Nothing in a malformed line makes the others doubtful; after a syntax error in an array, nothing can be trusted.
    @Test func malformedLine_isOneRejectedMessage_ofALenientRequest() throws {
        let lines = [
            #"{ "n" : 1 }"#, #"{"n":2"#, "  \t", #"{"n":3}}"#, #"{"n":"x"}"#, #"{"n":4,"n":4}"#, "{\"n\":5}\r",
            "{\"n\":6,\"name\":\"\u{1}\"}", "",
        ].joined(separator: "\n")
        try withPausedGateway { gateway in
            func post(
                _ body: String, _ prefer: String = "handling=lenient", type: String = "application/x-ndjson"
            ) throws -> HTTPClient.Answer {
                try gateway.client.post(
                    "/v1/picky/event", body, headers: [("Content-Type", type), ("Prefer", prefer)])
            }
            let answer = try post(lines)
            #expect(answer.status == 202 && answer.json["accepted"].int == 2, "\(answer.text)")
            let rejected = answer.json["rejected"].array
            try #require(rejected.map { $0["index"].int } == [1, 2, 3, 4, 6], "\(answer.text)")
            let details = rejected.compactMap { $0["errors"][0]["detail"].string }
            #expect(details[0] == "the line is not acceptable JSON: unexpected end of the text at byte 6 of the line")
            #expect(details[1].contains("more text after the JSON value at byte 7"))
            #expect(rejected[2]["errors"][0]["pointer"].string == "/n")
            #expect(details[3].contains(#"duplicate member name "n" at byte 7"#))
            let payloads = try answer.json["ids"].strings.map { id in
                let record = try gateway.outbox.message(try #require(MessageID(id)), payload: true)
                return String(decoding: record?.payload ?? [], as: UTF8.self)
            }
            #expect(payloads == [#"{ "n" : 1 }"#, #"{"n":5}"#])
            #expect(try post("{\n[\n").json["accepted"].int == 0)
            try post(lines, "handling=strict").problem(400, "invalid-json")
            try post(#"[{"n":1},{"n":2]"#, type: "application/json").problem(400, "invalid-json")
            try post("\n \n").problem(400, "invalid-json")
            try post(String(repeating: "{\n", count: 1001)).problem(413, "payload-too-large")
            try post(String(repeating: "{\"n\":1}\n", count: 1001)).problem(413, "payload-too-large")
            #expect(gateway.queued == 2)
        }
    }

    @Test func malformedLineOfEnvelopes_isOneRejectedMessage_ofALenientRequest() throws {
        try withPausedGateway { gateway in
            let line = #"{"upstream":"picky","kind":"event","payload":{"n":1}}"#
            let answer = try gateway.client.post(
                "/v1/messages", "\(line)\n\(line.dropLast())\n\(line)",
                headers: [("Content-Type", "application/x-ndjson"), ("Prefer", "handling=lenient")])
            #expect(answer.json["accepted"].int == 2, "\(answer.text)")
            #expect(answer.json["rejected"].array.map { $0["index"].int } == [1])
        }
    }

    @Test func lenient_acceptsNothing_whenAllAreBad() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"[{"n":"x"},5]"#, headers: [("Prefer", "handling=lenient")])
            #expect(answer.status == 202)
            #expect(answer.json["accepted"].int == 0)
            #expect(answer.json["rejected"].array.map { $0["index"].int } == [0, 1])
        }
    }

    @Test func lenient_leavesOutWhatTheStateRejects() throws {
        var setup = Setup()
        setup.upstreams = [OnceUpstream()]
        try withPausedGateway(setup) { gateway in
            func post(_ numbers: [Int], _ headers: [(String, String)] = []) throws -> HTTPClient.Answer {
                let payloads = numbers.map { #"{"n":\#($0)}"# }.joined(separator: ",")
                return try gateway.client.post("/v1/once/thing", "[\(payloads)]", headers: headers)
            }
            let lenient = [("Prefer", "handling=lenient"), ("Idempotency-Key", "one")]
            let answer = try post([1, 2, 1, 3, 2], lenient)
            #expect(answer.status == 202 && answer.json["accepted"].int == 3, "\(answer.text)")
            #expect(answer.json["rejected"].array.map { $0["index"].int } == [2, 4])
            #expect(answer.json["rejected"][0]["errors"][0]["detail"].string == "was sent before")
            #expect(try post([1, 2, 1, 3, 2], lenient).body == answer.body)
            #expect(gateway.queued == 3)
            let none = try post([1, 2], [("Prefer", "handling=lenient, wait=30")])
            #expect(none.status == 202 && none.json["accepted"].int == 0, "\(none.text)")
            try post([4, 1]).problem(409, "conflict")
            try gateway.client.post("/v1/once/thing", #"{"n":1}"#, headers: [("Prefer", "handling=lenient")]).problem(
                409, "conflict")
            #expect(try gateway.queued == 3 && gateway.outbox.audit().isBalanced)
        }
    }

    @Test func lenient_doesNotExcuseOneMessageAlone() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"{"n":"x"}"#, headers: [("Prefer", "handling=lenient")])
            answer.problem(422, "invalid-payload")
        }
    }

    // MARK: Preferences

    @Test func minimal_leavesTheIdsOut() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"[{"n":1},{"n":2}]"#, headers: [("Prefer", "return=minimal")])
            #expect(answer.text == #"{"accepted":2}"# + "\n")
            #expect(answer.header("Preference-Applied") == "return=minimal")
        }
    }

    @Test func preferencesOfSeveralLines_areOneList() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"[{"n":1},{"n":"x"}]"#,
                headers: [("Prefer", "return=minimal; a=b, respond-async"), ("prefer", "handling=\"lenient\"")])
            #expect(answer.status == 202)
            #expect(answer.header("Preference-Applied") == "handling=lenient, return=minimal")
            #expect(!answer.json["ids"].isThere)
        }
    }

    @Test(arguments: [
        ("wait=5", Preferences.Expected(wait: 5)), ("wait=500", .init(wait: 60)), ("wait=0", .init()),
        ("wait=-1", .init()), ("wait=soon", .init()), ("WAIT = 7", .init(wait: 7)), ("wait=\"8\"", .init(wait: 8)),
        ("handling=strict", .init()), ("handling=lenient,return=minimal", .init(isLenient: true, isMinimal: true)),
        ("return=representation", .init()), ("unheard-of=3", .init()),
    ])
    func preference_isReadAsRFC7240HasIt(text: String, expected: Preferences.Expected) {
        let preferences = Preferences([text])
        #expect(preferences.wait == expected.wait)
        #expect(preferences.isLenient == expected.isLenient)
        #expect(preferences.isMinimal == expected.isMinimal)
    }

    // MARK: Envelopes

    @Test func envelopes_goToTheirUpstreamsInOrder() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/messages",
                """
                [{"upstream":"plain","kind":"thing","payload":{"a":1}},
                 {"upstream":"picky","kind":"note","payload":{"n":2},"key":"k"},
                 {"payload":{"a":3},"kind":"thing","upstream":"plain"}]
                """)
            #expect(answer.status == 202, "\(answer.text)")
            let ids = answer.json["ids"].strings
            #expect(ids == ids.sorted())
            let messages = try ids.map { try gateway.message($0, include: "payload") }
            #expect(messages.map { $0["upstream"].string } == ["plain", "picky", "plain"])
            #expect(messages.map { $0["kind"].string } == ["thing", "note", "thing"])
            #expect(messages.map { $0["key"].string } == [nil, "k", nil])
            #expect(messages[2]["payload"]["a"].int == 3)
        }
    }

    @Test func oneEnvelope_isAnsweredAsOneMessage() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/messages", #"{"upstream":"picky","kind":"event","payload":{"n":1},"key":null}"#)
            #expect(answer.status == 202)
            #expect(answer.header("Location") == "/v1/messages/\(answer.json["id"].string ?? "")")
        }
    }

    @Test(arguments: [
        (#"{"kind":"event","payload":{"n":1}}"#, ["/upstream"]),
        (#"{"upstream":"absent","kind":"event","payload":{"n":1}}"#, ["/upstream"]),
        (#"{"upstream":7,"payload":{"n":1}}"#, ["/upstream"]),
        (#"{"upstream":"picky","kind":"nothing","payload":{"n":1}}"#, ["/kind"]),
        (#"{"upstream":"picky","payload":{"n":1}}"#, ["/kind"]),
        (#"{"upstream":"picky","kind":"event"}"#, ["/payload"]),
        (#"{"upstream":"picky","kind":"event","payload":{"n":"x","name":1}}"#, ["/payload/n", "/payload/name"]),
        (#"{"upstream":"picky","kind":"event","payload":7}"#, ["/payload"]),
        (#"{"upstream":"picky","kind":"event","payload":{"n":1},"key":""}"#, ["/key"]),
        (#"{"upstream":"picky","kind":"event","payload":{"n":1},"key":9}"#, ["/key"]),
        (#"{"upstream":"picky","kind":"event","payload":{"n":1},"key":"a\u0000b"}"#, ["/key"]),
        (#"{"upstream":"picky","kind":"event","payload":{"n":1},"key":"\u001b[2J"}"#, ["/key"]),
        (#"{"upstream":"picky","kind":"event","payload":{"n":1},"key":"\u009b"}"#, ["/key"]),
        (#"{"upstream":"picky","kind":"event","payload":{"n":1},"notBefore":"tomorrow"}"#, ["/notBefore"]),
        (
            #"{"upstream":"picky","kind":"event","payload":{"n":1},"notBefore":"2030-01-02T00:00:00Z","expiresAt":"2030-01-01T00:00:00Z"}"#,
            ["/expiresAt"]
        ),
        (
            #"{"upstream":"picky","kind":"event","payload":{"n":1},"expiresAt":"2020-01-01T00:00:00Z"}"#,
            ["/expiresAt"]
        ),
        (
            #"{"upstream":"picky","kind":"event","payload":{"n":1},"notBefore":"9999-12-31T23:59:59-23:59"}"#,
            ["/notBefore"]
        ),
        (
            #"{"upstream":"picky","kind":"event","payload":{"n":1},"expiresAt":"9999-12-31T23:59:59-23:59"}"#,
            ["/expiresAt"]
        ),
        (#"{"upstream":"picky","kind":"event","payload":{"n":1},"a/b~c":1}"#, ["/a~1b~0c"]),
        (#"{"x":1}"#, ["/x", "/upstream", "/payload"]),
        ("[7]", [""]),
    ])
    func badEnvelope_isRefusedWithEveryFault(body: String, pointers: [String]) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/messages", body)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"].array.map { $0["pointer"].string ?? "none" } == pointers, "\(answer.text)")
            #expect(gateway.queued == 0)
        }
    }

    @Test func envelopeWithNotBefore_waitsForItsSchedule() throws {
        try withGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/messages",
                #"{"upstream":"picky","kind":"event","payload":{"n":1},"notBefore":"2099-01-01T00:00:00+01:00"}"#)
            let message = try gateway.message(try #require(answer.json["id"].string))
            #expect(message["waitingFor"].string == "schedule")
            #expect(message["nextAttemptAt"].string == "2098-12-31T23:00:00.000Z")
        }
    }

    @Test func envelopeThatIsTooOld_expires() throws {
        try withGateway { gateway in
            try gateway.waitForState("expired", of: gateway.storeExpired())
            #expect(gateway.transport.requests.isEmpty)
        }
    }

    // MARK: gzip

    @Test func gzip_isTakenLikeThePlainBody() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.ask(
                "POST", "/v1/picky/event", Gzip.compress(Array(#"[{"n":1},{"n":2}]"#.utf8)),
                headers: [("Content-Encoding", "gzip")])
            #expect(answer.json["accepted"].int == 2, "\(answer.text)")
        }
    }

    @Test func gzipBomb_isRefused() throws {
        let bomb = Gzip.compress([UInt8](repeating: 32, count: 8 << 20))
        #expect(bomb.count < 64 << 10)
        try withPausedGateway { gateway in
            try gateway.client.ask("POST", "/v1/picky/event", bomb, headers: [("Content-Encoding", "gzip")])
                .problem(413, "payload-too-large")
        }
    }

    @Test(arguments: ["damaged", "truncated", "followed"])
    func spoiledGzip_isRefused(how: String) throws {
        var bytes = Gzip.compress(Array(#"{"n":1}"#.utf8))
        switch how {
        case "damaged": bytes[bytes.count - 6] ^= 0xFF
        case "truncated": bytes.removeLast(3)
        default: bytes += [1, 2, 3]
        }
        try withPausedGateway { gateway in
            try gateway.client.ask("POST", "/v1/picky/event", bytes, headers: [("Content-Encoding", "gzip")])
                .problem(400, "bad-request")
            #expect(gateway.queued == 0)
        }
    }

    // MARK: dryRun

    @Test func dryRun_showsTheRequestAndStoresNothing() throws {
        try withGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event?dryRun=true", #"[{"n":1},{"n":2}]"#)
            #expect(answer.status == 200)
            #expect(answer.json["dryRun"].bool == true)
            let request = answer.json["requests"][0]
            #expect(request["upstream"].string == "picky")
            #expect(request["messages"].int == 2)
            #expect(request["method"].string == "POST")
            #expect(request["url"].string == "http://picky.test/events")
            #expect(request["headers"]["X-Key"].string == "***")
            #expect(request["body"].string == #"[{"n":1},{"n":2}]"#)
            #expect(!answer.text.contains(PickyUpstream.secret))
            #expect(gateway.queued == 0)
            #expect(gateway.transport.requests.isEmpty)
        }
    }

    /// Design, section 3.6: a response has about 1 MiB at most. Escapes make a request longer than its messages.
    @Test func dryRun_showsAsMuchAsFits() throws {
        var setup = Setup()
        setup.limits.maxBodyBytes = 4 << 20
        (setup.delivery.batchMaxMessages, setup.delivery.batchMaxBytes) = (1, 4 << 20)
        try withPausedGateway(setup) { gateway in
            for filler in [#"\u0001"#, #"\""#, "é\\n", "plain "] {
                let text = #"{"n":1,"filler":"\#(String(repeating: filler, count: 3_000_000 / filler.utf8.count))"}"#
                let long = try gateway.client.post("/v1/picky/event?dryRun=true", text)
                #expect(long.status == 200 && long.body.count <= 1 << 20 && long.body.count > 400 << 10)
                let shown = try #require(long.json["requests"][0]["body"].string)
                #expect("[\(text)]".utf8.starts(with: shown.utf8) && !shown.contains("\u{FFFD}"))
                #expect(long.json["requests"][0]["bodyBytesOmitted"].int == text.utf8.count + 2 - shown.utf8.count)
            }
            let events =
                "["
                + [String](repeating: #"{"n":1,"filler":"\#(Self.filler)"}"#, count: 900)
                .joined(separator: ",") + "]"
            let many = try gateway.client.post("/v1/picky/event?dryRun=true", events)
            #expect(many.status == 200 && many.body.count <= 1 << 20)
            let requests = many.json["requests"].array.count
            #expect(requests > 100 && many.json["messagesOmitted"].int == 900 - requests)
        }
    }

    private static let filler = String(repeating: "x", count: 2000)

    @Test func dryRun_namesBadPayloads() throws {
        try withPausedGateway { gateway in
            try gateway.client.post("/v1/picky/event?dryRun=true", #"{"n":"x"}"#).problem(422, "invalid-payload")
        }
    }

    @Test func dryRunOfEnvelopes_showsOneRequestPerUpstream() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post(
                "/v1/messages?dryRun=true",
                """
                [{"upstream":"plain","kind":"thing","payload":{}},{"upstream":"picky","kind":"event","payload":{"n":1}}]
                """)
            #expect(answer.json["requests"].array.map { $0["upstream"].string } == ["picky", "plain"])
        }
    }

    /// Two kinds of Seer's are two lanes, and one of them has no batches.
    @Test func dryRun_showsTheRequestsThatTheWorkerSends() throws {
        let settings = try SeerSettings([
            "clientId": .text("client"), "clientSecret": .text("hush-hush"), "baseURL": .text("http://seer"),
        ])
        var setup = Setup()
        setup.upstreams = [SeerUpstream(UpstreamName("seer")!, settings)]
        setup.delivery.maxInFlight = 8
        setup.results = [.success(UpstreamResponse(status: 200, body: Array(#"{"access_token":"t"}"#.utf8)))]
        func envelope(_ kind: String, _ number: Int) -> String {
            let payload = """
                {"actor":{"id":"a"},"verb":"v","object":{"id":"o","objectType":"t"},"generator":{"appId":"g"},"n":\(number)}
                """
            return #"{"upstream":"seer","kind":"\#(kind)","payload":\#(payload)}"#
        }
        let kinds = ["activity", "instrumentation", "activity", "instrumentation", "activity"]
        let body = "[" + kinds.enumerated().map { envelope($1, $0) }.joined(separator: ",") + "]"
        try withGateway(setup) { gateway in
            let shown = try gateway.client.post("/v1/messages?dryRun=true", body).json["requests"].array
                .map { "\($0["url"].string ?? "") \($0["body"].string ?? "") \($0["messages"].int ?? 0)" }
            #expect(shown.count == 3)
            #expect(try gateway.client.post("/v1/messages", body).status == 202)
            var sent: [String] = []
            while sent.count < shown.count {
                try gateway.waitForOpenRequest()
                let request = try #require(gateway.transport.openRequests.first)
                let text = String(decoding: request.body, as: UTF8.self)
                sent.append("\(request.url) \(text) \(text.split(separator: "\"n\":").count - 1)")
                gateway.transport.answer(.success(UpstreamResponse(status: 200)))
            }
            #expect(sent.sorted() == shown.sorted())
        }
    }

    /// A session cannot begin later than it did.
    @Test(arguments: [("session_start", 422), ("event_end", 422), ("unregister", 202)])
    func notBefore_isRefused_withKindsThatCarryTheirTime(kind: String, status: Int) throws {
        var setup = Setup()
        let settings = try CurioSettings(["apiKey": .text("k"), "trackingCode": .text("t")])
        setup.upstreams = [CurioUpstream(UpstreamName("curio")!, settings)]
        try withPausedGateway(setup) { gateway in
            let start = SessionSample.start(at: SystemTime().now)
            #expect(try gateway.client.post("/v1/curio/session_start", start).status == 202)
            let payload = kind == "session_start" ? start : SessionSample.action(kind, at: SystemTime().now)
            let answer = try gateway.client.post(
                "/v1/messages",
                #"[{"upstream":"curio","kind":"\#(kind)","notBefore":"2050-01-01T00:00:00Z","payload":\#(payload)}]"#)
            #expect(answer.status == status, "\(answer.text)")
            if status == 422 { #expect(answer.json["errors"][0]["pointer"].string == "/notBefore") }
        }
    }

    @Test func dryRun_isTrueOrFalse() throws {
        try withPausedGateway { gateway in
            try gateway.client.post("/v1/picky/event?dryRun=perhaps", #"{"n":1}"#).problem(400, "bad-request")
            #expect(try gateway.client.post("/v1/picky/event?dryRun=false", #"{"n":1}"#).status == 202)
            #expect(gateway.queued == 1)
        }
    }
}

extension Preferences {
    /// The values that a test expects the gateway to have read.
    struct Expected: Sendable {
        var wait: Int?
        var isLenient = false
        var isMinimal = false
    }
}

/// Payloads in Curio's format.
private enum SessionSample {
    private static let location =
        #""visitorCode":"7B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01","sessionCode":"6d551000-a21d-11e4-8123-03ab5c7d9e1f""#

    static func start(at moment: Timestamp) -> String {
        let texts = [
            "lang", "simOperator", "simOpCountry", "networkOpName", "brand", "model", "osType", "osVer", "curioSdkVer",
            "appVer",
        ]
        .map { #""\#($0)":"x""# }.joined(separator: ",")
        return
            #"{\#(location),"timestamp":\#(moment.milliseconds),"screenWidth":1,"screenHeight":1,"connType":"wifi",\#(texts)}"#
    }

    static func action(_ kind: String, at moment: Timestamp) -> String {
        let more = kind == "event_end" ? #","eventKey":"k","eventValue":"v","eventDuration":1"# : ""
        return #"{\#(location),"timestamp":\#(moment.milliseconds)\#(more)}"#
    }
}

/// Takes each payload once.
private struct OnceUpstream: PlainAtHeart, StateValidatingUpstream {
    let plain = PlainUpstream("once")

    func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
        -> [StateChange]
    {
        let key = String(decoding: candidate.payload, as: UTF8.self)
        guard state.value(of: key) == nil else { throw AcceptanceError(.conflict, "was sent before") }
        return [.set(key: key, value: [1])]
    }
}
