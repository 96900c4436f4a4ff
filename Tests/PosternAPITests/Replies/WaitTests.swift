import Glibc
import InMemoryLogging
import Logging
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Synchronization
import Testing

@testable import PosternAPI

/// `Prefer: wait=N`: the answer is held until the messages are settled.
@Suite struct WaitTests {
    private static func wait(_ seconds: Int, _ more: String = "") -> [(String, String)] {
        [("Prefer", "wait=\(seconds)\(more)")]
    }

    @Test func delivered_isAnsweredWithTheMessageAndItsResult() throws {
        var setup = Setup()
        setup.results = [.status(200, #"{"taken":true}"#)]
        try withGateway(setup) { gateway in
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: Self.wait(60))
            #expect(answer.status == 200, "\(answer.text)")
            #expect(answer.json["state"].string == "delivered")
            #expect(answer.json["attempts"].isThere)
            #expect(answer.json["settledAt"].isThere)
            #expect(answer.json["result"]["taken"].bool == true)
            #expect(answer.header("Preference-Applied") == "wait=60")
        }
    }

    @Test func resultThatIsNotJSON_isShownAsText() throws {
        var setup = Setup()
        setup.results = [.status(200, "thanks \"a lot\"")]
        try withGateway(setup) { gateway in
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: Self.wait(60))
            #expect(answer.json["result"].string == "thanks \"a lot\"", "\(answer.text)")
        }
    }

    @Test func failed_isAProblemWithTheUpstreamsStatus() throws {
        var setup = Setup()
        setup.results = [.status(422, "no")]
        try withGateway(setup) { gateway in
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: Self.wait(60))
            answer.problem(502, "delivery-failed")
            #expect(answer.json["upstreamStatus"].int == 422)
            #expect(answer.json["state"].string == "failed")
            #expect(answer.json["lastError"]["class"].string == "refused")
            #expect(answer.header("Preference-Applied") == "wait=60")
            let id = try #require(answer.json["messageId"].string)
            #expect(try gateway.message(id)["state"].string == "failed")
        }
    }

    @Test func upstreamsAnswerToARefusal_isPassedOn_andStaysWithTheMessage() throws {
        var setup = Setup()
        setup.results = [.status(410, #"{"gone":true}"#)]
        try withGateway(setup) { gateway in
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: Self.wait(60))
            answer.problem(502, "delivery-failed")
            #expect(answer.json["result"]["gone"].bool == true)
            let id = try #require(answer.json["messageId"].string)
            #expect(try gateway.message(id)["result"]["gone"].bool == true)
        }
    }

    @Test func open_isAcceptedAsUsual_whenTheTimeIsOver() throws {
        try withPausedGateway { gateway in
            let start = ContinuousClock.now
            let answer = try gateway.client.post("/v1/picky/event", #"{"n":1}"#, headers: Self.wait(1))
            #expect(ContinuousClock.now - start >= .milliseconds(950))
            #expect(answer.status == 202)
            #expect(answer.json["state"].string == "queued")
            #expect(answer.header("Location") != nil)
            #expect(answer.header("Preference-Applied") == "wait=1")
        }
    }

    @Test func many_areAnsweredEachWithItsState_whenAllAreSettled() throws {
        var setup = Setup()
        setup.delivery.batchMaxMessages = 1
        setup.results = [.status(200), .status(422), .status(200)]
        try withGateway(setup) { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"[{"n":1},{"n":2},{"n":3}]"#, headers: Self.wait(60))
            #expect(answer.status == 200, "\(answer.text)")
            #expect(answer.json["accepted"].int == 3)
            let states = answer.json["messages"].array.map { $0["state"].string }
            #expect(states == ["delivered", "failed", "delivered"])
            #expect(answer.json["messages"][1]["lastError"]["status"].int == 422)
            #expect(answer.json["states"]["delivered"].int == 2 && answer.json["states"]["failed"].int == 1)
            #expect(!answer.json["messagesOmitted"].isThere && !answer.json["next"].isThere)
        }
    }

    /// Design, section 3.6. Their ids and states alone have more than 1 MiB.
    @Test func veryManyUndelivered_areAnsweredWithTheirCounts_theFirst_andALink() throws {
        var setup = Setup()
        (setup.limits.maxMessagesPerRequest, setup.limits.maxBodyBytes) = (100_000, 4 << 20)
        setup.upstreams = [PlainUpstream("plain", kinds: ["thing"])]
        try withPausedGateway(setup) { gateway in
            let body = String(repeating: "{}\n", count: 30_000) + String(repeating: "{\n", count: 20_000)
            gateway.client.sendRequest(
                "POST", "/v1/plain/thing", Array(body.utf8),
                headers: [("Content-Type", "application/x-ndjson")] + Self.wait(60, ", handling=lenient"))
            #expect(eventually { gateway.queued == 30_000 })
            // That of another request.
            _ = try HTTPClient(port: gateway.port).post("/v1/plain/thing", "{}")
            // Their time does not end any more.
            gateway.context.timer.stop()
            let cancelled = try HTTPClient(port: gateway.port).post("/v1/messages/cancel", #"{"upstream":"plain"}"#)
            #expect(cancelled.status == 200, "\(cancelled.text)")
            let answer = try gateway.client.answer()
            #expect(answer.status == 200 && answer.body.count <= 1 << 20, "\(answer.body.count) bytes")
            let shown = answer.json["messages"].array
            #expect(answer.json["states"]["cancelled"].int == 30_000 && shown.count > 5000)
            #expect(answer.json["messagesOmitted"].int == 30_000 - shown.count)
            let rejected = answer.json["rejected"].array.count
            #expect(rejected > 1000 && answer.json["rejectedOmitted"].int == 20_000 - rejected)
            // Its other messages, and none of another request.
            let next = try #require(answer.json["next"].string)
            let last = try #require(shown.last?["id"].string.flatMap { MessageID($0) })
            var ids: [Int64] = []
            var page: String? = next
            while let link = page {
                let list = try gateway.client.get("\(link)&limit=1000").json
                ids += list["messages"].array.compactMap { $0["id"].string.flatMap { MessageID($0) }?.sequence }
                page = list["next"].string.map { next.replacing(#/cursor=[^&]*/#, with: "cursor=\($0)") }
            }
            #expect(ids == (1...Int64(30_000 - shown.count)).map { last.sequence + $0 })
        }
    }

    /// The list requires it.
    @Test func link_isLeftOut_withoutTheScopeForReading() throws {
        var setup = Setup()
        (setup.limits.maxMessagesPerRequest, setup.limits.maxBodyBytes) = (100_000, 4 << 20)
        setup.upstreams = [PlainUpstream("plain", kinds: ["thing"])]
        try withPausedGateway(setup) { gateway in
            let text = "key-writer"
            gateway.handler.replaceKeys(
                [APIKey(name: "writer", sha256: KeyText.digest(of: text), scopes: [.write, .admin])],
                opensMetrics: false)
            let key = [("Authorization", "Bearer \(text)")]
            gateway.client.sendRequest(
                "POST", "/v1/plain/thing", Array(String(repeating: "{}\n", count: 30_000).utf8),
                headers: key + [("Content-Type", "application/x-ndjson")] + Self.wait(60))
            #expect(eventually { gateway.queued == 30_000 })
            // Its time does not end any more.
            gateway.context.timer.stop()
            let other = try HTTPClient(port: gateway.port)
            #expect(try other.post("/v1/messages/cancel", #"{"upstream":"plain"}"#, headers: key).status == 200)
            let answer = try gateway.client.answer()
            #expect(answer.json["messagesOmitted"].int ?? 0 > 0, "\(answer.text.prefix(300))")
            #expect(answer.text.contains(#""next":null"#))
        }
    }

    /// Design, section 3.6: a response has at most 1 MiB.
    @Test func manyWithLongResults_areAnsweredWithThoseThatFit() throws {
        let result = "\"" + String(repeating: "x", count: 600_000) + "\""
        var setup = Setup()
        setup.delivery.batchMaxMessages = 1
        setup.results = [.status(200, result), .status(200, result), .status(422)]
        try withGateway(setup) { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"[{"n":1},{"n":2},{"n":3}]"#, headers: Self.wait(60))
            #expect(answer.status == 200 && answer.body.count <= 1 << 20)
            let messages = answer.json["messages"].array
            #expect(messages.map { $0["state"].string } == ["delivered", "delivered", "failed"])
            #expect(messages.map { $0["result"].isThere } == [true, false, false])
            #expect(messages.map { $0["lastError"].isThere } == [false, false, false])
            let id = try #require(messages.last?["id"].string)
            #expect(try gateway.message(id)["lastError"]["status"].int == 422)
        }
    }

    @Test func lenientMany_nameTheRejectedOnesToo() throws {
        var setup = Setup()
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let answer = try gateway.client.post(
                "/v1/picky/event", #"[{"n":1},{"n":"x"}]"#, headers: Self.wait(60, ", handling=lenient"))
            #expect(answer.status == 200, "\(answer.text)")
            #expect(answer.json["messages"].array.count == 1)
            #expect(answer.json["rejected"].array.map { $0["index"].int } == [1])
            #expect(answer.header("Preference-Applied") == "handling=lenient, wait=60")
        }
    }

    @Test func nothingAccepted_isAnsweredAtOnce() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event", "[]", headers: Self.wait(60))
            #expect(answer.status == 202)
        }
    }

    @Test func cancelled_isNotDelivered() throws {
        try withPausedGateway { gateway in
            gateway.client.sendRequest("POST", "/v1/picky/event", Array(#"{"n":1}"#.utf8), headers: Self.wait(60))
            let other = try HTTPClient(port: gateway.port)
            var id: String?
            try #require(
                try eventually {
                    id = try other.get("/v1/messages").json["messages"][0]["id"].string
                    return id != nil
                })
            #expect(try other.ask("DELETE", "/v1/messages/\(id ?? "")").status == 200)
            let answer = try gateway.client.answer()
            answer.problem(502, "delivery-failed")
            #expect(answer.json["state"].string == "cancelled")
        }
    }

    @Test func draining_answersWhatWaitsAtOnce() throws {
        try withPausedGateway { gateway in
            let clients = try (0..<3).map { _ in try HTTPClient(port: gateway.port) }
            for client in clients {
                client.sendRequest("POST", "/v1/picky/event", Array(#"{"n":1}"#.utf8), headers: Self.wait(60))
            }
            try #require(eventually { gateway.queued == 3 })
            // Their time does not end any more.
            gateway.context.timer.stop()
            gateway.context.beginDraining()
            for client in clients {
                let answer = try client.answer()
                #expect(answer.status == 202)
                #expect(answer.json["state"].string == "queued")
            }
            #expect(eventually { gateway.server.runningRequests == 0 })
        }
    }

    /// Connections and descriptors are free again long before the wait is over, and the messages are delivered.
    @Test func clientsThatHangUp_leaveNothingBehind_andTheirMessagesAreDelivered() throws {
        try withPausedGateway { gateway in
            // Its connection is accepted, and so counted, once it has a response.
            #expect(try gateway.client.get("/v1/messages").status == 200)
            let before = sockets(on: gateway.port)
            var clients = try (0..<200).map { _ in try HTTPClient(port: gateway.port) }
            for client in clients {
                client.sendRequest("POST", "/v1/picky/event", Array(#"{"n":1}"#.utf8), headers: Self.wait(60))
            }
            try #require(eventually { gateway.queued == 200 })
            // Their time does not end any more.
            gateway.context.timer.stop()
            clients = []
            #expect(eventually { gateway.server.runningRequests == 0 })
            #expect(eventually { sockets(on: gateway.port) == before })
            gateway.transport.answerAll { _ in .status(200) }
            #expect(try gateway.client.post("/v1/upstreams/picky/resume").status == 202)
            #expect(eventually { gateway.queued == 0 })
        }
    }

    private struct Tokens: TokenSource {
        var tokenRequest: UpstreamRequest { UpstreamRequest(url: "http://plain.test/token") }
        func token(from response: UpstreamResponse, now: Timestamp) throws(Token.Failure) -> Token {
            guard response.status == 200 else {
                throw Token.Failure(credentialsRefused: response.status == 401, detail: "HTTP \(response.status)")
            }
            return Token(value: "a", renewAt: now + .seconds(1000), expiresAt: now + .seconds(2000))
        }
    }

    @Test(arguments: [
        ("ok", TransferResult.status(200)), ("unauthorized", .status(401)), ("unreachable", .status(503)),
    ])
    func flushOfAnEmptyQueue_saysWhetherTheCredentialsAreAccepted(token: String, result: TransferResult) throws {
        var setup = Setup()
        setup.upstreams = [PlainUpstream("plain", tokenSource: Tokens()), PickyUpstream("picky")]
        setup.results = [result]
        try withGateway(setup) { gateway in
            let answer = try gateway.client.post("/v1/upstreams/plain/flush", "", headers: Self.wait(60))
            #expect(answer.status == 200, "\(answer.text)")
            #expect(answer.json["sent"].int == 0 && answer.json["remaining"].int == 0)
            #expect(answer.json["token"].string == token)
            #expect(answer.header("Preference-Applied") == "wait=60")
            let other = try gateway.client.post("/v1/upstreams/picky/flush", "", headers: Self.wait(60))
            #expect(other.status == 200 && other.json["sent"].int == 0)
            #expect(!other.json["token"].isThere)
        }
    }

    /// It goes on without this process, which does not know how it ends.
    @Test func flushWithoutAWorker_isAnsweredAtOnce() throws {
        try withGateway(Setup()) { gateway in
            gateway.workers[0].beginStopping()
            gateway.workers[0].join()
            let client = try HTTPClient(port: gateway.port, patience: .seconds(30))
            let answer = try client.post("/v1/upstreams/\(gateway.workers[0].name)/flush", "", headers: Self.wait(60))
            #expect(answer.status == 202, "\(answer.text)")
            #expect(answer.header("Preference-Applied") == "wait=60")
        }
    }

    @Test func flushThatFails_isAProblemWithItsReason() throws {
        var setup = Setup()
        setup.results = [.status(503), .status(503), .status(200)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("retry", of: id)
            let answer = try gateway.client.post("/v1/upstreams/picky/flush", "", headers: Self.wait(60))
            answer.problem(502, "delivery-failed")
            #expect(answer.json["detail"].string?.contains("HTTP 503") == true)
            #expect(answer.json["sent"].int == 0 && answer.json["remaining"].int == 1)
            #expect(answer.json["upstreamStatus"].int == 503)
            #expect(answer.json["lastError"]["class"].string == "failing")
            #expect(answer.header("Preference-Applied") == "wait=60")
            let second = try gateway.client.post("/v1/upstreams/picky/flush", "", headers: Self.wait(60))
            #expect(second.status == 200 && second.json["sent"].int == 1, "\(second.text)")
        }
    }

    /// Design, section 3.5: it was carried out. A refused one leaves no line.
    @Test func flushThatFails_isRecorded() throws {
        let log = InMemoryLogHandler()
        var setup = Setup()
        setup.log = log
        setup.results = [.status(503), .status(503)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitFor("retry", of: id)
            for path in ["/v1/upstreams/picky/flush", "/v1/upstreams/absent/flush"] {
                #expect(try gateway.client.post(path, "", headers: Self.wait(60)).status >= 400)
            }
            let lines = log.entries.filter { $0.message == "operator action" }
            #expect(lines.map(\.level) == [.notice])
            #expect(lines.first?.metadata["request"] == "POST /v1/upstreams/picky/flush")
        }
    }

    @Test func requestThatOnlyCounts_isNotRecorded() throws {
        let log = InMemoryLogHandler()
        var setup = Setup()
        setup.log = log
        try withPausedGateway(setup) { gateway in
            let id = try gateway.accept()
            for (path, body) in [
                ("cancel", #"{"upstream":"picky","dryRun":true}"#), ("retry", #"{"upstream":"picky","dryRun":true}"#),
                ("cancel", #"{"ids":["\#(id)"],"dryRun":true}"#), ("cancel", #"{"ids":["\#(id)"]}"#),
            ] {
                #expect(try gateway.client.post("/v1/messages/\(path)", body).status < 300)
            }
            #expect(log.entries.count { $0.message == "operator action" } == 1)
        }
    }

    /// Messages that wait for a token are a failed flush; an empty queue is not.
    @Test func flushWithoutAToken_isAProblem_ifMessagesWait() throws {
        var setup = Setup()
        setup.upstreams = [PlainUpstream("plain", tokenSource: Tokens())]
        try withGateway(setup) { gateway in
            gateway.transport.answerAll { _ in .status(401) }
            _ = try gateway.accept("/v1/plain/thing")
            let answer = try gateway.client.post("/v1/upstreams/plain/flush", "", headers: Self.wait(60))
            answer.problem(502, "delivery-failed")
            #expect(answer.json["token"].string == "unauthorized")
            #expect(answer.json["detail"].string?.contains("no token: HTTP 401") == true)
        }
    }

    @Test func flushWhoseClientHangsUp_continues() throws {
        try withGateway { gateway in
            _ = try gateway.accept()
            try gateway.waitForOpenRequest()
            do {
                let client = try HTTPClient(port: gateway.port)
                client.sendRequest("POST", "/v1/upstreams/picky/flush", [], headers: Self.wait(60))
                try #require(eventually { gateway.server.runningRequests == 1 })
                gateway.context.timer.stop()
            }
            #expect(eventually { gateway.server.runningRequests == 0 })
            gateway.transport.answer(.status(200))
            #expect(eventually { gateway.queued == 0 })
        }
    }

    @Test func settledJustWhenTheGatewayDrains_isAnsweredOnce() throws {
        var setup = Setup()
        setup.delivery.maxInFlight = 4
        for _ in 0..<20 {
            try withGateway(setup) { gateway in
                gateway.client.sendRequest("POST", "/v1/picky/event", Array(#"{"n":1}"#.utf8), headers: Self.wait(60))
                try gateway.waitForOpenRequest()
                gateway.transport.answer(.status(200))
                gateway.context.beginDraining()
                let answer = try gateway.client.answer()
                #expect([200, 202].contains(answer.status))
                #expect(!gateway.client.hasMore)
            }
        }
    }
}

/// Several replies may be held for one message.
@Suite struct PendingRepliesTests {
    private final class FakeResponder: PendingReply {
        let ids: [MessageID]
        private let heard = Mutex<[String]>([])
        init(_ ids: [MessageID]) { self.ids = ids }
        var words: [String] { heard.withLock { $0 } }
        func settled(_ notice: SettledNotice) -> Bool {
            heard.withLock { $0.append(notice.state.name) }
            return true
        }
        func finishNow() { heard.withLock { $0.append("gave up") } }
        func onHangUp(_ action: @escaping @Sendable () -> Void) { hangUpAction.withLock { $0 = action } }
        private let hangUpAction = Mutex<(@Sendable () -> Void)?>(nil)
        func hangUp() { hangUpAction.withLock { $0 }?() }
    }

    @Test func releasedReply_leavesTheOthersHeld() throws {
        try withPausedGateway { gateway in
            let replies = gateway.context.pendingReplies
            let id = try #require(MessageID(try gateway.accept()))
            let (patient, hasty) = (FakeResponder([id]), FakeResponder([id]))
            replies.hold(patient, seconds: 60)
            replies.hold(hasty, seconds: 60)
            replies.release(hasty)
            #expect(try gateway.client.ask("DELETE", "/v1/messages/\(id)").status == 200)
            #expect(eventually { patient.words == ["cancelled"] })
            #expect(hasty.words == ["gave up"])
        }
    }

    @Test func messagesThatFailedWhenTheyWereStored_areNotWaitedFor() throws {
        try withPausedGateway { gateway in
            let replies = gateway.context.pendingReplies
            let receipt = try gateway.append([gateway.newMessage(failure: "is not valid"), gateway.newMessage()])
            let reply = FakeResponder(receipt.ids)
            replies.hold(reply, ended: receipt.notices, seconds: 60)
            #expect(reply.words == ["failed"])
            replies.close()
            #expect(reply.words == ["failed"], "it has been sent")
        }
    }

    @Test func replyWhoseClientHangsUp_isReleased() throws {
        try withPausedGateway { gateway in
            let id = try #require(MessageID(try gateway.accept()))
            let reply = FakeResponder([id])
            gateway.context.pendingReplies.hold(reply, seconds: 60)
            reply.hangUp()
            #expect(reply.words == ["gave up"])
            #expect(try gateway.client.ask("DELETE", "/v1/messages/\(id)").status == 200)
            #expect(reply.words == ["gave up"])
        }
    }

    @Test func closing_sendsAllReplies_andLaterOnesAtOnce() throws {
        try withPausedGateway { gateway in
            let replies = gateway.context.pendingReplies
            let id = try #require(MessageID(try gateway.accept()))
            let (early, late) = (FakeResponder([id]), FakeResponder([id]))
            replies.hold(early, seconds: 60)
            replies.close()
            replies.hold(late, seconds: 60)
            #expect(early.words == ["gave up"])
            #expect(late.words == ["gave up"])
        }
    }

    @Test func replyWhoseTimeIsOver_isSentOnce() throws {
        try withPausedGateway { gateway in
            let reply = FakeResponder([try #require(MessageID(try gateway.accept()))])
            gateway.context.pendingReplies.hold(reply, seconds: 0)
            #expect(eventually { !reply.words.isEmpty })
            gateway.context.pendingReplies.close()
            #expect(reply.words == ["gave up"])
        }
    }
}

/// The sockets of this process with that local port: the listener, and the server's side of connections.
private func sockets(on port: UInt16) -> Int {
    (0..<Int32(sysconf(Int32(_SC_OPEN_MAX)))).count { descriptor in
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isSocket = withUnsafeMutableBytes(of: &address) {
            getsockname(descriptor, $0.assumingMemoryBound(to: sockaddr.self).baseAddress!, &size) == 0
        }
        return isSocket && address.sin_family == AF_INET && address.sin_port == port.bigEndian
    }
}
