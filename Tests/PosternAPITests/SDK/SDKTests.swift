import Foundation
import InMemoryLogging
import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternAPI
@testable import PosternHTTP

/// Endpoints in the place of a platform's.
@Suite(.timeLimit(.minutes(5))) struct SDKTests {
    private static func key(_ name: String, _ scopes: Set<APIKey.Scope>, _ upstream: String? = nil) -> APIKey {
        APIKey(
            name: name, sha256: KeyText.digest(of: "key-\(name)"), scopes: scopes,
            upstreams: upstream.flatMap { UpstreamName($0) }.map { [$0] }, limits: RateLimits(), expiresAt: nil)
    }

    private static func withNumbers(
        _ upstream: NumbersUpstream = NumbersUpstream(), keys: [APIKey] = [key("w", [.write]), key("r", [.read])],
        setup: Setup = Setup(), _ body: (TestGateway) throws -> Void
    ) throws {
        var setup = setup
        setup.upstreams.append(upstream)
        setup.paused = ["numbers"]
        try withGateway(setup) { (gateway) throws in
            gateway.handler.replaceKeys(keys, opensMetrics: true)
            try body(gateway)
        }
    }

    private static func basic(_ password: String) -> [(String, String)] {
        [("Authorization", "Basic \(Data("sdk:\(password)".utf8).base64EncodedString())")]
    }

    private static func count(_ outcome: String, call: String = "numbers", _ gateway: TestGateway) throws -> Double? {
        try gateway.sample(#"postern_sdk_requests_total{upstream="numbers",call="\#(call)",outcome="\#(outcome)"}"#)
    }

    // MARK: What is stored

    @Test func itemsOfARequest_areStoredTogether_andThoseThatBreakARuleAsFailed() throws {
        try Self.withNumbers { (gateway) throws in
            let answer = try gateway.client.post("/sdk/numbers/in/a", "[2,3,4]", headers: Self.basic("key-w"))
            #expect(answer.status == 200 && answer.text == "3 0")
            let ledger = gateway.outbox.ledger(of: gateway.workers[2].queue.number)
            #expect((ledger.accepted, ledger.queued, ledger.failed) == (3, 2, 1))
            #expect(try Self.count("accepted", gateway) == 1)
            gateway.handler.replaceKeys([], opensMetrics: true)
            let failed = try gateway.client.get("/v1/messages?upstream=numbers&state=failed").json["messages"][0]
            #expect(failed["via"].string == "sdk")
            #expect(failed["lastError"]["class"].string == "refused")
            #expect(failed["lastError"]["detail"].string == "/n: must be even")
        }
    }

    @Test func repeatedItem_isStoredOnce_andItsRequestAnsweredAsBefore() throws {
        try Self.withNumbers { (gateway) throws in
            for (body, text, outcome) in [
                ("[102,4]", "2 0", "accepted"), ("[102]", "1 1", "repeated"), ("[102,104,4]", "3 1", "accepted"),
            ] {
                let before = try Self.count(outcome, gateway)
                let answer = try gateway.client.post("/sdk/numbers/in/a", body, headers: Self.basic("key-w"))
                #expect(answer.text == text)
                #expect(try Self.count(outcome, gateway) == (before ?? 0) + 1)
            }
            #expect(gateway.outbox.ledger(of: gateway.workers[2].queue.number).accepted == 4)
        }
    }

    @Test func callThatWaits_canStore_too() throws {
        try Self.withNumbers { (gateway) throws in
            #expect(try gateway.client.post("/sdk/numbers/later", "[2]").text == "1 0")
            #expect(try Self.count("accepted", call: "later", gateway) == 1)
            #expect(try gateway.client.get("/sdk/numbers/status").status == 200)
        }
    }

    @Test func refusalOfACallThatWaits_countsAsThatOfAMessage() throws {
        try Self.withNumbers { (gateway) throws in
            func refused(_ reason: String) throws -> Double? {
                try gateway.sample(#"postern_messages_refused_total{upstream="numbers",reason="\#(reason)"}"#)
            }
            let key = [("X-Key", "k")]
            #expect(try gateway.client.post("/sdk/numbers/checked", "[2]").status == 401)
            #expect(try gateway.client.post("/sdk/numbers/checked", "[", headers: key).status == 400)
            #expect(try gateway.client.post("/sdk/numbers/checked", "[2]", headers: key).status == 200)
            #expect(try refused("unauthorized") == 1)
            #expect(try refused("invalid-payload") == 1)
        }
    }

    // MARK: Who is let in

    @Test func key_isTakenAsPasswordAndAsToken_onThesePathsAlone() throws {
        try Self.withNumbers { (gateway) throws in
            for headers in [Self.basic("key-w"), [("Authorization", "bearer key-w")]] {
                #expect(try gateway.client.post("/sdk/numbers/in/a", "[2]", headers: headers).status == 200)
            }
            // Also on a connection on which it has been accepted as a password.
            let other = try gateway.client.post("/v1/plain/thing", "{}", headers: Self.basic("key-w"))
            other.problem(401, "unauthorized")
        }
    }

    @Test(arguments: [[], [key("w", [.write]), key("r", [.read]), key("p", [.write], "plain")]])
    func strangers_areRefusedInThePlatformsForm_whetherOrNotThereAreKeys(keys: [APIKey]) throws {
        try Self.withNumbers(keys: keys) { (gateway) throws in
            for headers in [
                [], Self.basic("wrong"), Self.basic("key-r"), Self.basic("key-p"), [("Authorization", "Basic ?")],
                [("Authorization", "Bearer wrong")],
            ] {
                let answer = try gateway.client.post("/sdk/numbers/in/a", "[2]", headers: headers)
                #expect(answer.status == 401 && answer.text == "unauthorized", "\(headers) \(answer.text)")
                #expect(answer.header("Content-Type") == "text/sdk")
            }
            #expect(try Self.count("unauthorized", gateway) == 6)
            #expect(gateway.outbox.ledger(of: gateway.workers[2].queue.number).accepted == 0)
        }
    }

    @Test func anyone_isLetIn_whereTheRouteIsOpen() throws {
        var upstream = NumbersUpstream()
        upstream.access = .open
        try Self.withNumbers(upstream) { (gateway) throws in
            #expect(try gateway.client.post("/sdk/numbers/in/a", "[2]").status == 200)
        }
    }

    @Test func checkOfTheHead_refusesBeforeTheBodyIsRead() throws {
        var upstream = NumbersUpstream()
        upstream.access = .head {
            $0.header("X-Key") == "k" ? nil : SDKAnswer(401, .unauthorized, body: Array("no".utf8))
        }
        try Self.withNumbers(upstream) { (gateway) throws in
            #expect(try gateway.client.post("/sdk/numbers/in/a", "[2]", headers: [("X-Key", "k")]).status == 200)
            let connection = try HTTPClient(port: gateway.port)
            connection.send("POST /sdk/numbers/in/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n")
            let answer = try connection.next()
            #expect(answer.head[0] == "HTTP/1.1 401 Unauthorized" && answer.body == Array("no".utf8))
            #expect(try Self.count("unauthorized", gateway) == 1)
        }
    }

    @Test func tooManyRequestsOfAnAddress_findNoRoom() throws {
        var upstream = NumbersUpstream()
        upstream.settings.requestsPerSecondPerAddress = 2
        try Self.withNumbers(upstream, keys: []) { (gateway) throws in
            let statuses = try (0..<4).map { _ in try gateway.client.get("/sdk/numbers/status").status }
            #expect(statuses == [200, 200, 503, 503])
        }
    }

    // MARK: Refusals

    @Test func everythingBelowThePrefix_isRefusedInThePlatformsForm() throws {
        try Self.withNumbers { (gateway) throws in
            func expect(_ status: Int, _ text: String, _ answer: HTTPClient.Answer) {
                #expect(answer.status == status && answer.text == text, "\(answer.status) \(answer.text)")
                #expect(answer.header("Content-Type") == "text/sdk")
            }
            let key = Self.basic("key-w")
            expect(404, "notFound", try gateway.client.post("/sdk/numbers/x", "[]", headers: key))
            expect(404, "notFound", try gateway.client.post("/sdk/numbers/in/a/", "[]", headers: key))
            expect(404, "notFound", try gateway.client.get("/sdk/numbers"))
            expect(405, #"methodNotAllowed("POST")"#, try gateway.client.get("/sdk/numbers/in/a"))
            expect(
                413, "tooLarge",
                try HTTPClient(port: gateway.port).post(
                    "/sdk/numbers/in/a", String(repeating: " ", count: 129 << 10), headers: key))
            expect(
                400, "malformed",
                try gateway.client.post(
                    "/sdk/numbers/in/a", "[2]", headers: key + [("Content-Encoding", "gzip")]))
            expect(
                400, "malformed",
                try gateway.client.post("/sdk/numbers/in/a", "[2]", headers: key + [("Content-Encoding", "br")]))
            expect(
                403, "forbidden",
                try gateway.client.post(
                    "/sdk/numbers/in/a", "[2]", headers: key + [("Origin", "https://elsewhere.test")]))
            let connection = try HTTPClient(port: gateway.port)
            connection.send("POST /sdk/numbers/in/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n")
            #expect(try connection.next().body == Array("malformed".utf8))
            let query = String(repeating: "a", count: HTTPServerSettings.maxHeaderBytes)
            for (rest, text) in [("?\(query) HTTP/1.1", "tooLarge"), (" HTTP/2.0", "malformed")] {
                let connection = try HTTPClient(port: gateway.port)
                connection.send("POST /sdk/numbers/in/a\(rest)\r\n\r\n")
                #expect(try connection.next().body == Array(text.utf8))
            }
            gateway.handler.replaceKeys([], opensMetrics: true)
            let foreign = try HTTPClient(port: gateway.port)
            foreign.send("GET /sdk/numbers/status HTTP/1.1\r\nHost: evil.test\r\n\r\n")
            expect(403, "forbidden", try foreign.answer())
            // Elsewhere, nothing changes.
            try gateway.client.get("/sdk/other").problem(404, "not-found")
            gateway.context.beginDraining()
            gateway.handler.replaceKeys([Self.key("w", [.write])], opensMetrics: true)
            expect(503, "noRoom", try gateway.client.post("/sdk/numbers/in/a", "[2]", headers: key))
        }
    }

    @Test func emptySegments_doNotCount_andARouteMayBeAtTheRoot() throws {
        try Self.withNumbers { (gateway) throws in
            for path in ["//sdk/numbers//in/a", "/sdk/numbers/in/a%20b", "/in/a", "//in/a"] {
                #expect(try gateway.client.post(path, "[2]", headers: Self.basic("key-w")).status == 200, "\(path)")
            }
        }
    }

    private static func withFullQueue(
        _ patience: Duration, _ body: (TestGateway) throws -> Void
    ) throws {
        var upstream = NumbersUpstream()
        upstream.patience = patience
        var setup = Setup()
        setup.caps["numbers"] = QueueCap.with { $0.maxMessages = 1 }
        try withNumbers(upstream, keys: [], setup: setup) { (gateway) throws in
            #expect(try gateway.client.post("/sdk/numbers/later", "[2]").status == 200)
            try body(gateway)
        }
    }

    @Test func fullQueue_isNoRoom() throws {
        try Self.withFullQueue(.zero) { (gateway) throws in
            #expect(try gateway.client.post("/sdk/numbers/later", "[4]").text == "noRoom")
            #expect(try Self.count("no_room", call: "later", gateway) == 1)
        }
    }

    @Test func request_isHeldUntilThereIsRoom_ifItsSDKWouldLoseSomething() throws {
        try Self.withFullQueue(.seconds(60)) { (gateway) throws in
            let waiting = try HTTPClient(port: gateway.port)
            waiting.sendRequest("POST", "/sdk/numbers/later", Array("[4]".utf8))
            let list = try gateway.client.get("/v1/messages?upstream=numbers").json["messages"]
            let id = try #require(list[0]["id"].string)
            #expect(try gateway.client.ask("DELETE", "/v1/messages/\(id)").status == 200)
            #expect(try waiting.answer().text == "1 0")
        }
    }

    private static func withFullQueueOfAnyone(_ body: (TestGateway) throws -> Void) throws {
        var upstream = NumbersUpstream()
        (upstream.access, upstream.patience) = (.open, .seconds(600))
        var setup = Setup()
        setup.caps["numbers"] = QueueCap.with { $0.maxMessages = 1 }
        try withNumbers(upstream, keys: [], setup: setup) { (gateway) throws in
            #expect(try gateway.client.post("/sdk/numbers/in/a", "[2]").status == 200)
            try body(gateway)
        }
    }

    private static func makeRoom(_ gateway: TestGateway) throws {
        let list = try gateway.client.get("/v1/messages?upstream=numbers&state=queued").json["messages"]
        let id = try #require(list[0]["id"].string)
        #expect(try gateway.client.ask("DELETE", "/v1/messages/\(id)").status == 200)
    }

    @Test func requestThatIsHeld_isStoredOnce_asSoonAsThereIsRoom() throws {
        try Self.withFullQueueOfAnyone { (gateway) throws in
            let waiting = try HTTPClient(port: gateway.port)
            waiting.sendRequest("POST", "/sdk/numbers/in/a", Array("[104]".utf8))
            let sdk = gateway.handler.handlers.sdk
            #expect(eventually { sdk.held.load(ordering: .relaxed) == 1 })
            try Self.makeRoom(gateway)
            #expect(try waiting.answer().text == "1 0")
            #expect(gateway.outbox.ledger(of: gateway.workers[2].queue.number).accepted == 2)
        }
    }

    /// It keeps what it has, and sends it again.
    @Test func requestThatIsHeld_isNotStored_onceItsClientHasHungUp() throws {
        try Self.withFullQueueOfAnyone { (gateway) throws in
            let sdk = gateway.handler.handlers.sdk
            var waiting: HTTPClient? = try HTTPClient(port: gateway.port)
            waiting?.sendRequest("POST", "/sdk/numbers/in/a", Array("[4]".utf8))
            #expect(eventually { sdk.held.load(ordering: .relaxed) == 1 })
            waiting = nil
            #expect(eventually { (try? Self.count("no_room", gateway)) == 1 })
            try Self.makeRoom(gateway)
            #expect(gateway.outbox.ledger(of: gateway.workers[2].queue.number).accepted == 1)
        }
    }

    @Test func addressThatSendsTooMuch_isHeld_ifItsSDKWouldLoseSomething() throws {
        var upstream = NumbersUpstream()
        (upstream.access, upstream.patience, upstream.settings.requestsPerSecondPerAddress) = (.open, .seconds(600), 1)
        try Self.withNumbers(upstream, keys: []) { (gateway) throws in
            for _ in 0..<3 { #expect(try gateway.client.post("/sdk/numbers/in/a", "[2]").status == 200) }
            // What is not stored is not held.
            #expect(try gateway.client.post("/sdk/numbers/in/a", "x").status == 400)
            #expect(try gateway.client.get("/sdk/numbers/status").status == 503)
        }
    }

    @Test func requestThatIsNotAdmitted_isNotHeld() throws {
        var upstream = NumbersUpstream()
        (upstream.access, upstream.patience, upstream.settings.requestsPerSecondPerAddress) = (.open, .seconds(600), 1)
        var setup = Setup()
        // The address may never send again.
        setup.time = ManualTime()
        try Self.withNumbers(upstream, keys: [], setup: setup) { (gateway) throws in
            #expect(try gateway.client.post("/sdk/numbers/in/a", "[2]").status == 200)
            #expect(try gateway.client.post("/sdk/numbers/in/a", "[40]").status == 401)
            #expect(try Self.count("unauthorized", gateway) == 1)
        }
    }

    /// The SDK takes any answer for a success.
    @Test func callWithoutRoom_isNotAnswered_ifItsRouteSaysSo() throws {
        try Self.withFullQueue(.zero) { (gateway) throws in
            #expect(throws: (any Error).self) {
                try HTTPClient(port: gateway.port).ask("PUT", "/sdk/numbers/one/a", Array("[4]".utf8))
            }
            #expect(try Self.count("no_room", call: "one", gateway) == 0)
            #expect(try Self.count("no_room", call: "other", gateway) == 1)
            let problem = Problem(slug: .overloaded, status: 503, detail: "")
            for (path, isDropped) in [("/sdk/numbers/uno/a", true), ("/sdk/numbers/later", false)] {
                let response = gateway.handler.response(to: problem, path: path, requestID: "r")
                #expect(response.isDropped == isDropped, "\(path)")
            }
        }
    }

    @Test func pathThatHasAnotherName_isTheSameCall_andTheAnswerSaysWhichOneItIs() throws {
        try Self.withNumbers { (gateway) throws in
            for path in ["one/a", "uno/a"] {
                let answer = try gateway.client.ask("PUT", "/sdk/numbers/\(path)", Array("[4]".utf8))
                #expect(answer.status == 200 && answer.text == "1 0")
            }
            #expect(try Self.count("accepted", call: "other", gateway) == 2)
            #expect(try Self.count("accepted", call: "one", gateway) == 0)
        }
    }

    @Test func strangersAreRefused_beforePathsAre_ifThePlatformDoesSo() throws {
        try Self.withNumbers(NumbersUpstream(checksCallersFirst: true)) { (gateway) throws in
            #expect(try gateway.client.get("/sdk/numbers/nowhere").status == 401)
            let known = try gateway.client.ask("GET", "/sdk/numbers/nowhere", headers: [("X-Token", "t")])
            #expect(known.status == 404 && known.text == "notFound")
        }
    }

    @Test func callThatWaits_isAnswered_whenItIsTold_orItsTimeIsOver_orTheGatewayStops() throws {
        try Self.withNumbers { (gateway) throws in
            #expect(try gateway.client.get("/sdk/numbers/patient/60").text == "found")
            #expect(try gateway.client.get("/sdk/numbers/patient/1").text == "away")
            let waiting = try HTTPClient(port: gateway.port)
            waiting.sendRequest("GET", "/sdk/numbers/patient/59")
            gateway.context.beginDraining()
            #expect(try waiting.answer().text == "away")
        }
    }

    @Test func prefix_isInNoLogLine_andNoMetric() throws {
        var upstream = NumbersUpstream()
        upstream.settings.prefix = "/sdk/hush-hush-hush"
        let log = InMemoryLogHandler()
        var setup = Setup()
        setup.log = log
        try Self.withNumbers(upstream, setup: setup) { (gateway) throws in
            #expect(
                try gateway.client.post("/sdk/hush-hush-hush/in/a", "[2]", headers: Self.basic("key-w")).status == 200)
            #expect(try gateway.client.post("/sdk/hush-hush-hush/x", "[2]", headers: Self.basic("key-w")).status == 404)
            #expect(try gateway.client.post("/sdk/hush-hush-hush/in/a", "[2]").status == 401)
            #expect(try !gateway.client.get("/metrics").text.contains("hush"))
            #expect(try gateway.sample(#"postern_http_requests_total{route="sdk/numbers/numbers",status="200"}"#) == 1)
        }
        #expect(!log.entries.isEmpty && !log.entries.contains { "\($0)".contains("hush") })
    }
}
