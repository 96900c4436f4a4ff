import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// What is specific to queued calls of StreamOne; the rest is in `Conformance`.
@Suite struct StreamOneTests {
    private func validate(_ text: String, to upstream: StreamOneUpstream) throws -> ValidPayload {
        try JSONParser().parse(Array(text.utf8)) { payload throws(InvalidPayload) in
            try upstream.validate(payload, of: "call", in: ValidationContext(acceptedAt: UpstreamFixture.now))
        }.get()
    }

    private func message(_ text: String) -> Message {
        Message(
            id: MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1)), kind: "call", lane: .named("none"),
            acceptedAt: UpstreamFixture.now, payload: Array(text.utf8))
    }

    @Test(arguments: [
        ("", "none", "account/D1"), (#","account":"A1""#, "account/A1", "account/A1"),
        (#","accounts":["A2","A1"]"#, "account/A2", "account/A2"), (#","accounts":[]"#, "none", "none"),
        (#","customer":"C1""#, "customer/C1", "customer/C1"), (#","account":"""#, "none", "account/D1"),
        (#","account":null,"customer":"""#, "none", "account/D1"),
    ])
    func lane_isTheAccountOrCustomer(scope: String, lane: String, laneWithDefault: String) throws {
        let text = #"{"command":"item","action":"edit"\#(scope)}"#
        #expect(try validate(text, to: StreamOneSamples.upstream()).lane == .named(lane))
        let upstream = try StreamOneSamples.upstream(["defaultAccountId": .text("D1")])
        #expect(try validate(text, to: upstream).lane == .named(laneWithDefault))
    }

    @Test(arguments: [
        ("item", "edit", true), ("item", "create", true), ("user", "setpassword", true), ("item", "view", false),
        ("api", "info", false), ("api", "mytokens", false), ("user", "getroles", false), ("item", "listall", false),
        ("item", "searchtitle", false), ("item", "count", false), ("stats", "statsperday", false),
        ("session", "create", false), ("session", "initialize", false), ("session", "delete", false),
        ("item", "overview", true), ("report", "getandreset", false),
    ])
    func onlyWrites_areQueued(command: String, action: String, isQueued: Bool) throws {
        let text = #"{"command":"\#(command)","action":"\#(action)"}"#
        let upstream = try StreamOneSamples.upstream()
        if isQueued {
            _ = try validate(text, to: upstream)
        } else {
            #expect(throws: InvalidPayload.self) { try validate(text, to: upstream) }
        }
    }

    @Test func settings_addToEitherList() throws {
        let upstream = try StreamOneSamples.upstream([
            "readActions": .list(["item/overview", "item/both"]),
            "writeActions": .list(["report/getandreset", "item/both"]),
        ])
        #expect(throws: InvalidPayload.self) { try validate(#"{"command":"item","action":"overview"}"#, to: upstream) }
        _ = try validate(#"{"command":"report","action":"getandreset"}"#, to: upstream)
        _ = try validate(#"{"command":"item","action":"both"}"#, to: upstream)
        for wrong in ["item", "item/", "/view", "Item/view", "a/b/c", "session/create"] {
            #expect(throws: Setting.Problems.self) {
                try StreamOneSamples.upstream(["readActions": .list([wrong])])
            }
        }
        #expect(throws: Setting.Problems.self) { try StreamOneSamples.upstream(["defaultAccountId": .text("a,b")]) }
    }

    @Test func queuedCall_isLimited() throws {
        func call(_ size: Int) -> String {
            let start = #"{"command":"item","action":"edit","arguments":{"a":""#
            return start + String(repeating: "x", count: size - start.utf8.count - 3) + #""}}"#
        }
        let upstream = try StreamOneSamples.upstream()
        _ = try validate(call(2 << 20), to: upstream)
        #expect(throws: InvalidPayload([PayloadError("", "must have at most 2097152 bytes")])) {
            try validate(call(2 << 20 + 1), to: upstream)
        }
    }

    /// Signed when it is sent: the same message later has another timestamp.
    @Test func repeatedCall_isSignedAgain() throws {
        let upstream = try StreamOneSamples.upstream()
        let message = message(#"{"command":"item","action":"edit"}"#)
        var urls: Set<String> = []
        for second in 0..<3 {
            let context = PlanContext(now: UpstreamFixture.now + .seconds(second), token: nil, state: DictionaryState())
            guard case .send(let request, 1) = upstream.plan(for: [message, message], in: context) else {
                Issue.record("not sent")
                return
            }
            urls.insert(request.url)
            let sent = SentCall(request)
            #expect(sent.parameters["timestamp"] == String(1_479_988_864 + second))
        }
        #expect(urls.count == 3)
    }

    /// A reload between acceptance and sending changes nothing about whom a call concerns.
    @Test func defaultAccount_isThatOfTheAcceptance() throws {
        let text = #"{"command":"item","action":"edit"}"#
        let lane = try validate(text, to: StreamOneSamples.upstream(["defaultAccountId": .text("D1")])).lane
        let message = Message(
            id: MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1)), kind: "call", lane: lane,
            acceptedAt: UpstreamFixture.now, payload: Array(text.utf8))
        let context = PlanContext(now: UpstreamFixture.now, token: nil, state: DictionaryState())
        for settings in [["defaultAccountId": SettingValue.text("D2")], [:]] {
            guard case .send(let request, _) = try StreamOneSamples.upstream(settings).plan(for: [message], in: context)
            else {
                Issue.record("not sent")
                return
            }
            #expect(SentCall(request).parameters["account"] == "D1")
        }
    }

    @Test func request_namesItsSignature_soThatItIsMasked() throws {
        let context = PlanContext(now: UpstreamFixture.now, token: nil, state: DictionaryState())
        let message = message(#"{"command":"item","action":"edit"}"#)
        guard case .send(let request, _) = try StreamOneSamples.upstream().plan(for: [message], in: context) else {
            Issue.record("not sent")
            return
        }
        #expect(request.proofs == [SentCall(request).parameters["signature"]])
    }

    @Test func blockedActor_isNotUsed_untilThePauseIsOver() throws {
        let upstream = try StreamOneSamples.upstream()
        let pause = Pause(reason: .rateLimited, step: 0, until: UpstreamFixture.now + .seconds(60))
        var state = DictionaryState()
        state.apply([pause.change])
        let message = message(#"{"command":"item","action":"edit"}"#)
        let during = PlanContext(now: UpstreamFixture.now, token: nil, state: state)
        #expect(upstream.plan(for: [message], in: during) == .wait(.circuit, until: pause.until))
        guard
            case .send = upstream.plan(for: [message], in: PlanContext(now: pause.until, token: nil, state: state))
        else {
            Issue.record("the pause does not end")
            return
        }
    }

    @Test func blockedActor_isUsedAgain_afterTheClockWasSetBack() throws {
        let pause = Pause(reason: .rateLimited, step: 0, until: UpstreamFixture.now + .seconds(7200))
        var state = DictionaryState()
        state.apply([pause.change])
        let plan = try StreamOneSamples.upstream().plan(
            for: [message(#"{"command":"item","action":"edit"}"#)],
            in: PlanContext(now: UpstreamFixture.now, token: nil, state: state))
        guard case .send = plan else {
            Issue.record("it waits for \(plan)")
            return
        }
    }

    @Test func emptyCredentials_areMissing_andNothingIsSent() throws {
        let upstream = try StreamOneSamples.upstream(["id": .text(""), "psk": .text("")])
        #expect(upstream.missingSettings == ["id", "psk"])
        let harness = StreamOneHarness()
        let reply = try upstream.ask(.post, "proxy/item/view", harness)
        #expect(reply.problem?.status == 502)
        #expect(harness.transport.requests.isEmpty)
    }

    @Test func typedSettings_areThoseOfTheDesign() {
        let known = Set(UpstreamType.streamone.settings.map(\.name))
        #expect(
            known.isSuperset(of: [
                "apiUrl", "authenticationType", "id", "psk", "defaultAccountId", "requestCacheSeconds", "readActions",
                "writeActions",
            ]))
    }
}
