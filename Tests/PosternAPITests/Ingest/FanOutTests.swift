import Foundation
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing
import WebhookAdapter

@testable import PosternAPI

/// Kinds whose payloads become a message of each of several other kinds.
@Suite struct FanOutTests {
    /// `shop/all` goes to its own kind `copy`, to `plain/thing`, and to `picky/event`, which wants an integer `n`.
    private static func setup() throws -> Setup {
        let folder = ScratchFolder()
        let schema = folder.file("all.json")
        try Data(#"{"type":"object","properties":{"n":{"type":["integer","string"]}}}"#.utf8)
            .write(to: URL(fileURLWithPath: schema))
        let settings: [String: SettingValue] = [
            "url": .text("http://shop.test"), "orderBy": .text("/name"),
            "kinds": .objects([
                "all": ["fanOut": .list(["copy", "plain/thing", "picky/event"]), "schema": .text(schema)],
                "copy": ["path": "/copies"], "alone": ["fanOut": .list(["copy"])],
            ]),
        ]
        var setup = Setup()
        setup.upstreams += [try UpstreamType.webhook.make(#require(UpstreamName("shop")), settings)]
        return setup
    }

    private static let path = "/v1/shop/all"

    private func withShop(_ change: (inout Setup) -> Void = { _ in }, _ body: (TestGateway) throws -> Void) throws {
        var setup = try Self.setup()
        change(&setup)
        try withPausedGateway(setup, body)
    }

    private func ids(_ answer: HTTPClient.Answer) -> [String] { answer.json["ids"].array.compactMap(\.string) }

    private func kinds(of ids: [String], in gateway: TestGateway) throws -> [String] {
        try ids.map { id in
            let message = try gateway.message(id)
            return "\(message["upstream"].string ?? "")/\(message["kind"].string ?? "")"
        }
    }

    private static let legs = ["shop/copy", "plain/thing", "picky/event"]

    @Test func payload_becomesAMessageOfEachLeg() throws {
        try withShop { gateway in
            let answer = try gateway.client.post(Self.path, #"{"n": 1, "name":"a"}"#)
            #expect(answer.status == 202 && answer.json["accepted"].int == 3, "\(answer.text)")
            #expect(answer.header("Location") == nil)
            let ids = ids(answer)
            try #require(ids.count == 3)
            #expect(try kinds(of: ids, in: gateway) == Self.legs)
            for id in ids {
                #expect(
                    try gateway.client.ask("GET", "/v1/messages/\(id)/payload").text == #"{"n": 1, "name":"a"}"#)
            }
            #expect(try gateway.message(ids[0])["lane"].string == "a", "it is that of the leg")
            #expect(try gateway.client.post("/v1/shop/alone", "{}").json["ids"].array.count == 1)
        }
    }

    @Test func ids_areInTheOrderOfTheMessages_thenOfTheLegs() throws {
        try withShop { gateway in
            let lines = [("Content-Type", "application/x-ndjson")]
            for answer in [
                try gateway.client.post(Self.path, #"[{"n":1},{"n":2}]"#),
                try gateway.client.post(Self.path, "{\"n\":1}\n{\"n\":2}", headers: lines),
                try gateway.client.post(
                    "/v1/messages",
                    #"[{"upstream":"shop","kind":"all","payload":{"n":1}},{"upstream":"shop","kind":"all","payload":{"n":2}}]"#
                ),
            ] {
                #expect(answer.json["accepted"].int == 6, "\(answer.text)")
                #expect(try kinds(of: ids(answer), in: gateway) == Self.legs + Self.legs)
                for (index, id) in ids(answer).enumerated() {
                    let payload = try gateway.client.ask("GET", "/v1/messages/\(id)/payload").text
                    #expect(payload == #"{"n":\#(index / 3 + 1)}"#)
                }
            }
        }
    }

    // MARK: All or nothing

    @Test func legThatRejects_isNamed_andNothingIsStored() throws {
        try withShop { gateway in
            for (path, body, pointer) in [
                (Self.path, #"{"n":"x"}"#, "/n"), (Self.path, #"[{"n":1},{"n":"x"}]"#, "/n"),
                ("/v1/messages", #"{"upstream":"shop","kind":"all","payload":{"n":"x"}}"#, "/payload/n"),
            ] {
                let answer = try gateway.client.post(path, body)
                answer.problem(422, "invalid-payload")
                let errors = answer.json["errors"].array
                #expect(errors.map { $0["pointer"].string } == [pointer], "\(answer.text)")
                #expect(errors.first?["detail"].string == "must be an integer, as picky/event requires")
            }
            #expect(gateway.queued == 0)
        }
    }

    @Test func schemaOfTheFanOut_isCheckedFirst() throws {
        try withShop { gateway in
            let answer = try gateway.client.post(Self.path, #"{"n":true}"#)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"].array.count == 1)
            #expect(answer.json["errors"].array.first?["detail"].string == "must be of type integer or string")
        }
    }

    @Test func lenientRequest_storesThePayloads_thatAllLegsAccept() throws {
        try withShop { gateway in
            let lenient = [("Prefer", "handling=lenient")]
            let answer = try gateway.client.post(Self.path, #"[{"n":"x"},{"n":2}]"#, headers: lenient)
            #expect(answer.json["accepted"].int == 3, "\(answer.text)")
            #expect(answer.json["rejected"].array.map { $0["index"].int } == [0])
            #expect(gateway.queued == 3)
        }
    }

    /// The writer stores the legs in one transaction.
    @Test func fullQueueOfOneLeg_rejectsAll() throws {
        try withShop {
            $0.caps["plain"] = QueueCap.with { $0.maxMessages = 1 }
        } _: { gateway in
            #expect(try gateway.client.post(Self.path, #"{"n":1}"#).status == 202)
            try gateway.client.post(Self.path, #"{"n":2}"#).problem(503, "outbox-full")
            #expect(gateway.queued == 3)
        }
    }

    @Test func limits_countEachLeg() throws {
        try withShop {
            $0.limits.maxMessagesPerRequest = 5
        } _: { gateway in
            #expect(try gateway.client.post(Self.path, #"[{"n":1}]"#).status == 202)
            try gateway.client.post(Self.path, #"[{"n":1},{"n":2}]"#).problem(413, "payload-too-large")
            #expect(gateway.queued == 3)
        }
    }

    // MARK: Who may post

    @Test func key_needsTheUpstreamsOfAllLegs() throws {
        try withShop { gateway in
            func key(_ name: String, _ upstreams: [String]) -> APIKey {
                APIKey(
                    name: name, sha256: KeyText.digest(of: "key-\(name)"), scopes: [.write],
                    upstreams: Set(upstreams.compactMap { UpstreamName($0) }), limits: RateLimits())
            }
            gateway.handler.replaceKeys(
                [key("shop", ["shop"]), key("all", ["shop", "plain", "picky"])], opensMetrics: false)
            func post(_ name: String) throws -> HTTPClient.Answer {
                try gateway.client.post(
                    Self.path, #"{"n":1}"#, headers: [("Authorization", "Bearer key-\(name)")])
            }
            try post("shop").problem(403, "forbidden")
            #expect(gateway.queued == 0)
            #expect(try post("all").status == 202)
        }
    }

    // MARK: Repeats

    @Test func repeat_getsTheSameIds() throws {
        try withShop { gateway in
            let key = [("Idempotency-Key", "one")]
            let first = try gateway.client.post(Self.path, #"{"n":1}"#, headers: key)
            let again = try gateway.client.post(Self.path, #"{"n":1}"#, headers: key)
            #expect(ids(first).count == 3 && ids(again) == ids(first))
            #expect(again.header("Idempotent-Replay") == "true")
            #expect(gateway.queued == 3)
        }
    }

    @Test func event_isStoredOnce_forEachLeg() throws {
        try withShop { gateway in
            func post(_ n: Int) throws -> HTTPClient.Answer {
                let event =
                    #"{"specversion":"1.0","id":"1","source":"/a","type":"shop.all","subject":"s","data":{"n":\#(n)}}"#
                return try gateway.client.post(
                    "/v1/cloudevents", event, headers: [("Content-Type", "application/cloudevents+json")])
            }
            let first = try post(1)
            #expect(first.status == 202 && ids(first).count == 3, "\(first.text)")
            let again = try post(1)
            #expect(ids(again) == ids(first) && again.header("Idempotent-Replay") == "true")
            try post(2).problem(422, "idempotency-mismatch")
            #expect(gateway.queued == 3)
        }
    }

    // MARK: Afterwards

    @Test func legs_endIndependently() throws {
        var setup = try Self.setup()
        setup.paused = ["plain"]
        try withGateway(setup) { gateway in
            gateway.transport.answerAll { $0.url.contains("shop.test") ? .status(400, "no") : .status(200) }
            let ids = ids(try gateway.client.post(Self.path, #"{"n":1}"#))
            try #require(ids.count == 3)
            try gateway.wait(for: "state", "failed", of: ids[0])
            try gateway.wait(for: "state", "delivered", of: ids[2])
            #expect(try gateway.client.ask("DELETE", "/v1/messages/\(ids[1])").status == 200)
            #expect(try gateway.message(ids[1])["state"].string == "cancelled")
        }
    }

    @Test func callerThatWaits_getsTheEndOfEachLeg() throws {
        try withGateway(try Self.setup()) { gateway in
            gateway.transport.answerAll { $0.url.contains("shop.test") ? .status(400, "no") : .status(200) }
            let answer = try gateway.client.post(Self.path, #"{"n":1}"#, headers: [("Prefer", "wait=60")])
            #expect(answer.status == 200, "\(answer.text)")
            #expect(answer.json["messages"].array.map { $0["state"].string } == ["failed", "delivered", "delivered"])
        }
    }

    @Test func schedule_isThatOfEachLeg() throws {
        try withGateway(try Self.setup()) { gateway in
            let envelope =
                #"{"upstream":"shop","kind":"all","payload":{"n":1},"key":"k","notBefore":"2126-01-01T00:00:00Z"}"#
            let ids = ids(try gateway.client.post("/v1/messages", envelope))
            #expect(ids.count == 3)
            for id in ids { #expect(try gateway.message(id)["nextAttemptAt"].string == "2126-01-01T00:00:00.000Z") }
        }
    }

    @Test func dryRun_showsTheRequestOfEachLeg() throws {
        try withShop { gateway in
            let answer = try gateway.client.post(Self.path + "?dryRun=true", #"{"n":1}"#)
            #expect(
                answer.json["requests"].array.compactMap { $0["upstream"].string }.sorted() == [
                    "picky", "plain", "shop",
                ])
            #expect(gateway.queued == 0)
        }
    }
}
