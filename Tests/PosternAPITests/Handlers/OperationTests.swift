import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternAPI

/// Bulk requests with `Prefer: respond-async`.
@Suite struct OperationTests {
    static let asynchronously = [("Prefer", "respond-async")]

    /// Keeps the writer from its next commit.
    private final class Gate: Sendable {
        private let (arrivals, inbox) = (Inbox<Void>(), Inbox<Void>())
        /// The writer stops after the commit that settles `id`.
        init(at id: String, of gateway: TestGateway) {
            gateway.outbox.whenSettled(MessageID(id)!) { [arrivals, inbox] _ in
                arrivals.put(())
                _ = inbox.wait(until: .distantFuture)
            }
        }
        /// Returns once the writer has stopped.
        func waitForWriter() { _ = arrivals.wait(until: .distantFuture) }
        func open() { inbox.put(()) }
    }

    private func accept(_ count: Int, _ gateway: TestGateway, _ path: String = "/v1/picky/event") throws -> [String] {
        let bodies = (0..<count).map { #"{"n":\#($0)}"# }.joined(separator: ",")
        return try gateway.client.post(path, "[\(bodies)]").json["ids"].strings
    }

    private func begin(
        _ gateway: TestGateway, _ action: String, _ body: String, headers: [(String, String)] = []
    ) throws -> String {
        let answer = try gateway.client.post("/v1/messages/\(action)", body, headers: Self.asynchronously + headers)
        let id = try #require(answer.json["operation"].string, "\(answer.text)")
        #expect(answer.status == 202 && answer.header("Location") == "/v1/operations/\(id)")
        #expect(answer.header("Preference-Applied") == "respond-async")
        return id
    }

    @Test func operation_doesAllThatMatch_andIsTold() throws {
        try withPausedGateway { gateway in
            _ = try accept(450, gateway)
            let events = try EventClient(gateway.port, "?type=operation.finished")
            let answer = try gateway.client.post(
                "/v1/messages/cancel", #"{"upstream":"picky"}"#, headers: Self.asynchronously)
            #expect(answer.json.keys == ["operation", "matched"] && answer.json["matched"].int == 450)
            let id = try #require(answer.json["operation"].string)
            let operation = try ended(id, gateway)
            #expect(
                operation.keys == [
                    "id", "action", "upstream", "by", "startedAt", "matched", "done", "skipped", "skippedCount",
                    "finishedAt", "stopped", "error",
                ])
            #expect(operation["action"].string == "cancel" && operation["upstream"].string == "picky")
            #expect(operation["matched"].int == 450 && operation["done"].int == 450)
            #expect(operation["skippedCount"].int == 0 && operation["stopped"].bool == false)
            #expect(gateway.queued == 0)
            #expect(
                try events.next().data == #"{"upstream":"picky","ids":[],"count":450,"operation":"\#(id)"}"#)
            let list = try gateway.client.get("/v1/operations").json["operations"].array
            #expect(list.map { $0["id"].string } == [id])
        }
    }

    @Test func preview_isNoOperation() throws {
        try withPausedGateway { gateway in
            _ = try accept(3, gateway)
            let answer = try gateway.client.post(
                "/v1/messages/cancel", #"{"upstream":"picky","dryRun":true}"#, headers: Self.asynchronously)
            #expect(answer.status == 200 && answer.json["cancelled"].int == 3)
            #expect(try gateway.client.get("/v1/operations").json["operations"].array.isEmpty)
        }
    }

    @Test func stoppedOperation_endsWithItsStep() throws {
        try withPausedGateway { gateway in
            let ids = try accept(500, gateway)
            let gate = Gate(at: ids[0], of: gateway)
            let id = try begin(gateway, "cancel", #"{"upstream":"picky"}"#)
            gate.waitForWriter()
            let running = try gateway.client.get("/v1/operations/\(id)").json
            #expect(!running["finishedAt"].isThere && running["matched"].int == 500)
            #expect(try gateway.client.ask("DELETE", "/v1/operations/\(id)").json["stopped"].bool == true)
            gate.open()
            let operation = try ended(id, gateway)
            #expect(operation["stopped"].bool == true && operation["done"].int == BulkRequest.messagesPerStep)
            #expect(gateway.queued == 500 - BulkRequest.messagesPerStep)
            let text = try gateway.client.get("/v1/operations/\(id)").text
            #expect(try gateway.client.ask("DELETE", "/v1/operations/\(id)").text == text, "twice does nothing more")
        }
    }

    @Test func messagesThatArriveLater_areNotPartOfIt() throws {
        try withPausedGateway { gateway in
            let ids = try accept(500, gateway)
            let gate = Gate(at: ids[0], of: gateway)
            let id = try begin(gateway, "cancel", #"{"upstream":"picky"}"#)
            let other = try HTTPClient(port: gateway.port)
            other.sendRequest(
                "POST", "/v1/picky/event", Array(#"{"n":1}"#.utf8), headers: [("Content-Type", "application/json")])
            gate.open()
            #expect(try other.answer().status == 202)
            #expect(try ended(id, gateway)["done"].int == 500)
            #expect(gateway.queued == 1)
        }
    }

    @Test func skippedMessages_areNamed_withTheReason() throws {
        var setup = Setup()
        setup.results = [.status(422), .status(200)]
        try withGateway(setup) { gateway in
            let failed = try gateway.accept()
            try gateway.waitForState("failed", of: failed)
            let delivered = try gateway.accept("/v1/picky/note")
            try gateway.waitForState("delivered", of: delivered)
            _ = try gateway.client.post("/v1/upstreams/picky/pause")
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let unknown = "0000000000101"
            let list = [failed, delivered, unknown].map { "\"\($0)\"" }.joined(separator: ",")
            let operation = try ended(try begin(gateway, "retry", #"{"ids":[\#(list)]}"#), gateway)
            #expect(operation["matched"].int == 1 && operation["done"].int == 1)
            #expect(operation["skippedCount"].int == 2)
            let reasons = operation["skipped"].array.map { [$0["id"].string, $0["detail"].string] }
            let rule = "only failed or dropped ones can be sent again"
            #expect(reasons.contains([delivered, "the message is delivered; \(rule)"]))
            #expect(reasons.contains([unknown, "there is no such message"]))
            let noted = try ended(
                try begin(gateway, "cancel", #"{"ids":["\#(failed)"],"kind":"note"}"#), gateway)
            #expect(noted["skipped"][0]["detail"].string == "the message does not match the rest of the request")
        }
    }

    @Test func skippedMessages_areCounted_beyondThoseThatAreNamed() throws {
        try withPausedGateway { gateway in
            let list = (1...250).map { "\"\(MessageID(rawValue: Int64($0) << 8 | 1))\"" }.joined(separator: ",")
            let operation = try ended(try begin(gateway, "retry", #"{"ids":[\#(list)]}"#), gateway)
            #expect(operation["skippedCount"].int == 250)
            #expect(operation["skipped"].array.count == BulkOperation.maxSkipped)
        }
    }

    /// Before its step, another caller cancels one of them.
    @Test func messagesThatMatchNoMore_areSkipped() throws {
        try withPausedGateway { gateway in
            let ids = try accept(250, gateway)
            let gate = Gate(at: ids[0], of: gateway)
            let id = try begin(gateway, "cancel", #"{"upstream":"picky"}"#)
            gate.waitForWriter()
            let other = try HTTPClient(port: gateway.port)
            other.sendRequest("DELETE", "/v1/messages/\(ids[240])")
            // It is behind the step in the writer's queue once the gateway has read it.
            _ = try gateway.client.get("/v1/messages/\(ids[240])")
            gate.open()
            let operation = try ended(id, gateway)
            let (done, skipped) = (operation["done"].int ?? 0, operation["skippedCount"].int ?? 0)
            #expect(done + skipped == 250 && gateway.queued == 0)
            #expect(skipped == (try other.answer().status == 200 ? 1 : 0))
        }
    }

    @Test func stoppingGateway_endsOperations_andBeginsNone() throws {
        try withPausedGateway { gateway in
            let ids = try accept(500, gateway)
            let gate = Gate(at: ids[0], of: gateway)
            let id = try begin(gateway, "cancel", #"{"upstream":"picky"}"#)
            gate.waitForWriter()
            gateway.context.beginDraining()
            #expect(!gateway.context.areOperationsIdle)
            gate.open()
            let operation = try ended(id, gateway)
            #expect(operation["stopped"].bool == true && operation["done"].int == BulkRequest.messagesPerStep)
            #expect(eventually { gateway.context.areOperationsIdle })
            let late = try gateway.client.post(
                "/v1/messages/cancel", #"{"upstream":"picky"}"#, headers: Self.asynchronously)
            late.problem(503, "shutting-down")
        }
    }

    @Test func operations_areBounded_thoseThatRunAndThoseThatHaveEnded() throws {
        try withPausedGateway { gateway in
            for _ in 0..<Operations.maxEnded + 2 {
                _ = try ended(try begin(gateway, "retry", #"{"upstream":"plain"}"#), gateway)
            }
            #expect(try gateway.client.get("/v1/operations").json["operations"].array.count == Operations.maxEnded)
            let ids = try accept(Operations.maxRunning, gateway)
            let gate = Gate(at: ids[0], of: gateway)
            func cancel(_ id: String) throws -> String { try begin(gateway, "cancel", #"{"ids":["\#(id)"]}"#) }
            let first = try cancel(ids[0])
            // Else another one could end before the writer stops.
            gate.waitForWriter()
            let running = try [first] + ids.dropFirst().map(cancel)
            let more = try gateway.client.post(
                "/v1/messages/cancel", #"{"upstream":"picky"}"#, headers: Self.asynchronously)
            more.problem(503, "overloaded")
            gate.open()
            for id in running { _ = try ended(id, gateway) }
        }
    }

    @Test func operations_belongToThoseWhoMayUseTheirUpstreams() throws {
        try withPausedGateway { gateway in
            func key(_ name: String, _ upstreams: Set<UpstreamName>?) -> APIKey {
                APIKey(
                    name: name, sha256: KeyText.digest(of: name), scopes: [.read, .admin], upstreams: upstreams)
            }
            let (picky, plain) = (try gateway.accept(), try gateway.accept("/v1/plain/thing", "{}"))
            gateway.handler.replaceKeys(
                [key("all", nil), key("plain", [UpstreamName("plain")!]), key("picky", [UpstreamName("picky")!])],
                opensMetrics: false)
            func bearer(_ name: String) -> [(String, String)] { [("Authorization", "Bearer \(name)")] }
            func status(_ method: String, _ id: String, _ name: String) throws -> Int {
                try gateway.client.ask(method, "/v1/operations/\(id)", headers: bearer(name)).status
            }
            let foreign = try begin(gateway, "retry", #"{"upstream":"picky"}"#, headers: bearer("all"))
            let both = try begin(gateway, "retry", #"{"ids":["\#(picky)","\#(plain)"]}"#, headers: bearer("all"))
            let shared = try begin(gateway, "retry", #"{"upstream":"plain"}"#, headers: bearer("all"))
            let own = try begin(gateway, "cancel", #"{"ids":["\#(picky)","\#(plain)"]}"#, headers: bearer("plain"))
            let other = try begin(
                gateway, "retry", #"{"upstream":"plain","ids":["\#(picky)"]}"#, headers: bearer("all"))
            for id in [foreign, both, other] {
                #expect(try status("GET", id, "plain") == 404)
                #expect(try status("DELETE", id, "plain") == 404)
                #expect(try status("GET", id, "all") == 200)
            }
            #expect(try status("GET", shared, "plain") == 200)
            #expect(try status("DELETE", shared, "plain") == 200)
            let list = try gateway.client.ask("GET", "/v1/operations", headers: bearer("plain")).json["operations"]
                .array
            #expect(list.map { $0["id"].string } == [own, shared])
            // Of no upstream that its caller may see.
            let blind = try begin(gateway, "retry", #"{"ids":["\#(picky)"]}"#, headers: bearer("plain"))
            #expect(try status("GET", blind, "plain") == 200)
            #expect(try status("GET", blind, "all") == 200)
            #expect(try status("GET", blind, "picky") == 404)
            // A message that it may not see is one that is not there.
            var seen = JSON([])
            try #require(
                try eventually {
                    seen = try gateway.client.ask("GET", "/v1/operations/\(own)", headers: bearer("plain")).json
                    return seen["finishedAt"].isThere
                })
            #expect(seen["by"].string == "plain" && seen["done"].int == 1)
            #expect(seen["upstream"].string == "plain", "the other one is not named")
            #expect(seen["skipped"][0]["detail"].string == "there is no such message")
            let foreignRequest = try gateway.client.post(
                "/v1/messages/purge", #"{"upstream":"picky","state":"failed"}"#,
                headers: Self.asynchronously + bearer("plain"))
            foreignRequest.problem(403, "forbidden")
        }
    }
}

/// `POST /v1/messages/purge`, and `settledBefore`.
@Suite struct PurgeManyTests {
    /// Two messages that failed, one after the other, one that was cancelled, and one that is queued.
    private func withMessages(
        _ body: (TestGateway, _ failed: [String], _ cancelled: String, _ queued: String) throws -> Void
    ) throws {
        var setup = Setup()
        setup.results = [.status(422), .status(422)]
        try withGateway(setup) { gateway in
            var failed: [String] = []
            for _ in 0..<2 {
                let id = try gateway.accept()
                try gateway.waitForState("failed", of: id)
                failed.append(id)
                let settledAt = try #require(try gateway.message(id)["settledAt"].string)
                #expect(eventually { "\(SystemTime().now)" > settledAt })
            }
            _ = try gateway.client.post("/v1/upstreams/picky/pause")
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let cancelled = try gateway.accept()
            _ = try gateway.client.ask("DELETE", "/v1/messages/\(cancelled)")
            try body(gateway, failed, cancelled, try gateway.accept())
        }
    }

    @Test func settledMessages_arePurgedByState_andTheBooksKeepThem() throws {
        try withMessages { gateway, failed, cancelled, queued in
            let request = #"{"upstream":"picky","state":"failed"}"#
            let preview = try gateway.client.post(
                "/v1/messages/purge", #"{"upstream":"picky","state":"failed","dryRun":true}"#)
            #expect(preview.text == #"{"purged":2,"dryRun":true}"# + "\n")
            let done = try gateway.client.post("/v1/messages/purge", request)
            #expect(done.status == 200 && done.text == #"{"purged":2}"# + "\n")
            #expect(try failed.allSatisfy { try gateway.client.get("/v1/messages/\($0)").status == 404 })
            #expect(try gateway.message(cancelled)["state"].string == "cancelled")
            let ledger = gateway.outbox.ledger(of: gateway.workers[0].queue.number)
            #expect(ledger.counts.failed == 2 && ledger.purged.failed == 2 && ledger.accepted == 4)
            #expect(try gateway.client.post("/v1/messages/purge", request).text == #"{"purged":0}"# + "\n")
            #expect(try gateway.message(queued)["state"].string == "queued")
        }
    }

    @Test func settledMessages_arePurgedByID_andAQueuedOneIsNot() throws {
        try withMessages { gateway, failed, cancelled, queued in
            let list = (failed + [cancelled, queued]).map { "\"\($0)\"" }.joined(separator: ",")
            let some = try gateway.client.post("/v1/messages/purge", #"{"ids":[\#(list)],"state":"cancelled"}"#)
            #expect(some.json["purged"].int == 1)
            #expect(try gateway.client.post("/v1/messages/purge", #"{"ids":[\#(list)]}"#).json["purged"].int == 2)
            #expect(try gateway.message(queued)["state"].string == "queued")
        }
    }

    @Test(arguments: ["retry", "purge"])
    func settledBefore_sparesWhatHasSettledLater(action: String) throws {
        try withMessages { gateway, failed, _, _ in
            let moment = try #require(try gateway.message(failed[1])["settledAt"].string)
            let listed = try gateway.client.get("/v1/messages?state=failed&settledBefore=\(moment)").json["messages"]
            #expect(listed.array.map { $0["id"].string } == [failed[0]])
            let done = try gateway.client.post(
                "/v1/messages/\(action)", #"{"upstream":"picky","state":"failed","settledBefore":"\#(moment)"}"#)
            #expect(done.json[action == "retry" ? "retried" : "purged"].int == 1)
            #expect(try gateway.message(failed[1])["state"].string == "failed")
            let byID = try gateway.client.post(
                "/v1/messages/\(action)", #"{"ids":["\#(failed[1])"],"settledBefore":"\#(moment)"}"#)
            #expect(byID.json[action == "retry" ? "retried" : "purged"].int == 0)
            let unsettled = try gateway.client.get("/v1/messages?state=queued&settledBefore=\(moment)").json["messages"]
            #expect(unsettled.array.isEmpty)
        }
    }

    @Test(arguments: [
        (#"{}"#, [""]), (#"{"upstream":"picky"}"#, [""]), (#"{"upstream":"picky","state":"queued"}"#, ["/state"]),
        (#"{"upstream":"picky","state":"failed","settledBefore":"now"}"#, ["/settledBefore"]),
    ])
    func requestThatIsNotValid_removesNothing(body: String, pointers: [String]) throws {
        try withMessages { gateway, failed, _, _ in
            let answer = try gateway.client.post("/v1/messages/purge", body)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"].array.map { $0["pointer"].string } == pointers)
            #expect(try gateway.message(failed[0])["state"].string == "failed")
        }
    }
}

/// The operation with that id, once it has ended.
func ended(_ id: String, _ gateway: TestGateway) throws -> JSON {
    var found = JSON([])
    try #require(
        try eventually {
            found = try gateway.client.get("/v1/operations/\(id)").json
            return found["finishedAt"].isThere
        })
    return found
}
