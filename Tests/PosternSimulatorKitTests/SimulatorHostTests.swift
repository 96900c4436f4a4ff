import Logging
import PosternCore
import PosternTestKit
import PosternTransport
import Testing

@testable import PosternSimulators

/// A host, and the gateway's own transport in front of one of its simulators.
private final class Fixture: Sendable {
    let host: SimulatorHost
    let loop: CurlLoop
    let type: SimulatorType
    var url: String { host.urls[type.name]! }

    init(type: SimulatorType = .samsara, faults: String = "", keep: SimulatorHost.Keep = .texts) throws {
        self.type = type
        host = try SimulatorHost.start(
            [type], port: 0, faults: Faults(parsing: faults), seed: 1, keep: keep, logger: Logger(label: "test"))
        loop = try CurlLoop(.init(version: "0"))
    }

    deinit {
        loop.stop()
        host.stop()
    }

    func send(
        _ method: UpstreamRequest.Method, _ path: String, headers: [(name: String, value: String)] = [],
        _ body: String = "",
        timeout: Duration = .seconds(20)
    ) async -> TransferResult {
        await withCheckedContinuation { done in
            loop.submit(
                UpstreamRequest(method: method, url: url + path, headers: headers, body: Array(body.utf8)),
                options: TransferOptions(requestTimeout: timeout)
            ) { done.resume(returning: $0) }
        }
    }

    func post(_ body: String, timeout: Duration = .seconds(20)) async -> TransferResult {
        await send(
            .post, "/v1/events",
            headers: [("Content-Type", "application/json"), ("X-Samsara-publishedTimestamp", "1479988864057")], body,
            timeout: timeout)
    }

    func text(_ path: String, _ method: UpstreamRequest.Method = .get, _ body: String = "") async throws -> String {
        String(decoding: try await send(method, path, body).get().body, as: UTF8.self)
    }
}

private func event(_ source: String, _ number: Int) -> String {
    #"{"timestamp":1,"sourceId":"\#(source)","eventName":"e","seq":\#(number)}"#
}

extension TransferResult {
    fileprivate var status: Int? { try? get().status }
    fileprivate var reason: TransferFailure.Reason? {
        if case .failure(let failure) = self { failure.reason } else { nil }
    }
}

@Suite(.timeLimit(.minutes(10))) struct SimulatorHostTests {
    @Test func samsara_takesEvents_andShowsThem() async throws {
        let fixture = try Fixture()
        let answer = try await fixture.post("[\(event("a", 1)),\(event("b", 1))]").get()
        #expect(answer.status == 202)
        #expect(answer.body.isEmpty)
        #expect(answer.header("Content-Type") == nil)
        #expect(await fixture.post("[\(event("a", 2)),\(event("a", 1))]").status == 202)
        #expect(
            try await fixture.text("/received") == """
                {"upstream":"samsara","requests":2,"acceptedRequests":2,"events":4,"distinctEvents":3,"duplicates":1,\
                "answers":{"202":2},"violationCount":0,"violations":[],"keep":"texts"}
                """)
        #expect(
            try await fixture.text("/received?events=true&offset=2&limit=1").contains(#""texts":[\#(event("a", 2))]"#))
        #expect(try await fixture.text("/received?field=seq") == "a\t1\nb\t1\na\t2\na\t1\n")
    }

    @Test func received_startsOver_whenDeleted() async throws {
        let fixture = try Fixture()
        _ = await fixture.post("[\(event("a", 1))]")
        #expect(await fixture.send(.delete, "/received?keep=counts").status == 204)
        _ = await fixture.post("[\(event("a", 1))]")
        let text = try await fixture.text("/received?events=true")
        #expect(text.contains(#""events":1,"distinctEvents":null"#))
        #expect(text.contains(#""keep":"counts","texts":[]"#))
        #expect(await fixture.send(.delete, "/received?keep=all").status == 400)
        #expect(await fixture.send(.get, "/received?offset=-1").status == 400)
        #expect(await fixture.send(.put, "/received").status == 405)
    }

    @Test func violations_areShown() async throws {
        let fixture = try Fixture()
        #expect(await fixture.send(.post, "//v1/events").status == 404)
        #expect(
            try await fixture.text("/received").contains(
                #""violationCount":1,"violations":["POST //v1/events: there is no such endpoint"]"#))
    }

    @Test func faults_areSetShownAndCleared_atRunTime() async throws {
        let fixture = try Fixture(faults: "status=503:x1")
        #expect(try await fixture.text("/faults") == "status=503:x1\n")
        #expect(await fixture.post("[\(event("a", 1))]").status == 503)
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        #expect(try await fixture.text("/faults?seed=3", .post, "status=429/7") == "status=429/7\n")
        let answer = try await fixture.post("[\(event("a", 1))]").get()
        #expect(answer.status == 429)
        #expect(answer.header("Retry-After") == "7")
        #expect(try await fixture.text("/faults", .post) == "\n")
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        let refused = try await fixture.send(.post, "/faults", "boom").get()
        #expect(refused.status == 400)
        #expect(String(decoding: refused.body, as: UTF8.self).hasPrefix("fault \"boom\": unknown"))
        #expect(await fixture.send(.post, "/faults?seed=x").status == 400)
        #expect(await fixture.send(.delete, "/faults").status == 405)
    }

    /// What the client sees of each fault, and whether the event was taken.
    static let faults: [(fault: String, reason: TransferFailure.Reason, events: Int, label: String)] = [
        ("reset-before", .interrupted, 0, "reset-before"), ("reset-after", .interrupted, 1, "reset-after"),
        ("truncate", .interrupted, 1, "truncate"), ("garbage", .garbled, 1, "garbage"),
        ("hang", .timeout, 0, "hang"), ("hang-after", .timeout, 1, "hang-after"),
    ]

    @Test(arguments: faults) func fault_isSeenOnTheWire_onAKeptConnectionToo(
        fault: String, reason: TransferFailure.Reason, events: Int, label: String
    ) async throws {
        let fixture = try Fixture(faults: "pass:x1,\(fault):x1")
        #expect(await fixture.post("[\(event("a", 0))]").status == 202)
        let result = await fixture.post(
            "[\(event("a", 1))]", timeout: reason == .timeout ? .milliseconds(200) : .seconds(20))
        #expect(result.reason == reason)
        let text = try await fixture.text("/received")
        #expect(text.contains(#""events":\#(1 + events),"#))
        #expect(text.contains(#""answers":{"202":1,"\#(label)":1}"#))
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
    }

    @Test func delay_andDrip_onlyCostTime() async throws {
        let fixture = try Fixture(faults: "delay=50ms:x1,drip=1ms:x2")
        let clock = ContinuousClock()
        let start = clock.now
        _ = try await fixture.text("/faults", .post, "delay=50ms")
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        #expect(clock.now - start >= .milliseconds(50))
        _ = try await fixture.text("/faults", .post, "drip=1ms")
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        #expect(clock.now - start >= .milliseconds(100))
    }

    @Test func poison_refuses_untilItsEventIsGone() async throws {
        let fixture = try Fixture(faults: "poison=seq:2:array")
        let answer = try await fixture.post("[\(event("a", 1)),\(event("a", 2))]").get()
        #expect(answer.status == 400)
        #expect(String(decoding: answer.body, as: UTF8.self) == #"["OK","{:seq (not (poison))}"]"#)
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        #expect(try await fixture.text("/received?field=seq") == "a\t1\n")
    }

    @Test func stop_endsHangingRequests() async throws {
        let fixture = try Fixture(faults: "hang")
        async let pending = fixture.post("[\(event("a", 1))]")
        while try await !fixture.text("/received").contains(#""hang":1"#) {}
        fixture.host.stop()
        #expect(await pending.reason == .interrupted)
    }

    @Test func seer_takesReports_andShowsThemByKind() async throws {
        let fixture = try Fixture(type: .seer)
        #expect(try await fixture.text("/control", .post, #"{"tokenAnswer":"slow:50"}"#).hasPrefix("{"))
        let start = ContinuousClock.now
        let answer = try await fixture.send(
            .post, "/oauth/access_token", headers: SeerClient.tokenHeaders, "grant_type=client_credentials"
        ).get()
        #expect(ContinuousClock.now - start >= .milliseconds(50))
        let token = try #require(JSON(answer.body)["access_token"].string)
        let headers = [
            ("Authorization", "Bearer \(token)"), ("Accept", "application/json"), ("Content-Type", "application/json"),
        ]
        let batch = SeerVectors.batch([SeerVectors.a1, SeerVectors.a2])
        #expect(await fixture.send(.post, "/sactivity/batch", headers: headers, batch).status == 200)
        #expect(await fixture.send(.post, "/tincan", headers: headers, SeerVectors.t1).status == 200)
        #expect(try await fixture.text("/faults", .post, "poison=/object/objectType:photo:413").hasPrefix("poison="))
        #expect(await fixture.send(.post, "/sactivity/batch", headers: headers, batch).status == 413)
        #expect(
            try await fixture.text("/received?field=/object/id")
                == "/sactivity\tobjectId\n/sactivity\to-1\n/tincan\thttp://pearson.com/ccsoc/interactive/\n")
        #expect(
            try await fixture.text("/received").contains(
                #""events":3,"distinctEvents":3,"duplicates":0,"answers":{"200":3,"413":1},"violationCount":0"#))
        #expect(JSON(Array(try await fixture.text("/control").utf8))["validTokens"].int == 1)
    }

    @Test func answersThatWereLost_areNotHeldAgainstTheGateway() async throws {
        let fixture = try Fixture(type: .curio, faults: "reset-after@/hit:x9")
        func post(_ suffix: String, _ body: String) async -> TransferResult {
            await fixture.send(.post, suffix, headers: CurioClient.requestHeaders, body)
        }
        #expect(await post("/visit/create", CurioVectors.e1.body).status == 200)
        #expect(await fixture.send(.post, "/control", #"{"killSessions":"all"}"#).status == 200)
        for _ in 0..<9 { #expect(await post("/hit/create", CurioVectors.e2.body).reason == .interrupted) }
        #expect(await post("/hit/create", CurioVectors.e2.body).status == 401)
        #expect(
            try await fixture.text("/received").contains(
                #""answers":{"200":1,"401":1,"reset-after":9},"violationCount":0,"violations":[]"#))
    }

    @Test func simulators_haveFixedPorts_behindTheFirst() throws {
        for first in stride(from: 21_000 as UInt16, to: 23_000, by: 50) {
            guard
                let host = try? SimulatorHost.start(
                    [.samsara, .seer, .curio], port: first, logger: Logger(label: "test"))
            else { continue }
            host.stop()
            #expect(host.urls["samsara"] == "http://127.0.0.1:\(first)")
            #expect(host.urls["seer"] == "http://127.0.0.1:\(first + 1)")
            #expect(host.urls["curio"] == "http://127.0.0.1:\(first + 2)")
            return
        }
        Issue.record("no free ports")
    }

    @Test func port_thatLeavesNoRoom_isAnError() {
        #expect(throws: SimulatorHost.StartFailure.self) {
            try SimulatorHost.start([.samsara, .seer], port: .max, logger: Logger(label: "test"))
        }
    }

    @Test func port_thatIsTaken_isAnErrorThatNamesTheSimulator() throws {
        let fixture = try Fixture()
        let port = try #require(UInt16(fixture.url.split(separator: ":")[2]))
        #expect {
            try SimulatorHost.start([.samsara], port: port, logger: Logger(label: "test"))
        } throws: { error in
            "\(error)".hasPrefix("the simulator of samsara did not start: ")
        }
    }
}
