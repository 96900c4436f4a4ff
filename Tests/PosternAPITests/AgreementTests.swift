import PosternCommands
import PosternCore
import PosternDelivery
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// The API and the command line agree about a store: why a message waits, until when, and which lanes wait.
@Suite struct AgreementTests {
    /// An upstream with a lane for each value of `lane`. A lane `later` waits for a schedule that no time ends.
    private struct LanedUpstream: PlainAtHeart, SettingsHoldingUpstream {
        let plain = PlainUpstream("laned", kinds: ["event"], laneRule: .perLane)
        let address = "http://laned.test/"
        var missingSettings: [String] = []
        var secrets: [String] { [] }

        func validate(
            _ payload: JSONValue, of kind: Kind, in context: ValidationContext
        ) throws(InvalidPayload) -> ValidPayload {
            ValidPayload(lane: .named(payload["lane"]?.string ?? "a", group: nil))
        }

        func plan(for messages: [Message], in context: PlanContext) -> Plan {
            if messages[0].lane == .named("later") { return .wait(.schedule, until: .never) }
            return plain.plan(for: messages, in: context)
        }

        func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
            response.status == 402 ? Decision(.park) : plain.judge(response, to: batch, in: context)
        }
    }

    private func inspection(of gateway: TestGateway) throws -> OutboxInspection {
        try OutboxInspection(StoreLocation(path: gateway.outbox.path), now: SystemTime().now)
    }

    /// Waits until both show the message with this reason, and in the same words.
    private func expectAgreement(
        _ reason: String?, of id: String, lane: String?, _ gateway: TestGateway
    ) throws {
        var (shown, stored) = (JSON([]), "")
        var text = ""
        let isSame = try eventually {
            text = try gateway.client.get("/v1/messages/\(id)?include=attempts").text
            shown = try gateway.message(id)
            stored = try inspection(of: gateway).show(id, payload: false, asJSON: true)
            return shown["waitingFor"].string == reason && text == stored + "\n"
        }
        #expect(isSame, "expected \(reason ?? "no reason"); the API: \(text) the command line: \(stored)")
        try expectSameLanes(gateway, lane)
    }

    /// The same for the first message of its lane.
    private func expectAgreement(_ reason: String?, of id: String, _ gateway: TestGateway) throws {
        try expectAgreement(reason, of: id, lane: reason, gateway)
    }

    private func expectSameLanes(_ gateway: TestGateway, _ reason: String?) throws {
        for name in gateway.workers.map(\.name) {
            let answer = try gateway.client.get("/v1/upstreams/\(name)/lanes")
            let stored = try inspection(of: gateway).lanes(of: name, in: nil, after: nil, limit: 100, asJSON: true)
            #expect(answer.status == 200)
            #expect(answer.text == stored.text + "\n")
            guard name.description == "laned" else { continue }
            #expect(answer.json["lanes"].array.last?["reason"].string == reason, "\(answer.text)")
        }
    }

    private func withUpstream(
        _ upstream: any Upstream, _ results: [TransferResult] = [], paused: Bool = false,
        _ body: (TestGateway) throws -> Void
    ) throws {
        var setup = Setup(upstreams: [upstream], results: results)
        if paused { setup.paused = [upstream.name.description] }
        try withGateway(setup, body)
    }

    @Test(arguments: [("retry", 503), ("credentials", 403), ("token", 402), ("circuit", 429)])
    func waitingMessage_hasOneReason_afterAnAnswer(reason: String, status: Int) throws {
        let headers = status == 429 ? [("Retry-After", "600")] : []
        try withUpstream(LanedUpstream(), [.status(status, headers: headers)]) { gateway in
            let id = try gateway.accept("/v1/laned/event", #"{"lane":"a"}"#)
            try expectAgreement(reason, of: id, gateway)
            let second = try gateway.accept("/v1/laned/event", #"{"lane":"a"}"#)
            // The whole lane is parked, or waits for its endpoint.
            let isOfLane = reason == "token" || reason == "credentials"
            try expectAgreement(isOfLane ? reason : "order", of: second, lane: reason, gateway)
        }
    }

    @Test(arguments: [("retry", 503), ("credentials", 403), ("circuit", 429)])
    func waitingMessageOfAMixedQueue_hasOneReason(reason: String, status: Int) throws {
        let headers = status == 429 ? [("Retry-After", "600")] : []
        try withUpstream(PickyUpstream("picky"), [.status(status, headers: headers)]) { gateway in
            let id = try gateway.accept("/v1/picky/event", #"{"n":1,"lane":7}"#)
            try expectAgreement(reason, of: id, gateway)
            let second = try gateway.accept("/v1/picky/event", #"{"n":2,"lane":7}"#)
            // A hold returns the first to the queue: both wait for the same.
            let isHeld = reason == "credentials"
            try expectAgreement(isHeld ? reason : "order", of: second, gateway)
            let lanes = try gateway.client.get("/v1/upstreams/picky/lanes").json["lanes"].array
            #expect(lanes.map { $0["reason"].string } == [reason])
            #expect(lanes.allSatisfy { $0["queued"].int == 2 && !$0["key"].isThere })
        }
    }

    @Test func messageBehindOneInFlight_waitsForItsOrder() throws {
        for (upstream, path, body) in [
            (LanedUpstream() as any Upstream, "/v1/laned/event", #"{"lane":"a"}"#),
            (PickyUpstream("picky"), "/v1/picky/event", #"{"n":1,"lane":7}"#),
        ] {
            try withUpstream(upstream) { gateway in
                let first = try gateway.accept(path, body)
                try gateway.waitForOpenRequest()
                let second = try gateway.accept(path, body)
                try expectAgreement("order", of: second, lane: nil, gateway)
                try expectAgreement(nil, of: first, gateway)
            }
        }
    }

    @Test(arguments: [("token", 503), ("credentials", 401)])
    func failedTokenFetch_isShownByBoth(reason: String, status: Int) throws {
        try withUpstream(PickyUpstream("picky", tokenSource: TestTokens()), [.status(status)]) { gateway in
            let id = try gateway.accept()
            try expectAgreement(reason, of: id, gateway)
            try expectSameHealth(gateway, "picky", reason == "token" ? "down" : "unauthorized")
        }
    }

    @Test func firstTokenFetch_isShownByBoth() throws {
        try withUpstream(PickyUpstream("picky", tokenSource: TestTokens())) { gateway in
            let id = try gateway.accept()
            try gateway.waitForOpenRequest()
            try expectAgreement("token", of: id, gateway)
            try expectSameHealth(gateway, "picky", "up")
        }
    }

    @Test func missingSettings_areShownByBoth() throws {
        try withUpstream(LanedUpstream(missingSettings: ["apiKey"])) { gateway in
            let id = try gateway.accept("/v1/laned/event", "{}")
            try expectAgreement("credentials", of: id, gateway)
            try expectSameHealth(gateway, "laned", "unauthorized")
        }
    }

    @Test func pause_isShownByBoth() throws {
        try withUpstream(LanedUpstream(), paused: true) { gateway in
            let id = try gateway.accept("/v1/laned/event", "{}")
            try expectAgreement("pause", of: id, gateway)
            try expectSameHealth(gateway, "laned", "paused")
        }
    }

    @Test(arguments: ["laned", "picky"]) func notBefore_isShownByBoth(name: String) throws {
        let upstream: any Upstream = name == "laned" ? LanedUpstream() : PickyUpstream("picky")
        try withUpstream(upstream) { gateway in
            let later = SystemTime().now + .seconds(3600)
            let answer = try gateway.client.post(
                "/v1/messages",
                #"{"upstream":"\#(name)","kind":"event","notBefore":"\#(later)","payload":{"n":1}}"#)
            let id = try #require(answer.json["id"].string, "\(answer.text)")
            try expectAgreement("schedule", of: id, gateway)
            #expect(try gateway.message(id)["nextAttemptAt"].string == "\(later)")
        }
    }

    @Test func planThatWaits_isShownByBoth() throws {
        try withUpstream(LanedUpstream()) { gateway in
            let id = try gateway.accept("/v1/laned/event", #"{"lane":"later"}"#)
            try expectAgreement("schedule", of: id, gateway)
            #expect(try !gateway.message(id)["nextAttemptAt"].isThere)
            let lane = try gateway.client.get("/v1/upstreams/laned/lanes").json["lanes"][0]
            #expect(lane["state"].string == "held")
            #expect(lane["key"].string == "later")
            #expect(!lane["until"].isThere)
        }
    }

    private func expectSameHealth(_ gateway: TestGateway, _ name: String, _ health: String) throws {
        // A message waits for a token before and after the fetch has failed.
        #expect(try eventually { try gateway.upstream(name)["health"].string == health })
        #expect(try gateway.sample(#"postern_upstream_health{upstream="\#(name)",health="\#(health)"}"#) == 1)
        var stored = ""
        let isStored = try eventually {
            stored = try inspection(of: gateway).stats(asJSON: true)
            return stored.contains(#""health":"\#(health)""#)
        }
        #expect(isStored, "\(stored)")
    }

    // MARK: Lanes

    @Test func lanes_arePaged_andFilteredByTheirState() throws {
        try withUpstream(LanedUpstream(), [.status(402), .status(503)]) { gateway in
            let parked = try gateway.accept("/v1/laned/event", #"{"lane":"a"}"#)
            try gateway.waitFor("token", of: parked)
            let failed = try gateway.accept("/v1/laned/event", #"{"lane":"b"}"#)
            try gateway.waitFor("retry", of: failed)
            _ = try gateway.accept("/v1/laned/event", #"{"lane":"b"}"#)
            func keys(_ query: String) throws -> ([String?], next: String?) {
                let answer = try gateway.client.get("/v1/upstreams/laned/lanes?" + query)
                #expect(answer.status == 200, "\(answer.text)")
                return (answer.json["lanes"].array.map { $0["key"].string }, answer.json["next"].string)
            }
            let first = try keys("limit=1")
            #expect(first.0 == ["a"])
            let second = try keys("limit=1&cursor=\(try #require(first.next))")
            #expect(second.0 == ["b"])
            #expect(second.next == nil)
            #expect(try keys("state=parked").0 == ["a"])
            #expect(try keys("state=backing-off").0 == ["b"])
            #expect(try keys("state=held").0 == [])
            let lane = try gateway.client.get("/v1/upstreams/laned/lanes?state=backing-off").json["lanes"][0]
            let message = try gateway.message(failed)
            #expect(lane["queued"].int == 2)
            #expect(lane["oldestAt"].string == message["createdAt"].string)
            #expect(lane["since"].string == message["lastError"]["at"].string)
            #expect(lane["until"].string == message["nextAttemptAt"].string)
        }
    }

    /// A lane that is being sent does not wait, nor does one that is about to be.
    @Test func laneInFlight_isNotListed() throws {
        try withUpstream(LanedUpstream()) { gateway in
            _ = try gateway.accept("/v1/laned/event", "{}")
            try gateway.waitForOpenRequest()
            let answer = try gateway.client.get("/v1/upstreams/laned/lanes")
            #expect(answer.text == #"{"lanes":[],"next":null}"# + "\n")
        }
    }

    @Test(arguments: ["state=none", "limit=0", "limit=1001", "cursor=x", "cursor=-1"])
    func query_isRefused_ifItMakesNoSense(query: String) throws {
        try withUpstream(LanedUpstream(), paused: true) { gateway in
            try gateway.client.get("/v1/upstreams/laned/lanes?" + query).problem(400, "bad-request")
        }
    }
}
