import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// `POST /v1/cloudevents`: CloudEvents 1.0.2 in the JSON format, in all three modes.
@Suite struct CloudEventTests {
    private static let path = "/v1/cloudevents"
    private static let structured = "application/cloudevents+json; charset=UTF-8"
    private static let batch = "application/cloudevents-batch+json"

    private static func event(
        _ id: String = "1", source: String = "/shop", type: String = "picky.event", _ rest: String = #""data":{"n":1}"#
    ) -> String {
        #"{"specversion":"1.0","id":"\#(id)","source":"\#(source)","type":"\#(type)",\#(rest)}"#
    }

    private func post(
        _ body: String, _ type: String = Self.structured, _ headers: [(String, String)] = [], to gateway: TestGateway,
        query: String = ""
    ) throws -> HTTPClient.Answer {
        try gateway.client.post(Self.path + query, body, headers: [("Content-Type", type)] + headers)
    }

    private func payload(_ id: String?, in gateway: TestGateway) throws -> String {
        let id = try #require(id.flatMap { MessageID($0) })
        let message = try #require(try gateway.outbox.message(id, payload: true))
        return String(decoding: message.payload ?? [], as: UTF8.self)
    }

    // MARK: The three modes

    @Test func structuredEvent_isTakenLikeAPayload() throws {
        try withPausedGateway { gateway in
            let answer = try post(
                Self.event(
                    "2",
                    #""time":"2026-01-31T12:00:00Z","partitionkey":"p","subject":"s","data":{ "n" : 1.0e0, "n2":1 }"#),
                to: gateway)
            #expect(answer.status == 422, "the data is checked as any payload is")
            let good = try post(
                Self.event("2", #""partitionkey":"p","subject":"s","other":true,"data":{ "n" : 1 }"#), to: gateway)
            #expect(good.status == 202, "\(good.text)")
            #expect(good.json["upstream"].string == "picky" && good.json["kind"].string == "event")
            let id = good.json["id"].string
            #expect(good.header("Location") == "/v1/messages/\(id ?? "")")
            #expect(try gateway.message(id ?? "")["key"].string == "p")
            #expect(try payload(id, in: gateway) == #"{ "n" : 1 }"#)
        }
    }

    @Test func subject_isTheKey_withoutAPartitionKey() throws {
        try withPausedGateway { gateway in
            let id = try post(Self.event("1", #""subject":"s","data":{"n":1}"#), to: gateway).json["id"].string
            #expect(try gateway.message(id ?? "")["key"].string == "s")
        }
    }

    @Test func batch_isTakenInItsOrder() throws {
        try withPausedGateway { gateway in
            let events = (1...3).map { Self.event("\($0)", type: "picky.note", #""data":{"n":\#($0)}"#) }
            let answer = try post("[\(events.joined(separator: ","))]", Self.batch, to: gateway)
            #expect(answer.status == 202 && answer.json["accepted"].int == 3, "\(answer.text)")
            let payloads = try answer.json["ids"].strings.map { try payload($0, in: gateway) }
            #expect(payloads == [#"{"n":1}"#, #"{"n":2}"#, #"{"n":3}"#])
            #expect(try post("[]", Self.batch, to: gateway).json["accepted"].int == 0)
        }
    }

    @Test func binaryEvent_hasItsAttributesInHeaders() throws {
        try withPausedGateway { gateway in
            let headers = [
                ("ce-specversion", "1.0"), ("CE-Id", "a%20%22b"), ("ce-source", "urn:a"), ("ce-type", "picky.event"),
                ("ce-subject", "\"Euro %E2%82%AC\""), ("ce-other", "1"),
            ]
            let answer = try post(#" {"n": 1} "#, "application/json", headers, to: gateway)
            #expect(answer.status == 202, "\(answer.text)")
            let id = answer.json["id"].string
            #expect(try payload(id, in: gateway) == #"{"n": 1}"#)
            #expect(try gateway.message(id ?? "")["key"].string == "Euro \u{20AC}")
            let same = Self.event(#"a \"b"#, source: "urn:a", #""subject":"Euro €","data":{"n": 1}"#)
            #expect(try post(same, to: gateway).json["id"].string == id, "the same event in another mode")
        }
    }

    @Test func attributeInTwoHeaders_isRejected() throws {
        try withPausedGateway { gateway in
            let headers = [
                ("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-id", "2"), ("ce-source", "urn:a"),
                ("ce-type", "picky.event"),
            ]
            let answer = try post(#"{"n":1}"#, "application/json", headers, to: gateway)
            answer.problem(422, "invalid-payload")
            #expect(answer.text.contains("the header ce-id is given more than once"))
        }
    }

    /// Two identities that are not text must not become the same one.
    @Test(arguments: [
        ("ce-id", [UInt8]("%FF".utf8)), ("ce-id", Array("%FE".utf8)), ("ce-id", [0x63, 0x61, 0x66, 0xE9]),
        ("ce-id", Array(#""a%C3""#.utf8)), ("ce-source", Array("https://x/%FF".utf8)), ("ce-subject", [0xC3]),
        ("ce-type", Array("%FF".utf8)), ("ce-partitionkey", Array("%ED%A0%80".utf8)),
        ("ce-traceparent", Array("%FF".utf8)), ("ce-other", Array("%FF".utf8)), ("ce-other", [0xFF]),
    ])
    func attributeThatIsNotUTF8_isRejected(name: String, value: [UInt8]) throws {
        try withPausedGateway { gateway in
            let others = [
                ("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/a"), ("ce-type", "picky.event"),
            ].filter { $0.0 != name }
            let lines = others.map { "\($0): \($1)\r\n" }.joined()
            let head = "POST \(Self.path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\(lines)\(name): "
            gateway.client.send(Array(head.utf8) + value + Array("\r\n\r\n{\"n\":1}".utf8))
            let answer = try gateway.client.answer()
            answer.problem(422, "invalid-payload")
            #expect(answer.text.contains("the header \(name) is not valid UTF-8"), "\(answer.text)")
            #expect(gateway.queued == 0)
        }
    }

    /// SDKs for Go and Java send a URI as it is, others encode its `%`.
    @Test(arguments: [
        ("https://x/a%20b", "https://x/a%20b"), ("https://x/a%2520b", "https://x/a%20b"),
        ("https://x/%C3%A9", "https://x/%C3%A9"), ("urn:a%3Ab", "urn:a:b"),
    ])
    func sourceWithEscapes_isTheOneOfStructuredMode(header: String, source: String) throws {
        try withPausedGateway { gateway in
            let attributes = [
                ("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", header), ("ce-type", "picky.event"),
                ("ce-dataschema", header),
            ]
            let binary = try post(#"{"n":1}"#, "application/json", attributes, to: gateway)
            #expect(binary.status == 202, "\(binary.text)")
            let structured = try post(Self.event("1", source: source), to: gateway)
            #expect(structured.json["id"].string == binary.json["id"].string, "\(structured.text)")
        }
    }

    // MARK: Traces

    private func traces(in gateway: TestGateway) throws -> [String?] {
        let queue = gateway.workers[0].queue
        let claim = try queue.claim(
            BatchLimits(maxMessages: 10, maxBytes: 1 << 20), now: SystemTime().now, oldest: nil)
        queue.giveBack(claim, now: SystemTime().now)
        return claim.messages.map { $0.traceParent?.suffix(4).description }
    }

    private static func trace(_ flags: String) -> String {
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-\(flags)"
    }

    /// Distributed Tracing extension of CloudEvents 1.0.2.
    @Test func trace_isThatOfTheEvent_orElseOfTheRequest() throws {
        let header = ("traceparent", Self.trace("01"))
        func event(_ id: String, _ trace: String) -> String {
            Self.event(id, #""traceparent":\#(trace),"tracestate":"a=1","data":{"n":1}"#)
        }
        let events = [
            event("1", "\"\(Self.trace("0a"))\""), Self.event("2"), event("3", "null"), event("4", "\"not a trace\""),
        ]
        let expected = ["1-0a", "1-01", "1-01", "1-01"]
        try withPausedGateway { gateway in
            #expect(try post("[\(events.joined(separator: ","))]", Self.batch, [header], to: gateway).status == 202)
            #expect(try traces(in: gateway) == expected)
            try post(event("5", "7"), to: gateway).problem(422, "invalid-payload")
        }
        try withPausedGateway { gateway in
            for event in events { _ = try post(event, Self.structured, [header], to: gateway) }
            #expect(try traces(in: gateway) == expected)
        }
        try withPausedGateway { gateway in
            let headers = [
                ("ce-specversion", "1.0"), ("ce-source", "/a"), ("ce-type", "picky.event"), header,
            ]
            for more in [[("ce-id", "1"), ("ce-traceparent", Self.trace("0b"))], [("ce-id", "2")]] {
                let answer = try post(#"{"n":1}"#, "application/json", headers + more, to: gateway)
                #expect(answer.status == 202, "\(answer.text)")
            }
            #expect(try traces(in: gateway) == ["1-0b", "1-01"])
        }
        // The same event in another span is repeated, not another event.
        try withPausedGateway { gateway in
            let ids = try ["0a", "0b"].map {
                try post(event("1", "\"\(Self.trace($0))\""), to: gateway).json["id"].string
            }
            #expect(ids[0] != nil && ids[0] == ids[1])
            #expect(try traces(in: gateway) == ["1-0a"])
        }
    }

    @Test func dataOfNoStatedType_isJSON_inABinaryEvent() throws {
        try withPausedGateway { gateway in
            func post(_ headers: String) throws -> HTTPClient.Answer {
                let head = "POST \(Self.path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\(headers)\r\n"
                gateway.client.send(Array((head + #"{"n":1}"#).utf8))
                return try gateway.client.answer()
            }
            let event = "ce-specversion: 1.0\r\nce-id: 1\r\nce-source: /a\r\nce-type: picky.event\r\n"
            let answer = try post(event)
            #expect(answer.status == 202, "\(answer.text)")
            try post("").problem(415, "unsupported-media-type")
        }
    }

    @Test func otherFormats_areRefused() throws {
        try withPausedGateway { gateway in
            for type in [
                "application/cloudevents+avro", "application/cloudevents", "application/cloudevents-batch+xml",
                "text/xml",
                "application/cloudevents+json; charset=latin1",
            ] {
                let answer = try post(Self.event(), type, to: gateway)
                answer.problem(415, "unsupported-media-type")
                #expect(answer.header("Accept-Post")?.contains("application/cloudevents-batch+json") == true)
            }
            #expect(gateway.queued == 0)
        }
    }

    // MARK: Attributes

    @Test(arguments: [
        (#""id":"1","source":"/a","type":"picky.event""#, "/specversion"),
        (#""specversion":"0.3","id":"1","source":"/a","type":"picky.event""#, "/specversion"),
        (#""specversion":1.0,"id":"1","source":"/a","type":"picky.event""#, "/specversion"),
        (#""specversion":"1.0","source":"/a","type":"picky.event""#, "/id"),
        (#""specversion":"1.0","id":"","source":"/a","type":"picky.event""#, "/id"),
        (#""specversion":"1.0","id":null,"source":"/a","type":"picky.event""#, "/id"),
        (#""specversion":"1.0","id":7,"source":"/a","type":"picky.event""#, "/id"),
        (#""specversion":"1.0","id":"a\u0000b","source":"/a","type":"picky.event""#, "/id"),
        (#""specversion":"1.0","id":"1","type":"picky.event""#, "/source"),
        (#""specversion":"1.0","id":"1","source":"","type":"picky.event""#, "/source"),
        (#""specversion":"1.0","id":"1","source":"not a URI","type":"picky.event""#, "/source"),
        (#""specversion":"1.0","id":"1","source":"/a""#, "/type"),
        (#""specversion":"1.0","id":"1","source":"/a","type":"com.example.click""#, "/type"),
        (#""specversion":"1.0","id":"1","source":"/a","type":"picky.unknown""#, "/type"),
        (#""specversion":"1.0","id":"1","source":"/a","type":"picky""#, "/type"),
        (#""specversion":"1.0","id":"1","source":"/a","type":"picky.event","time":"yesterday""#, "/time"),
        (#""specversion":"1.0","id":"1","source":"/a","type":"picky.event","subject":"""#, "/subject"),
        (#""specversion":"1.0","id":"1","source":"/a","type":"picky.event","dataschema":"""#, "/dataschema"),
        (#""specversion":"1.0","id":"1","source":"/a","type":"picky.event","partitionkey":1"#, "/partitionkey"),
        (
            #""specversion":"1.0","id":"1","source":"/a","type":"picky.event","datacontenttype":"text/xml""#,
            "/datacontenttype"
        ),
        (#""specversion":"1.0","id":"1","source":"/a","type":"picky.event","data_base64":"e30=""#, "/data_base64"),
    ])
    func eventThatIsNotValid_isRefused(attributes: String, pointer: String) throws {
        try withPausedGateway { gateway in
            let data = attributes.contains("data_base64") ? "" : #","data":{"n":1}"#
            let answer = try post("{\(attributes)\(data)}", to: gateway)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"].array.map { $0["pointer"].string } == [pointer], "\(answer.text)")
            #expect(gateway.queued == 0)
        }
    }

    @Test func optionalAttributes_areTaken() throws {
        try withPausedGateway { gateway in
            let more = """
                "time":"2018-04-05T17:31:00.123456789+02:00","dataschema":"https://example.com/s#1","subject":null,
                "datacontenttype":"application/vnd.a+json; charset=utf-8","data":{"n":1}
                """
            let answer = try post(Self.event("1", more), to: gateway)
            #expect(answer.status == 202, "\(answer.text)")
        }
    }

    @Test func attributesOfABinaryEvent_areNamedAsHeaders() throws {
        try withPausedGateway { gateway in
            let answer = try post(#"{"n":1}"#, "application/json", [("ce-id", "1"), ("ce-source", "/a")], to: gateway)
            answer.problem(422, "invalid-payload")
            let details = answer.json["errors"].array.map { $0["detail"].string ?? "" }
            #expect(details.count == 2 && details[0].hasPrefix("the header ce-specversion"), "\(answer.text)")
        }
    }

    @Test func faultsOfData_areFoundInTheEvent() throws {
        try withPausedGateway { gateway in
            let answer = try post(
                "[\(Self.event("1")),\(Self.event("2", #""data":{"n":true}"#)),\(Self.event("3", #""subject":"s""#))]",
                Self.batch, to: gateway)
            answer.problem(422, "invalid-payload")
            let errors = answer.json["errors"].array.map { "\($0["index"].int ?? -1)\($0["pointer"].string ?? "")" }
            #expect(errors == ["1/data/n", "2/data"])
            #expect(gateway.queued == 0)
        }
    }

    @Test func mappedType_goesWhereTheSettingSays() throws {
        try withPausedGateway { gateway in
            gateway.context.setEventTypes(["com.example.click": "picky.note"])
            let answer = try post(Self.event(type: "com.example.click"), to: gateway)
            #expect(answer.json["kind"].string == "note", "\(answer.text)")
        }
    }

    @Test func keyOfAnotherUpstream_isNotLetIn() throws {
        try withPausedGateway { gateway in
            let key = APIKey(
                name: "a", sha256: KeyText.digest(of: "key-a"), scopes: [.write], upstreams: [UpstreamName("plain")!])
            gateway.handler.replaceKeys([key], opensMetrics: false)
            try post(Self.event(), Self.structured, [("Authorization", "Bearer key-a")], to: gateway)
                .problem(403, "forbidden")
        }
    }

    @Test func dryRun_showsTheRequest_andRemembersNothing() throws {
        try withPausedGateway { gateway in
            #expect(try post(Self.event(), to: gateway, query: "?dryRun=true").status == 200)
            let answer = try post(Self.event(), to: gateway)
            #expect(answer.status == 202 && answer.header("Idempotent-Replay") == nil)
        }
    }

    // MARK: Repeats

    @Test func repeatedEvent_getsTheFirstResponse_andIsStoredOnce() throws {
        try withPausedGateway { gateway in
            let first = try post(Self.event(), to: gateway)
            #expect(first.status == 202 && first.header("Idempotent-Replay") == nil)
            let again = try post(Self.event(), to: gateway)
            #expect(again.status == 202 && again.body == first.body && again.header("Idempotent-Replay") == "true")
            #expect(gateway.queued == 1)
            #expect(try gateway.outbox.audit().isBalanced)
            #expect(try post(Self.event("2"), to: gateway).body != first.body)
            #expect(try post(Self.event(source: "/other"), to: gateway).body != first.body)
            #expect(gateway.queued == 3)
        }
    }

    @Test func repeatedEvents_ofABatch_keepTheirIDs() throws {
        try withPausedGateway { gateway in
            let first = try post(Self.event("1"), to: gateway).json["id"].string
            let body = "[\(["0", "1", "2", "0"].map { Self.event($0) }.joined(separator: ","))]"
            let batch = try post(body, Self.batch, to: gateway)
            let ids = batch.json["ids"].strings
            #expect(batch.status == 202 && ids.count == 4 && batch.header("Idempotent-Replay") == nil, "\(batch.text)")
            #expect(ids[1] == first && ids[3] == ids[0] && Set(ids).count == 3)
            #expect(gateway.queued == 3)
            let again = try post(body, Self.batch, to: gateway)
            #expect(again.body == batch.body && again.header("Idempotent-Replay") == "true")
            #expect(gateway.queued == 3)
            #expect(try gateway.sample(#"postern_messages_accepted_total{upstream="picky",kind="event"}"#) == 3)
        }
    }

    @Test func otherEvent_withTheSameIdentity_isRefused() throws {
        try withPausedGateway { gateway in
            #expect(try post(Self.event(), to: gateway).status == 202)
            let other = Self.event("1", #""data":{"n":2}"#)
            try post(other, to: gateway).problem(422, "idempotency-mismatch")
            let batch = try post("[\(Self.event("2")),\(other)]", Self.batch, to: gateway)
            batch.problem(422, "idempotency-mismatch")
            #expect(batch.json["errors"][0]["index"].int == 1)
            #expect(gateway.queued == 1)
        }
    }

    @Test func repeatedEvent_isFound_afterARestart() throws {
        var setup = Setup()
        setup.folder = ScratchFolder()
        var first: HTTPClient.Answer?
        try withPausedGateway(setup) { first = try post(Self.event(), to: $0) }
        try withPausedGateway(setup) { gateway in
            let again = try post(Self.event(), to: gateway)
            #expect(again.body == first?.body)
            #expect(gateway.queued == 1)
        }
    }

    @Test func event_isForgotten_afterItsRetention() throws {
        var setup = Setup()
        let time = ManualTime()
        setup.time = time
        try withPausedGateway(setup) { gateway in
            let first = try post(Self.event(), to: gateway)
            time.advance(by: .seconds(86_400))
            let next = try post(Self.event(), to: gateway)
            #expect(next.status == 202 && next.body != first.body)
            #expect(try post(Self.event(), to: gateway).body == next.body)
        }
    }

    @Test func idempotencyKey_winsOverTheIdentity() throws {
        try withPausedGateway { gateway in
            let key = [("Idempotency-Key", "one")]
            let first = try post(Self.event(), Self.structured, key, to: gateway)
            #expect(try post(Self.event(), Self.structured, key, to: gateway).body == first.body)
            #expect(try post(Self.event(), to: gateway).body != first.body)
            #expect(gateway.queued == 2)
        }
    }

    @Test func eachAPIKey_hasEventsOfItsOwn() throws {
        try withPausedGateway { gateway in
            let keys = ["a", "b"].map { APIKey(name: $0, sha256: KeyText.digest(of: "key-\($0)"), scopes: [.write]) }
            gateway.handler.replaceKeys(keys, opensMetrics: false)
            let ids = try ["a", "b", "a"].map { key in
                try post(Self.event(), Self.structured, [("Authorization", "Bearer key-\(key)")], to: gateway)
                    .json["id"].string
            }
            #expect(ids[0] == ids[2] && ids[0] != ids[1])
        }
    }

    @Test func sameEventAtOnce_fromManyClients_isStoredOnce() throws {
        try withPausedGateway { gateway in
            let clients = try (0..<100).map { _ in try HTTPClient(port: gateway.port) }
            for client in clients {
                client.sendRequest(
                    "POST", Self.path, Array(Self.event().utf8), headers: [("Content-Type", Self.structured)])
            }
            let answers = try clients.map { try $0.answer() }
            #expect(answers.allSatisfy { $0.status == 202 })
            #expect(Set(answers.map(\.text)).count == 1)
            #expect(answers.filter { $0.header("Idempotent-Replay") == nil }.count == 1)
            #expect(gateway.queued == 1)
        }
    }

    // MARK: Waiting for repeats

    @Test func repeatOfASettledEvent_thatWaits_getsItsEnd() throws {
        var setup = Setup()
        setup.results = [.status(200, "{}"), .status(422, "no")]
        try withGateway(setup) { gateway in
            let wait = [("Prefer", "wait=60")]
            let first = try post(Self.event(), Self.structured, wait, to: gateway)
            #expect(first.status == 200 && first.header("Idempotent-Replay") == nil, "\(first.text)")
            let again = try post(Self.event(), Self.structured, wait, to: gateway)
            #expect(again.status == 200 && again.body == first.body, "\(again.text)")
            #expect(again.header("Idempotent-Replay") == "true")
            try post(Self.event("2"), Self.structured, wait, to: gateway).problem(502, "delivery-failed")
            try post(Self.event("2"), Self.structured, wait, to: gateway).problem(502, "delivery-failed")
            #expect(gateway.transport.requests.count == 2)
        }
    }

    @Test func batchWithARepeat_waitsForItsNewEvents() throws {
        var setup = Setup()
        setup.results = [.status(200, "{}"), .status(200, "{}")]
        try withGateway(setup) { gateway in
            let wait = [("Prefer", "wait=60")]
            let first = try post(Self.event(), Self.structured, wait, to: gateway).json["id"].string
            let mixed = try post("[\(Self.event()),\(Self.event("2"))]", Self.batch, wait, to: gateway)
            #expect(mixed.status == 200, "\(mixed.text)")
            #expect(mixed.json["messages"].array.map { $0["state"].string } == ["delivered", "delivered"])
            #expect(mixed.json["messages"][0]["id"].string == first)
        }
    }

    @Test func repeatOfAnOpenEvent_waitsAsTheFirstDoes() throws {
        var setup = Setup()
        setup.results = []
        try withGateway(setup) { gateway in
            #expect(try post(Self.event(), to: gateway).status == 202)
            let waiting = try HTTPClient(port: gateway.port)
            waiting.sendRequest(
                "POST", Self.path, Array(Self.event().utf8),
                headers: [("Content-Type", Self.structured), ("Prefer", "wait=60")])
            try gateway.waitForOpenRequest()
            gateway.transport.answer(.status(200, "{}"))
            #expect(try waiting.answer().status == 200)
        }
    }

    // MARK: Lenient requests

    @Test func lenientBatch_leavesOutWhatHasTheIdentityOfAnotherEvent() throws {
        try withPausedGateway { gateway in
            #expect(try post(Self.event(), to: gateway).status == 202)
            let other = Self.event("1", #""data":{"n":2}"#)
            let answer = try post(
                "[\(Self.event("2")),\(other),\(Self.event("3", type: "no.such")),\(Self.event("4")),\(other)]",
                Self.batch,
                [("Prefer", "handling=lenient")], to: gateway)
            #expect(answer.status == 202 && answer.json["accepted"].int == 2, "\(answer.text)")
            #expect(answer.json["ids"].array.count == 2)
            #expect(answer.json["rejected"].array.map { $0["index"].int } == [1, 2, 4])
            #expect(gateway.queued == 3)
            let strict = try post("[\(Self.event("5")),\(other),\(other)]", Self.batch, to: gateway)
            strict.problem(422, "idempotency-mismatch")
            #expect(strict.json["errors"].array.map { $0["index"].int } == [1, 2])
            #expect(gateway.queued == 3)
        }
    }
}
