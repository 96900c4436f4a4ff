import CurioSimulator
import Logging
import PosternConformance
import PosternCore
import PosternTestKit
import PosternTransport
import PosternUpstream
import SamsaraSimulator
import SeerSimulator
import Testing

@testable import PosternSimulatorKit

extension HostedSimulator {
    fileprivate convenience init(faults: String = "", keep: SimulatorHost.Keep = .texts) throws {
        try self.init(.samsara, faults: faults, keep: keep)
    }

    fileprivate func post(_ body: String) async -> TransferResult {
        await send(
            .post, "/v1/events",
            headers: [("Content-Type", "application/json"), ("X-Samsara-publishedTimestamp", "1479988864057")], body)
    }
}

private func event(_ source: String, _ number: Int) -> String {
    #"{"timestamp":1,"sourceId":"\#(source)","eventName":"e","seq":\#(number)}"#
}

@Suite(.timeLimit(.minutes(10))) struct SimulatorHostTests {
    @Test func samsara_takesEvents_andShowsThem() async throws {
        let fixture = try HostedSimulator()
        let answer = try await fixture.post("[\(event("a", 1)),\(event("b", 1))]").get()
        #expect(answer.status == 202)
        #expect(answer.body.isEmpty)
        #expect(answer.header("Content-Type") == nil)
        #expect(await fixture.post("[\(event("a", 2)),\(event("a", 1))]").status == 202)
        #expect(
            try fixture.ask("GET", "/received").text == """
                {"upstream":"samsara","requests":2,"acceptedRequests":2,"events":4,"distinctEvents":3,"duplicates":1,\
                "answers":{"202":2},"violationCount":0,"violations":[],"keep":"texts"}
                """)
        #expect(
            try fixture.ask("GET", "/received?events=true&offset=2&limit=1").text.contains(
                #""texts":[\#(event("a", 2))]"#))
        #expect(try fixture.ask("GET", "/received?field=seq").text == "a\t1\nb\t1\na\t2\na\t1\n")
    }

    @Test func received_startsOver_whenDeleted() async throws {
        let fixture = try HostedSimulator()
        _ = await fixture.post("[\(event("a", 1))]")
        #expect(await fixture.send(.delete, "/received?keep=counts").status == 204)
        _ = await fixture.post("[\(event("a", 1))]")
        let text = try fixture.ask("GET", "/received?events=true").text
        #expect(text.contains(#""events":1,"distinctEvents":null"#))
        #expect(text.contains(#""keep":"counts","texts":[]"#))
        #expect(await fixture.send(.delete, "/received?keep=all").status == 400)
        #expect(await fixture.send(.get, "/received?offset=-1").status == 400)
        #expect(await fixture.send(.put, "/received").status == 405)
    }

    @Test func violations_areShown() async throws {
        let fixture = try HostedSimulator()
        #expect(await fixture.send(.post, "//v1/events").status == 404)
        #expect(
            try fixture.ask("GET", "/received").text.contains(
                #""violationCount":1,"violations":["POST //v1/events: there is no such endpoint"]"#))
    }

    @Test func faults_areSetShownAndCleared_atRunTime() async throws {
        let fixture = try HostedSimulator(faults: "status=503:x1")
        #expect(try fixture.ask("GET", "/faults").text == "status=503:x1\n")
        #expect(await fixture.post("[\(event("a", 1))]").status == 503)
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        #expect(try fixture.ask("POST", "/faults?seed=3", "status=429/7").text == "status=429/7\n")
        let answer = try await fixture.post("[\(event("a", 1))]").get()
        #expect(answer.status == 429)
        #expect(answer.header("Retry-After") == "7")
        #expect(try fixture.ask("POST", "/faults").text == "\n")
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
        ("hang", .cancelled, 0, "hang"), ("hang-after", .cancelled, 1, "hang-after"),
        ("cut=503", .interrupted, 0, "503"), ("cut=429/7", .interrupted, 0, "429"),
    ]

    @Test(arguments: faults) func fault_isSeenOnTheWire_onAKeptConnectionToo(
        fault: String, reason: TransferFailure.Reason, events: Int, label: String
    ) async throws {
        let fixture = try HostedSimulator(faults: "pass:x1,\(fault):x1")
        #expect(await fixture.post("[\(event("a", 0))]").status == 202)
        let request = Task { await fixture.post("[\(event("a", 1))]") }
        var text = ""
        while !text.contains(#""answers":{"202":1,"\#(label)":1}"#) {
            await Task.yield()
            text = try fixture.ask("GET", "/received").text
        }
        #expect(text.contains(#""events":\#(1 + events),"#))
        // The client waits for as long as it likes if nothing more comes.
        if reason == .cancelled { request.cancel() }
        #expect(await request.value.reason == reason)
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
    }

    /// The header is whole, so that a client for which the status is enough can go by it.
    @Test func cutResponse_hasAWholeHeader() async throws {
        let fixture = try HostedSimulator(faults: "cut=429/7")
        let client = try HTTPClient(port: fixture.port)
        client.sendRequest("POST", "/v1/events", [])
        let text = String(decoding: try client.readToEnd(), as: UTF8.self)
        let end = try #require(text.firstRange(of: "\r\n\r\n"))
        let (head, body) = (text[..<end.lowerBound], text[end.upperBound...])
        #expect(head.hasPrefix("HTTP/1.1 429 "))
        #expect(head.contains("\r\nRetry-After: 7"))
        let length = try #require(head.firstMatch(of: /Content-Length: ([0-9]+)/)).1
        #expect(try #require(Int(length)) > body.utf8.count)
    }

    @Test func mutedConnection_getsNoResponse_andALaterOneDoes() async throws {
        let fixture = try HostedSimulator()
        let old = try HTTPClient(port: fixture.port)
        #expect(try old.ask("GET", "/received").status == 200)
        try fixture.play("mute")
        old.sendRequest("POST", "/v1/events", [])
        while try fixture.received["answers"]["hang"].int != 1 {}
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
    }

    @Test func delay_andDrip_onlyCostTime() async throws {
        let fixture = try HostedSimulator(faults: "delay=50ms:x1,drip=1ms:x2")
        let clock = ContinuousClock()
        let start = clock.now
        _ = try fixture.ask("POST", "/faults", "delay=50ms")
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        #expect(clock.now - start >= .milliseconds(50))
        _ = try fixture.ask("POST", "/faults", "drip=1ms")
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        #expect(clock.now - start >= .milliseconds(100))
    }

    @Test func poison_refuses_untilItsEventIsGone() async throws {
        let fixture = try HostedSimulator(faults: "poison=seq:2:array")
        let answer = try await fixture.post("[\(event("a", 1)),\(event("a", 2))]").get()
        #expect(answer.status == 400)
        #expect(String(decoding: answer.body, as: UTF8.self) == #"["OK","{:seq (not (poison))}"]"#)
        #expect(await fixture.post("[\(event("a", 1))]").status == 202)
        #expect(try fixture.ask("GET", "/received?field=seq").text == "a\t1\n")
        let log = try fixture.ask("GET", "/received?field=seq&log=true").text
        #expect(try #/a\t2\trejected\t400\t[0-9]+\na\t1\taccepted\t202\t[0-9]+\n/#.wholeMatch(in: log) != nil)
    }

    @Test func stop_endsHangingRequests() async throws {
        let fixture = try HostedSimulator(faults: "hang")
        async let pending = fixture.post("[\(event("a", 1))]")
        while try !fixture.ask("GET", "/received").text.contains(#""hang":1"#) {}
        fixture.host.stop()
        #expect(await pending.reason == .interrupted)
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
        let fixture = try HostedSimulator()
        let port = try #require(UInt16(fixture.url.split(separator: ":")[2]))
        #expect {
            try SimulatorHost.start([.samsara], port: port, logger: Logger(label: "test"))
        } throws: { error in
            "\(error)".hasPrefix("the simulator of samsara did not start: ")
        }
    }
}
