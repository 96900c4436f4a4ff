import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternAPI

/// `POST /v1/messages/replay`.
@Suite struct ReplayTests {
    private func setup(_ change: (inout Setup) -> Void = { _ in }) -> Setup {
        var setup = Setup()
        setup.deliveredPayloads = .seconds(3600)
        change(&setup)
        return setup
    }

    /// Posts that many messages and waits until they are delivered. Returns their ids.
    private func deliver(_ count: Int, _ gateway: TestGateway, from first: Int = 0) throws -> [String] {
        gateway.transport.answerAll { _ in .status(200) }
        let bodies = (first..<first + count).map { #"{"n":\#($0)}"# }.joined(separator: ",")
        let ids = try gateway.client.post("/v1/picky/event", "[\(bodies)]").json["ids"].strings
        try #require(ids.count == count)
        for id in ids { try gateway.waitForState("delivered", of: id) }
        return ids
    }

    private func replay(_ gateway: TestGateway, _ body: String) throws -> String {
        let answer = try gateway.client.post("/v1/messages/replay", body)
        let id = try #require(answer.json["operation"].string, "\(answer.text)")
        #expect(answer.status == 202 && answer.header("Location") == "/v1/operations/\(id)")
        return id
    }

    /// The numbers of the messages in what was sent, in its order.
    private func sent(_ gateway: TestGateway) -> [Int] {
        gateway.transport.requests.flatMap { request in
            String(decoding: request.body, as: UTF8.self).matches(of: #/"n":(\d+)/#).compactMap { Int($0.output.1) }
        }
    }

    private func pause(_ gateway: TestGateway) throws {
        _ = try gateway.client.post("/v1/upstreams/picky/pause")
        try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
    }

    @Test func replay_sendsWhatWasDelivered_again_inOrder() throws {
        try withGateway(setup()) { gateway in
            let ids = try deliver(250, gateway)
            let events = try EventClient(gateway.port, "?type=operation.finished")
            let id = try replay(gateway, #"{"upstream":"picky","id":"again"}"#)
            #expect(id == "again")
            let operation = try ended(id, gateway)
            #expect(
                operation.keys == [
                    "id", "action", "upstream", "by", "startedAt", "matched", "done", "skipped", "skippedCount",
                    "finishedAt", "stopped", "error", "to", "refused", "withoutPayload",
                ])
            #expect(operation["action"].string == "replay" && operation["to"].string == "picky")
            #expect(operation["matched"].int == 250 && operation["done"].int == 250)
            #expect(operation["skippedCount"].int == 0 && operation["stopped"].bool == false)
            try #require(eventually { gateway.queued == 0 })
            #expect(sent(gateway) == Array(0..<250) + Array(0..<250))
            #expect(
                try events.next().data == #"{"upstream":"picky","ids":[],"count":250,"operation":"again"}"#)
            let copies = try gateway.client.get("/v1/messages?limit=1000").json["messages"].array.filter {
                $0["replayOf"].isThere
            }
            #expect(copies.map { $0["replayOf"].string } == ids)
            #expect(!(try gateway.message(ids[0])["replayOf"].isThere))
            #expect(try gateway.client.get("/v1/messages/\(ids[7])/payload").text == #"{"n":7}"#)
            let counted = try gateway.client.get("/metrics").text
            #expect(counted.contains(#"postern_messages_replayed_total{upstream="picky",outcome="replayed"} 250"#))
            #expect(counted.contains(#"postern_messages_accepted_total{upstream="picky",kind="event"} 500"#))
            let list = try gateway.client.get("/v1/operations").json["operations"].array
            #expect(list.map { $0["id"].string } == ["again"])
        }
    }

    @Test func preview_countsMessagesAndBytes_andStoresNothing() throws {
        try withGateway(setup()) { gateway in
            _ = try deliver(12, gateway)
            let answer = try gateway.client.post("/v1/messages/replay", #"{"upstream":"picky","dryRun":true}"#)
            #expect(answer.status == 200)
            #expect(answer.json.keys == ["replayed", "bytes", "withoutPayload", "dryRun"])
            #expect(answer.json["replayed"].int == 12 && answer.json["bytes"].int == 10 * 7 + 2 * 8)
            #expect(try gateway.client.get("/v1/operations").json["operations"].array.isEmpty)
        }
        try withGateway { gateway in
            _ = try deliver(3, gateway)
            let answer = try gateway.client.post("/v1/messages/replay", #"{"upstream":"picky","dryRun":true}"#)
            #expect(answer.json["replayed"].int == 0 && answer.json["withoutPayload"].int == 3)
        }
    }

    @Test func sameID_isTheSameReplay_andAnotherRequestIsRejected() throws {
        try withGateway(setup()) { gateway in
            _ = try deliver(5, gateway)
            _ = try replay(gateway, #"{"upstream":"picky","id":"x"}"#)
            _ = try ended("x", gateway)
            let again = try gateway.client.post("/v1/messages/replay", #"{"id":"x","upstream":"picky"}"#)
            #expect(again.status == 200 && again.json["done"].int == 5, "\(again.text)")
            #expect(try gateway.client.post("/v1/messages/replay", #"{"upstream":"picky","id":"y"}"#).status == 202)
            let other = try gateway.client.post("/v1/messages/replay", #"{"upstream":"picky","kind":"note","id":"x"}"#)
            other.problem(422, "idempotency-mismatch")
            _ = try ended("y", gateway)
            try #require(eventually { gateway.queued == 0 })
            #expect(sent(gateway).count == 15)
        }
    }

    @Test func anotherUpstream_getsThem_unlessItDoesNotAcceptThem() throws {
        let target = PickyUpstream("target")
        try withGateway(setup { $0.upstreams.append(target) }) { gateway in
            _ = try deliver(5, gateway)
            _ = try replay(gateway, #"{"upstream":"picky","to":"target","id":"a"}"#)
            let operation = try ended("a", gateway)
            #expect(operation["done"].int == 5 && operation["to"].string == "target")
            _ = try replay(gateway, #"{"upstream":"picky","to":"plain","id":"b"}"#)
            let refused = try ended("b", gateway)
            #expect(refused["done"].int == 0 && refused["refused"].int == 5 && refused["skippedCount"].int == 5)
            #expect(refused["skipped"][0]["detail"].string == "plain has no kind event")
            let kind = try gateway.client.post(
                "/v1/messages/replay", #"{"upstream":"picky","to":"plain","kind":"event"}"#)
            kind.problem(404, "unknown-kind")
        }
    }

    @Test func pausedUpstream_holdsIt_andFewAreQueuedAtATime() throws {
        try withGateway(setup()) { gateway in
            _ = try deliver(250, gateway)
            try pause(gateway)
            _ = try replay(gateway, #"{"upstream":"picky","id":"x"}"#)
            #expect(try gateway.client.get("/v1/operations/x").json["done"].int == 0)
            gateway.transport.answerAll(by: nil)
            _ = try gateway.client.post("/v1/upstreams/picky/resume")
            try gateway.waitForOpenRequest()
            // A step may queue more between the two.
            var done: Int?
            let agrees = try eventually {
                done = try gateway.client.get("/v1/operations/x").json["done"].int
                return gateway.queued == done
            }
            #expect(try agrees && #require(done) < 250)
            gateway.transport.answerAll { _ in .status(200) }
            while gateway.transport.answer(.status(200)) {}
            #expect(try ended("x", gateway)["done"].int == 250)
            try #require(eventually { gateway.queued == 0 })
            #expect(sent(gateway).suffix(250) == Array(0..<250)[...])
        }
    }

    @Test func stoppedReplay_endsWithItsStep() throws {
        try withGateway(setup()) { gateway in
            _ = try deliver(250, gateway)
            gateway.transport.answerAll(by: nil)
            _ = try replay(gateway, #"{"upstream":"picky","id":"x"}"#)
            try gateway.waitForOpenRequest()
            let stopped = try gateway.client.ask("DELETE", "/v1/operations/x").json
            #expect(stopped["stopped"].bool == true && stopped["finishedAt"].isThere)
            gateway.transport.answerAll { _ in .status(200) }
            while gateway.transport.answer(.status(200)) {}
            try #require(eventually { gateway.queued == 0 })
            let operation = try gateway.client.get("/v1/operations/x").json
            #expect(operation["done"].int == stopped["done"].int && (stopped["done"].int ?? 250) < 250)
        }
    }

    @Test func restart_goesOnWhereItWas() throws {
        let folder = ScratchFolder()
        try withGateway(setup { $0.folder = folder }) { gateway in
            _ = try deliver(250, gateway)
            gateway.transport.answerAll(by: nil)
            _ = try replay(gateway, #"{"upstream":"picky","id":"x"}"#)
            try gateway.waitForOpenRequest()
        }
        try withGateway(setup { $0.folder = folder }) { gateway in
            gateway.transport.answerAll { _ in .status(200) }
            // What was queued may have been sent already.
            while gateway.transport.answer(.status(200)) {}
            #expect(try ended("x", gateway)["done"].int == 250)
            try #require(eventually { gateway.queued == 0 })
            #expect(sent(gateway) == Array(0..<250))
        }
    }

    @Test(arguments: [
        ("{}", "/upstream"), (#"{"upstream":"unknown"}"#, "/upstream"), (#"{"upstream":"picky","to":"no"}"#, "/to"),
        (#"{"upstream":"picky","id":"a b"}"#, "/id"), (#"{"upstream":"picky","id":""}"#, "/id"),
        (#"{"upstream":"picky","settledAfter":"today"}"#, "/settledAfter"),
        (#"{"upstream":"picky","settledBefore":1}"#, "/settledBefore"),
        (#"{"upstream":"picky","dryRun":1}"#, "/dryRun"),
        (#"{"upstream":"picky","state":"failed"}"#, "/state"), ("[]", ""),
    ])
    func bodyThatIsNotValid_isRejected(body: String, pointer: String) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/messages/replay", body)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"][0]["pointer"].string == pointer, "\(answer.text)")
        }
    }

    @Test func replay_belongsToThoseWhoMayUseBothUpstreams() throws {
        try withGateway(setup { $0.upstreams.append(PickyUpstream("target")) }) { gateway in
            _ = try deliver(5, gateway)
            func key(_ name: String, _ upstreams: [String]?) -> APIKey {
                APIKey(
                    name: name, sha256: KeyText.digest(of: name), scopes: [.read, .admin],
                    upstreams: upstreams.map { Set($0.compactMap { UpstreamName($0) }) })
            }
            gateway.handler.replaceKeys(
                [
                    key("all", nil), key("picky", ["picky"]), key("both", ["picky", "target"]),
                    key("target", ["target"]),
                ],
                opensMetrics: false)
            func bearer(_ name: String) -> [(String, String)] { [("Authorization", "Bearer \(name)")] }
            func status(_ body: String, _ name: String) throws -> Int {
                try gateway.client.post("/v1/messages/replay", body, headers: bearer(name)).status
            }
            let across = #"{"upstream":"picky","to":"target","id":"x"}"#
            #expect(try status(across, "picky") == 403 && status(across, "target") == 403)
            #expect(try status(across, "both") == 202)
            try #require(
                try eventually {
                    try gateway.client.ask("GET", "/v1/operations/x", headers: bearer("all")).json["finishedAt"].isThere
                })
            for (name, seen) in [("all", 200), ("both", 200), ("picky", 404), ("target", 404)] {
                #expect(
                    try gateway.client.ask("GET", "/v1/operations/x", headers: bearer(name)).status == seen, "\(name)")
                let list = try gateway.client.ask("GET", "/v1/operations", headers: bearer(name)).json["operations"]
                    .array
                #expect(list.count == (seen == 200 ? 1 : 0), "\(name)")
            }
            #expect(try status(across, "all") == 200)
        }
    }
}
