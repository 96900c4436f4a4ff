import Glibc
import PosternCore
import PosternDelivery
import PosternEvents
import PosternHTTP
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternAPI

/// `GET /v1/stream`, against a real store and a real server.
@Suite(.timeLimit(.minutes(10))) struct StreamTests {
    private static let body = #"{"n":1,"name":"hush, a payload"}"#

    // MARK: What is told

    @Test func acceptedMessages_areReported_asQueuedAndSentAndDelivered() throws {
        try withGateway { gateway in
            let client = try EventClient(gateway.port)
            #expect(client.head.header("Content-Type") == "text/event-stream")
            #expect(client.head.header("Cache-Control") == "no-store")
            let id = try gateway.accept()
            #expect(try client.next(.messageQueued).ids == [id])
            #expect(try client.next(.batchSent).ids == [id])
            gateway.transport.answer(.status(200))
            let delivered = try client.next(.messageDelivered)
            #expect(delivered.ids == [id] && delivered.json["count"].int == 1)
            #expect(delivered.json["upstream"].string == "picky")
            #expect(delivered.json.keys == ["upstream", "ids", "count"])
        }
    }

    @Test func failedAndRetryingMessages_areReported_alsoWhenTheyAreQueuedAgain() throws {
        var setup = Setup()
        setup.results = [.status(503), .status(410, "gone"), .status(200)]
        try withGateway(setup) { gateway in
            let client = try EventClient(gateway.port)
            let id = try gateway.accept()
            #expect(try client.next(.messageRetrying).ids == [id])
            _ = try gateway.client.post("/v1/upstreams/picky/flush")
            #expect(try client.next(.messageFailed).ids == [id])
            #expect(try gateway.client.post("/v1/messages/\(id)/retry").status == 202)
            #expect(try client.next(.messageQueued).ids == [id])
            #expect(try client.next(.messageDelivered).ids == [id])
        }
    }

    @Test func evictedMessage_isReportedAsDropped() throws {
        var setup = Setup()
        setup.caps["picky"] = QueueCap.with { ($0.maxMessages, $0.whenFull) = (1, .dropOldest) }
        try withPausedGateway(setup) { gateway in
            let client = try EventClient(gateway.port)
            let (first, second) = (try gateway.accept(), try gateway.accept())
            #expect(try client.next(.messageQueued).ids.first == first)
            #expect(try client.next(.messageDropped).ids == [first])
            #expect(try gateway.message(second)["state"].string == "queued")
        }
    }

    @Test func messageThatIsTooOld_isReportedAsExpired() throws {
        try withPausedGateway { gateway in
            let client = try EventClient(gateway.port)
            let id = try gateway.storeExpired()
            #expect(try client.next(.messageExpired).ids == [id])
        }
    }

    @Test func messagesThatAnOperatorChanges_areToldWithTheKey() throws {
        var setup = Setup()
        setup.results = [.status(422), .status(503)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitForState("failed", of: id)
            gateway.handler.replaceKeys(
                [APIKey(name: "olga", sha256: KeyText.digest(of: "k"), scopes: [.read, .admin])], opensMetrics: false)
            let bearer = [("Authorization", "Bearer k")]
            let client = try EventClient(gateway.port, "?type=message.queued&type=message.cancelled", headers: bearer)
            #expect(try gateway.client.post("/v1/messages/\(id)/retry", headers: bearer).status == 202)
            let data = #"{"upstream":"picky","ids":["\#(id)"],"count":1,"by":"olga"}"#
            #expect(try client.next(.messageQueued).data == data)
            try #require(
                try eventually {
                    try gateway.client.ask("DELETE", "/v1/messages/\(id)", headers: bearer).status == 200
                })
            #expect(try client.next(.messageCancelled).data == data)
        }
    }

    @Test func pauseAndResumption_areTold_withTheKey() throws {
        try withGateway { gateway in
            let keys = ["olga", "ben"].map {
                APIKey(name: $0, sha256: KeyText.digest(of: $0), scopes: [.read, .admin])
            }
            gateway.handler.replaceKeys(keys, opensMetrics: false)
            let client = try EventClient(gateway.port, headers: [("Authorization", "Bearer olga")])
            for (action, name, type) in [
                ("pause", "olga", EventType.upstreamPaused), ("resume", "ben", .upstreamResumed),
            ] {
                let headers = [("Authorization", "Bearer \(name)")]
                #expect(try gateway.client.post("/v1/upstreams/plain/\(action)", headers: headers).status == 202)
                #expect(try client.next(type).data == #"{"upstream":"plain","ids":[],"count":0,"by":"\#(name)"}"#)
            }
            gateway.context.wasReloaded()
            #expect(try client.next(.configurationReloaded).data == #"{"upstream":null,"ids":[],"count":0}"#)
        }
    }

    @Test func upstreamThatFails_isReportedAsDown_andAsUpAgain() throws {
        var setup = Setup()
        setup.results = [.status(429, headers: [("Retry-After", "3600")]), .status(200)]
        try withGateway(setup) { gateway in
            let client = try EventClient(gateway.port, "?upstream=plain")
            _ = try gateway.accept("/v1/plain/thing", "{}")
            let down = try client.next(.upstreamDown)
            #expect(down.data == #"{"upstream":"plain","ids":[],"count":0}"#)
            _ = try client.next(.messageRetrying)
            _ = try gateway.client.post("/v1/upstreams/plain/flush")
            _ = try client.next(.upstreamUp)
        }
    }

    @Test func tokens_areReported() throws {
        var setup = Setup()
        setup.upstreams = [PickyUpstream("picky", tokenSource: TestTokens())]
        setup.results = [.status(503), .status(200), .status(200)]
        try withGateway(setup) { gateway in
            let client = try EventClient(gateway.port, "?type=token.failed&type=token.refreshed")
            _ = try gateway.accept()
            #expect(try client.next().type == "token.failed")
            _ = try gateway.client.post("/v1/upstreams/picky/resume")
            #expect(try client.next().type == "token.refreshed")
        }
    }

    @Test func finishedFlush_isReported_withItsCount() throws {
        var setup = Setup()
        setup.delivery.batchMaxWait = .seconds(3600)
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let client = try EventClient(gateway.port, "?type=flush.finished")
            for _ in 0..<3 { _ = try gateway.accept() }
            _ = try gateway.client.post("/v1/upstreams/picky/flush")
            #expect(try client.next().data == #"{"upstream":"picky","ids":[],"count":3}"#)
        }
    }

    /// A request that is rejected leaves no event, and neither does one whose messages were not stored.
    @Test func rejectedRequest_leavesNoEvent() throws {
        var setup = Setup()
        setup.caps["picky"] = QueueCap.with { $0.maxMessages = 1 }
        try withPausedGateway(setup) { gateway in
            let client = try EventClient(gateway.port)
            let id = try gateway.accept()
            #expect(try gateway.client.post("/v1/picky/event", #"[{"n":1},{"n":"x"}]"#).status == 422)
            #expect(try gateway.client.post("/v1/picky/event", Self.body).status == 503)
            _ = try gateway.accept("/v1/plain/thing", "{}")
            let events = [try client.next(), try client.next()]
            #expect(events.map(\.ids.first).first == id)
            #expect(events.map { $0.json["upstream"].string } == ["picky", "plain"])
        }
    }

    @Test func manyMessages_areOneEvent_withTheFirstIDsAndTheCount() throws {
        try withPausedGateway { gateway in
            let client = try EventClient(gateway.port)
            let bodies = (0..<1000).map { "{\"n\":\($0)}" }.joined(separator: ",")
            let accepted = try gateway.client.post("/v1/picky/event", "[\(bodies)]")
            let event = try client.next()
            #expect(event.json["count"].int == 1000)
            #expect(event.ids == accepted.json["ids"].strings)
        }
    }

    @Test func events_containNoPayloadAndNoSecret() throws {
        var setup = Setup()
        setup.upstreams = [PickyUpstream("picky", tokenSource: TestTokens()), PlainUpstream("plain")]
        setup.results = [.status(200), .status(410, PickyUpstream.secret)]
        try withGateway(setup) { gateway in
            let client = try EventClient(gateway.port)
            _ = try gateway.accept("/v1/picky/event", Self.body)
            _ = try client.next(.messageFailed)
            gateway.context.beginDraining()
            _ = try client.rest()
            let lines = client.parser.text.split(separator: "\n")
            let form =
                #/:|id: [0-9a-f]+-[0-9]+|event: [a-z.]+|data: {"upstream":"[a-z]+","ids":\[[0-9a-z",]*\],"count":\d+(,"requests":\d+)?}/#
            for line in lines { #expect(line.wholeMatch(of: form) != nil, "\(line)") }
        }
    }

    // MARK: Filters and access

    @Test func filters_andTheUpstreamsOfTheKey_restrictTheEvents() throws {
        try withPausedGateway { gateway in
            let keys = [
                APIKey(name: "all", sha256: KeyText.digest(of: "all"), scopes: [.read, .write]),
                APIKey(
                    name: "plain", sha256: KeyText.digest(of: "plain"), scopes: [.read],
                    upstreams: [try #require(UpstreamName("plain"))]),
            ]
            gateway.handler.replaceKeys(keys, opensMetrics: false)
            func bearer(_ name: String) -> [(String, String)] { [("Authorization", "Bearer \(name)")] }
            let restricted = try EventClient(gateway.port, headers: bearer("plain"))
            let filtered = try EventClient(gateway.port, "?type=message.queued&upstream=plain", headers: bearer("all"))
            let others = try EventClient(gateway.port, "?type=message.failed", headers: bearer("all"))
            #expect(try EventClient(gateway.port, "?upstream=picky", headers: bearer("plain")).head.status == 403)
            for path in ["/v1/picky/event", "/v1/plain/thing"] {
                #expect(try gateway.client.post(path, Self.body, headers: bearer("all")).status == 202)
            }
            #expect(try restricted.next().json["upstream"].string == "plain")
            #expect(try filtered.next().json["upstream"].string == "plain")
            gateway.context.beginDraining()
            for client in [others, restricted, filtered] { #expect(try client.rest().isEmpty) }
        }
    }

    @Test(
        arguments: [
            ("GET", "?type=message.lost", [], 400, "bad-request"), ("GET", "?type=", [], 400, "bad-request"),
            ("GET", "?kind=event", [], 400, "bad-request"),
            ("GET", "?upstream=picky&upstream=picky", [], 400, "bad-request"),
            ("GET", "?upstream=absent", [], 404, "unknown-upstream"),
            ("GET", "", [("Accept", "text/plain")], 406, "not-acceptable"),
            ("GET", "?after=1-1", [], 400, "bad-request"), ("GET", "?limit=7", [], 400, "bad-request"),
            ("GET", "?limit=0", [("Accept", "application/json")], 400, "bad-request"),
            ("POST", "", [], 405, "method-not-allowed"), ("DELETE", "", [], 405, "method-not-allowed"),
        ] as [(String, String, [(String, String)], Int, String)])
    func requestThatIsNotValid_isRefused(
        method: String, query: String, headers: [(String, String)], status: Int, slug: String
    ) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.ask(method, "/v1/stream" + query, headers: headers)
            answer.problem(status, slug)
            if status == 405 { #expect(answer.header("Allow") == "GET, HEAD") }
            #expect(!gateway.outbox.events.isCollecting)
        }
    }

    @Test(arguments: ["text/event-stream", "*/*", "text/*", "application/json, text/event-stream;q=0.5"])
    func accept_admitsTheStream(accept: String) throws {
        try withPausedGateway { gateway in
            let client = try EventClient(gateway.port, headers: [("Accept", accept)])
            #expect(client.head.status == 200)
        }
    }

    @Test func clientThatAcceptsJSONAlone_getsWhatHasHappened_atOnce() throws {
        try withPausedGateway { gateway in
            func poll(_ query: String = "", _ headers: [(String, String)] = []) throws -> JSON {
                let accept = [("Accept", "application/json")]
                let answer = try gateway.client.ask("GET", "/v1/stream" + query, headers: accept + headers)
                #expect(answer.status == 200 && answer.header("Content-Type") == "application/json", "\(answer.text)")
                #expect(answer.json.keys == ["events", "last", "gap"])
                return answer.json
            }
            let first = try poll()
            #expect(first["events"].array.isEmpty && first["gap"].bool == false)
            var last = try #require(first["last"].string)
            let (picky, plain) = (try gateway.accept(), try gateway.accept("/v1/plain/thing", "{}"))
            var events: [JSON] = []
            try #require(
                try eventually {
                    let more = try poll("?after=\(last)")
                    last = more["last"].string ?? ""
                    events += more["events"].array
                    return events.count >= 2
                })
            #expect(events.map { $0["type"].string } == ["message.queued", "message.queued"])
            #expect(events.map { $0["data"]["ids"][0].string } == [picky, plain])
            #expect(events[1]["id"].string == last)
            #expect(try poll("?limit=1")["events"].array.map { $0["data"]["ids"][0].string } == [plain])
            #expect(try poll("?upstream=picky&type=message.queued")["events"].array.count == 1)
            #expect(try poll("?type=message.failed")["events"].array.isEmpty)
            #expect(try poll("?after=0-1")["gap"].bool == true)
            #expect(gateway.context.stream.listenerCount == 0)
            let key = APIKey(
                name: "p", sha256: KeyText.digest(of: "p"), scopes: [.read], upstreams: [UpstreamName("plain")!])
            gateway.handler.replaceKeys([key], opensMetrics: false)
            let own = try poll("", [("Authorization", "Bearer p")])["events"].array
            #expect(own.map { $0["data"]["upstream"].string } == ["plain"])
        }
    }

    @Test func head_getsTheHeaders_andListensToNothing() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.ask("HEAD", "/v1/stream")
            #expect(answer.status == 200 && answer.header("Content-Type") == "text/event-stream")
            #expect(!gateway.outbox.events.isCollecting)
        }
    }

    // MARK: Coming back

    @Test func lastEventID_resumes_andAnUnknownOneGetsAGap() throws {
        try withPausedGateway { gateway in
            let first = try EventClient(gateway.port)
            let ids = try (0..<3).map { _ in
                let id = try gateway.accept()
                #expect(try first.next().ids == [id])
                return id
            }
            let known = try EventClient(gateway.port)
            _ = try gateway.accept("/v1/plain/thing", "{}")
            let last = try known.next().id
            let number = try #require(Int(last.split(separator: "-").last ?? ""))
            let earlier = last.prefix { $0 != "-" } + "-\(number - 3)"
            let back = try EventClient(gateway.port, headers: [("Last-Event-ID", String(earlier))])
            for id in ids.dropFirst() { #expect(try back.next().ids == [id]) }
            #expect(try back.next().id == last)
            let lost = try EventClient(gateway.port, headers: [("Last-Event-ID", "1-1")])
            #expect(try lost.next().type == "gap")
            _ = try gateway.accept()
            #expect(try lost.next().type == "message.queued")
        }
    }

    /// As after a restart: the ids of another run mean nothing.
    @Test func idOfAnEarlierRun_getsAGap() throws {
        var setup = Setup()
        setup.folder = ScratchFolder()
        var id = ""
        try withPausedGateway(setup) { gateway in
            let client = try EventClient(gateway.port)
            _ = try gateway.accept()
            id = try client.next().id
        }
        try withPausedGateway(setup) { gateway in
            _ = try EventClient(gateway.port)
            let back = try EventClient(gateway.port, headers: [("Last-Event-ID", id)])
            #expect(try back.next().type == "gap")
        }
    }

    // MARK: Connections

    @Test func listeners_areForgotten_whenTheyLeave() throws {
        try withPausedGateway { gateway in
            var clients: [EventClient]? = try (0..<20).map { _ in try EventClient(gateway.port) }
            #expect(clients?.count == 20 && gateway.context.stream.listenerCount == 20)
            clients = nil
            #expect(eventually { gateway.context.stream.listenerCount == 0 && gateway.server.openConnections <= 1 })
        }
    }

    @Test func clientBeyondTheMaximum_isRefused_untilAnotherHangsUp() throws {
        try withPausedGateway { gateway in
            var clients = try (0..<EventStream.maxListeners).map { _ in try EventClient(gateway.port) }
            #expect(clients.allSatisfy { $0.head.status == 200 })
            let refusal = try gateway.client.get("/v1/stream")
            try #require(refusal.status == 503)
            refusal.problem(503, "overloaded")
            #expect(refusal.header("Retry-After") == "5")
            #expect(try gateway.client.ask("HEAD", "/v1/stream").status == 503)
            #expect(gateway.context.stream.listenerCount == EventStream.maxListeners)
            clients.removeLast()
            let hasPlace = try eventually {
                let client = try EventClient(gateway.port)
                if client.head.status == 200 { clients.append(client) }
                return clients.count == EventStream.maxListeners
            }
            #expect(hasPlace, "no place becomes free")
            let id = try gateway.accept()
            for client in clients { #expect(try client.next().ids == [id]) }
        }
    }

    /// They read nothing while more events occur than their sockets and the ring hold.
    @Test func listenersThatDoNotRead_areCutOff_andWritersGoOn() throws {
        var setup = Setup()
        setup.limits.maxBodyBytes = 1 << 20
        setup.delivery.maxInFlight = 4
        try withGateway(setup) { gateway in
            gateway.transport.answerAll { _ in .status(200) }
            let deaf = try (0..<EventStream.maxListeners).map { _ in
                let client = try HTTPClient(port: gateway.port, receiveBuffer: 4096)
                client.sendRequest("GET", "/v1/stream")
                #expect(try client.answer().status == 200)
                return client
            }
            #expect(eventually { gateway.context.stream.listenerCount == deaf.count })
            let body = "[" + (0..<1000).map { "{\"n\":\($0)}" }.joined(separator: ",") + "]"
            var statuses: Set<Int> = []
            let isDropped = try eventually(every: .zero) {
                for path in ["/v1/picky/event", "/v1/plain/thing"] {
                    statuses.insert(try gateway.client.post(path, body).status)
                }
                return gateway.context.stream.listenerCount == 0
            }
            #expect(isDropped && statuses == [202])
            #expect(throws: HTTPClient.Failure.self) { while try deaf[0].nextChunk() != nil {} }
        }
    }

    @Test func drain_sendsWhatHappened_endsStreams_andRefusesNewOnes() throws {
        try withPausedGateway { gateway in
            let client = try EventClient(gateway.port)
            let id = try gateway.accept()
            gateway.context.beginDraining()
            let rest = try client.rest()
            #expect(rest.map(\.ids) == [[id]], "what has happened is told")
            #expect(eventually { gateway.server.runningRequests == 0 })
            try gateway.client.get("/v1/stream").problem(503, "shutting-down")
        }
    }

    @Test func stream_isServedOverTLS() throws {
        let folder = ScratchFolder()
        let certificate = try TestCertificate("own", in: folder)
        var setup = Setup()
        (setup.tls.certificateFile, setup.tls.keyFile) = (certificate.certificate, certificate.key)
        try withPausedGateway(setup) { gateway in
            let received = SharedValue("")
            let port = gateway.port
            let request = "GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            let listening = try DedicatedThread(name: "listener") {
                received.set((try? openSSLClient(port, ["-quiet", "-ign_eof"], sending: request)) ?? "failed")
            }
            #expect(eventually { gateway.context.stream.listenerCount == 1 })
            let post =
                "POST /v1/picky/event HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"n\":1}"
            for _ in 0..<3 {
                let answer = try openSSLClient(port, ["-quiet", "-ign_eof"], sending: post)
                #expect(answer.contains(" 202 "))
            }
            gateway.context.beginDraining()
            listening.join()
            let events = received.value.split(separator: "\n").filter { $0.hasPrefix("event: message.queued") }
            #expect(!events.isEmpty, "\(received.value)")
            #expect(received.value.hasSuffix("0\r\n\r\n"), "the stream ends in an orderly way")
        }
    }
}

/// A client of the gateway that listens.
final class EventClient {
    let head: HTTPClient.Answer
    private let client: HTTPClient
    private(set) var parser = EventParser()
    private var waiting: [ReceivedEvent] = []

    /// Returns once the stream has begun, so that whatever happens from now on is told.
    init(_ port: UInt16, _ query: String = "", headers: [(String, String)] = []) throws {
        client = try HTTPClient(port: port)
        client.sendRequest("GET", "/v1/stream" + query, headers: headers)
        head = try client.answer()
        if head.status == 200 { try read() }
    }

    /// Returns false at the end of the stream.
    @discardableResult private func read() throws -> Bool {
        guard let chunk = try client.nextChunk() else { return false }
        parser.read(chunk)
        waiting += parser.takeEvents()
        return true
    }

    /// The next event. Fails if none arrives in time.
    func next() throws -> ReceivedEvent {
        // Comments alone, one in 15 seconds, would go on forever.
        let end = parser.comments + 20
        while waiting.isEmpty {
            guard parser.comments < end else { throw HTTPClient.Failure.deadline(got: parser.text) }
            guard try read() else { throw HTTPClient.Failure.closed(got: parser.text) }
        }
        return waiting.removeFirst()
    }

    /// Reads until an event of this type.
    func next(_ type: EventType) throws -> ReceivedEvent {
        while true {
            let event = try next()
            if event.type == type.rawValue { return event }
        }
    }

    /// Everything that arrives until the stream ends in an orderly way.
    func rest() throws -> [ReceivedEvent] {
        while try read() {}
        defer { waiting = [] }
        return waiting
    }
}
