import InMemoryLogging
import Logging
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI
@testable import PosternDelivery

/// Design, section 3.2: reading, resending, and cancelling messages.
@Suite struct MessageTests {
    @Test func message_hasAllItsMembers() throws {
        try withPausedGateway { gateway in
            let id = try gateway.accept()
            let message = try gateway.message(id)
            #expect(
                message.keys == [
                    "id", "upstream", "kind", "state", "key", "via", "lane", "attempts", "createdAt", "nextAttemptAt",
                    "settledAt",
                    "waitingFor", "lastError", "result",
                ])
            #expect(message["id"].string == id)
            #expect(message["attempts"].int == 0)
            #expect(message["createdAt"].string?.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil)
        }
    }

    @Test func include_addsPayloadAndAttempts() throws {
        var setup = Setup()
        setup.results = [.status(422, "no")]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitForState("failed", of: id)
            let message = try gateway.message(id, include: "payload,attempts")
            #expect(message["payload"]["n"].int == 1)
            let attempts = message["attemptLog"].array
            #expect(attempts.count == 1)
            #expect(attempts[0]["outcome"].string == "rejected")
            #expect(attempts[0]["status"].int == 422)
            #expect(attempts[0]["messages"].int == 1)
            #expect(attempts[0]["startedAt"].isThere && attempts[0]["endedAt"].isThere)
            #expect(message["lastError"]["class"].string == "refused")
            #expect(message["lastError"]["status"].int == 422)
            #expect(message["lastError"]["at"].isThere)
            #expect(try !(gateway.message(id, include: "attempts"))["payload"].isThere)
        }
    }

    @Test func batch_hasAReceipt_withTheIdsItCarried() throws {
        var setup = Setup()
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitForState("delivered", of: id)
            let batch = try #require(try gateway.message(id, include: "attempts")["attemptLog"][0]["batch"].string)
            let receipt = try gateway.client.get("/v1/upstreams/picky/batches/\(batch)").json
            #expect(receipt["ids"].array.map(\.string) == [id])
            #expect(receipt["outcome"].string == "delivered")
            #expect(receipt["status"].int == 200)
            #expect(try gateway.client.get("/v1/upstreams/picky/batches/999").status == 404)
        }
    }

    // MARK: Lists

    @Test func list_isInOrderOfAcceptance_pageByPage() throws {
        try withPausedGateway { gateway in
            var ids: [String] = []
            for number in 0..<7 {
                ids.append(
                    number.isMultiple(of: 2)
                        ? try gateway.accept() : try gateway.accept("/v1/plain/thing", #"{"a":\#(number)}"#))
            }
            var seen: [String] = []
            var pages = 0
            var cursor: String?
            repeat {
                let page = try gateway.client.get(
                    "/v1/messages?limit=3" + (cursor.map { "&cursor=\($0)" } ?? "")
                ).json
                seen += page["messages"].array.compactMap { $0["id"].string }
                cursor = page["next"].string
                pages += 1
            } while cursor != nil && pages < 10
            #expect(seen == ids)
            #expect(pages == 3)
        }
    }

    @Test func list_isFiltered() throws {
        try withPausedGateway { gateway in
            let envelopes = #"""
                [{"upstream":"picky","kind":"event","key":"a b","payload":{"n":1}},
                 {"upstream":"picky","kind":"note","key":"x","payload":{"n":2}},
                 {"upstream":"plain","kind":"thing","key":"x","payload":{"n":3}}]
                """#
            let ids = try gateway.client.post("/v1/messages", envelopes).json["ids"].strings
            func listed(_ query: String) throws -> [String] {
                try gateway.client.get("/v1/messages?\(query)").json["messages"].array.compactMap { $0["id"].string }
            }
            #expect(try listed("upstream=plain") == [ids[2]])
            #expect(try listed("kind=note") == [ids[1]])
            #expect(try listed("key=x") == [ids[1], ids[2]])
            #expect(try listed("key=a%20b") == [ids[0]])
            #expect(try listed("state=queued&upstream=picky") == [ids[0], ids[1]])
            #expect(try listed("state=failed") == [])
            #expect(try listed("kind=unheard-of") == [])
            _ = try gateway.client.ask("DELETE", "/v1/messages/\(ids[0])")
            #expect(try listed("state=cancelled") == [ids[0]])
            #expect(try listed("state=queued") == [ids[1], ids[2]])
        }
    }

    @Test func list_showsPayloadsWhenAsked() throws {
        try withPausedGateway { gateway in
            _ = try gateway.accept()
            let plain = try gateway.client.get("/v1/messages").json["messages"][0]
            #expect(!plain["payload"].isThere)
            let full = try gateway.client.get("/v1/messages?include=payload").json["messages"][0]
            #expect(full["payload"]["n"].int == 1)
        }
    }

    // MARK: Cancelling

    @Test func queuedMessage_isCancelledOnce() throws {
        try withPausedGateway { gateway in
            let id = try gateway.accept()
            let answer = try gateway.client.ask("DELETE", "/v1/messages/\(id)")
            #expect(answer.status == 200)
            #expect(answer.json["state"].string == "cancelled")
            #expect(answer.json["settledAt"].isThere)
            let again = try gateway.client.ask("DELETE", "/v1/messages/\(id)")
            again.problem(409, "conflict")
            #expect(again.json["detail"].string?.contains("cancelled already") == true)
        }
    }

    @Test func messageThatIsBeingSent_cannotBeCancelled() throws {
        try withGateway { gateway in
            let id = try gateway.accept()
            try gateway.waitForOpenRequest()
            let answer = try gateway.client.ask("DELETE", "/v1/messages/\(id)")
            answer.problem(409, "conflict")
            #expect(answer.header("Retry-After") != nil)
            gateway.transport.answer(.status(200))
            try gateway.waitForState("delivered", of: id)
            try gateway.client.ask("DELETE", "/v1/messages/\(id)").problem(409, "conflict")
        }
    }

    // MARK: Sending again

    @Test func failedMessage_isSentAgain() throws {
        var setup = Setup()
        setup.results = [.status(422), .status(200)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitForState("failed", of: id)
            let answer = try gateway.client.post("/v1/messages/\(id)/retry")
            #expect(answer.status == 202)
            #expect(answer.json["retried"].int == 1)
            try gateway.waitForState("delivered", of: id)
            try gateway.client.post("/v1/messages/\(id)/retry").problem(409, "conflict")
        }
    }

    @Test func previewOfARetry_changesNothing_andIsNotRecorded() throws {
        let log = InMemoryLogHandler()
        var setup = Setup()
        setup.log = log
        setup.results = [.status(422), .status(200)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitForState("failed", of: id)
            let path = "/v1/messages/\(id)/retry"
            let preview = try gateway.client.post(path, #"{"dryRun":true}"#)
            #expect(preview.status == 200)
            #expect(preview.json["retried"].int == 1)
            #expect(preview.json["dryRun"].bool == true)
            #expect(!log.entries.contains { $0.message == "operator action" })
            try gateway.client.post(path, #"{"dryRun":1}"#).problem(422, "invalid-payload")
            try gateway.client.post(path, #"{"dryrun":true}"#).problem(422, "invalid-payload")
            try gateway.client.post(path, "[]").problem(422, "invalid-payload")
            #expect(try gateway.message(id)["state"].string == "failed")
            #expect(try gateway.client.post(path, #"{"dryRun":false}"#).status == 202)
            #expect(log.entries.count { $0.message == "operator action" } == 1)
            try gateway.waitForState("delivered", of: id)
            try gateway.client.post(path, #"{"dryRun":true}"#).problem(409, "conflict")
        }
    }

    @Test func queuedMessage_cannotBeSentAgain() throws {
        try withPausedGateway { gateway in
            let id = try gateway.accept()
            try gateway.client.post("/v1/messages/\(id)/retry").problem(409, "conflict")
        }
    }

    /// Four failed events, two failed notes, and one that is queued.
    private func withFailures(_ body: (TestGateway, _ events: [String], _ notes: [String]) throws -> Void) throws {
        var setup = Setup()
        setup.delivery.batchMaxMessages = 1
        setup.results = (0..<6).map { _ in .status(422) }
        try withGateway(setup) { gateway in
            let events = try gateway.client.post("/v1/picky/event", #"[{"n":1},{"n":2},{"n":3},{"n":4}]"#).json["ids"]
            let notes = try gateway.client.post("/v1/picky/note", #"[{"n":5},{"n":6}]"#).json["ids"]
            for id in events.strings + notes.strings { try gateway.waitForState("failed", of: id) }
            _ = try gateway.client.post("/v1/upstreams/picky/pause")
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            try body(gateway, events.strings, notes.strings)
        }
    }

    @Test func manyFailedMessages_areSentAgainByFilter() throws {
        try withFailures { gateway, _, _ in
            let first = try gateway.client.post("/v1/messages/retry", #"{"upstream":"picky","kind":"note"}"#)
            #expect(first.status == 202)
            #expect(first.json["retried"].int == 2)
            let rest = try gateway.client.post("/v1/messages/retry", #"{"upstream":"picky","state":"failed"}"#)
            #expect(rest.json["retried"].int == 4)
            #expect(try gateway.client.post("/v1/messages/retry", #"{"upstream":"picky"}"#).json["retried"].int == 0)
            #expect(gateway.queued == 6)
        }
    }

    @Test func manyFailedMessages_areSentAgainByID_asFarAsTheFilterLets() throws {
        try withFailures { gateway, events, notes in
            let ids = (events.prefix(2) + notes.prefix(1) + events.prefix(1) + ["0000000000101"])
                .map { "\"\($0)\"" }.joined(separator: ",")
            let other = try gateway.client.post("/v1/messages/retry", #"{"upstream":"plain","ids":[\#(ids)]}"#)
            #expect(other.json["retried"].int == 0)
            let noted = try gateway.client.post("/v1/messages/retry", #"{"kind":"note","ids":[\#(ids)]}"#)
            #expect(noted.json["retried"].int == 1)
            let rest = try gateway.client.post("/v1/messages/retry", #"{"ids":[\#(ids)]}"#)
            #expect(rest.json["retried"].int == 2)
            #expect(gateway.queued == 3)
        }
    }

    @Test func moreThanAPageOfFailures_isSentAgain() throws {
        var setup = Setup()
        setup.delivery.batchMaxMessages = 1000
        setup.delivery.rejectionGuard.share = 0
        setup.upstreams = [RefusingUpstream()]
        setup.results = [.status(400)]
        try withGateway(setup) { gateway in
            let body = "[" + (0..<1000).map { #"{"n":\#($0)}"# }.joined(separator: ",") + "]"
            let ids = try gateway.client.post("/v1/refusing/thing", body).json["ids"].strings
            try gateway.waitForState("failed", of: try #require(ids.last))
            _ = try gateway.client.post("/v1/upstreams/refusing/pause")
            try #require(try eventually { try gateway.upstream("refusing")["health"].string == "paused" })
            let list = ids.prefix(700).map { "\"\($0)\"" }.joined(separator: ",")
            #expect(try gateway.client.post("/v1/messages/retry", #"{"ids":[\#(list)]}"#).json["retried"].int == 700)
            #expect(
                try gateway.client.post("/v1/messages/retry", #"{"upstream":"refusing"}"#).json["retried"].int == 300)
        }
    }

    @Test(arguments: [
        (#"{}"#, [""]), (#"[]"#, ["", ""]), (#"{"upstream":"absent"}"#, ["/upstream"]),
        (#"{"upstream":"picky","state":"delivered"}"#, ["/state"]), (#"{"ids":["x"]}"#, ["/ids"]),
        (#"{"ids":7}"#, ["/ids"]), (#"{"upstream":"picky","kind":7,"all":true}"#, ["/kind", "/all"]),
        (#"{"kind":"event"}"#, [""]),
    ])
    func bulkRetry_isRefused_ifItsBodyIsInvalid(body: String, pointers: [String]) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/messages/retry", body)
            answer.problem(422, "invalid-payload")
            #expect(
                Set(answer.json["errors"].array.map { $0["pointer"].string ?? "none" }) == Set(pointers),
                "\(answer.text)")
        }
    }

    @Test func bulkRetry_isRefused_ifItsBodyIsNotJSON() throws {
        try withPausedGateway { gateway in
            try gateway.client.post("/v1/messages/retry", "{").problem(400, "invalid-json")
        }
    }
}

/// Rejects whole batches at once.
private struct RefusingUpstream: PlainAtHeart {
    let plain = PlainUpstream("refusing")
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        Decision(.reject(reason: "refused"))
    }
}

/// Promise 8: a waiting message shows what it waits for, and until when.
@Suite struct WaitingForTests {
    @Test func pausedUpstream_isWaitedFor() throws {
        try withPausedGateway { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("pause", of: id)
        }
    }

    @Test func messageInFlight_waitsForNothing() throws {
        try withGateway { gateway in
            let id = try gateway.accept()
            try gateway.waitForOpenRequest()
            let message = try gateway.message(id)
            #expect(message["state"].string == "queued")
            #expect(!message["waitingFor"].isThere)
        }
    }

    @Test func failedAttempt_waitsForItsRetry() throws {
        var setup = Setup()
        setup.results = [.status(503)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("retry", of: id)
            let message = try gateway.message(id)
            #expect(message["nextAttemptAt"].isThere)
            #expect(message["lastError"]["class"].string == "failing")
            // Outages cost no attempt.
            #expect(message["attempts"].int == 0)
            #expect(try gateway.upstream()["health"].string == "degraded")
        }
    }

    @Test func openCircuit_isWaitedFor() throws {
        var setup = Setup()
        setup.results = [.status(429, headers: [("Retry-After", "600")])]
        try withGateway(setup) { gateway in
            let first = try gateway.accept()
            try gateway.waitFor("circuit", of: first)
            let second = try gateway.accept()
            try gateway.waitFor("circuit", of: second)
            let upstream = try gateway.upstream()
            #expect(upstream["health"].string == "down")
            #expect(upstream["circuit"]["state"].string == "open")
            let reopensAt = try #require(upstream["circuit"]["reopensAt"].string)
            #expect(try gateway.message(second)["nextAttemptAt"].string == reopensAt)
        }
    }

    @Test func refusedCredentials_areWaitedFor() throws {
        var setup = Setup()
        setup.results = [.status(403)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("credentials", of: id)
            #expect(try gateway.upstream()["health"].string == "unauthorized")
        }
    }

    @Test func tokenThatIsFetched_isWaitedFor() throws {
        var setup = Setup()
        setup.upstreams = [PickyUpstream("picky", tokenSource: TestTokens())]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("token", of: id)
            #expect(try gateway.upstream()["token"]["valid"].bool == false)
            try gateway.waitForOpenRequest()
            gateway.transport.answer(.status(200))
            try #require(try eventually { try gateway.upstream()["token"]["valid"].bool == true })
            #expect(try gateway.upstream()["token"]["expiresAt"].isThere)
            try gateway.waitForOpenRequest()
            gateway.transport.answer(.status(200))
            try gateway.waitForState("delivered", of: id)
        }
    }

    @Test func refusedTokenRequest_isWaitedForAsCredentials() throws {
        var setup = Setup()
        setup.upstreams = [PickyUpstream("picky", tokenSource: TestTokens())]
        setup.results = [.status(401)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("credentials", of: id)
        }
    }

    @Test func laterMessageOfALane_waitsForItsOrder() throws {
        try withGateway { gateway in
            let first = try gateway.accept("/v1/picky/event", #"{"n":1,"lane":7}"#)
            try gateway.waitForOpenRequest()
            let second = try gateway.accept("/v1/picky/event", #"{"n":2,"lane":7}"#)
            try gateway.waitFor("order", of: second)
            #expect(try !(gateway.message(first))["waitingFor"].isThere)
        }
    }

    @Test func settledMessage_waitsForNothing() throws {
        var setup = Setup()
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitForState("delivered", of: id)
            let message = try gateway.message(id)
            #expect(!message["waitingFor"].isThere && !message["nextAttemptAt"].isThere)
        }
    }
}
