import PosternCommands
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// Lanes of an upstream whose batches mix them: they are known by a digest of a part of the payload.
@Suite struct MixedLaneTests {
    /// Each kind has an endpoint of its own.
    private struct OrderedUpstream: PlainAtHeart {
        let plain = PlainUpstream("ordered", kinds: ["event", "note"])
        let traits = Traits { traits in
            traits.laneRule = .acrossLanes
            traits.sendsKindsApart = true
            traits.laneName = { payload, _ in payload["customer"]?.string }
        }

        func endpoint(of kind: Kind) -> String? { "/\(kind)" }

        func plan(for messages: [Message], in context: PlanContext) -> Plan {
            let kind = messages[0].kind
            return .send(
                UpstreamRequest(
                    url: "http://ordered.test/\(kind)", headers: [],
                    body: messages.spliced(prefix: "[", suffix: "]"), endpoint: "/\(kind)"),
                count: messages.count)
        }

        func validate(
            _ payload: JSONValue, of kind: Kind, in context: ValidationContext
        ) throws(InvalidPayload) -> ValidPayload {
            ValidPayload(lane: traits.laneName?(payload, kind).map { .digest(of: $0.utf8) } ?? .none)
        }

    }

    private static let events =
        #"[{"customer":"ann","n":1},{"customer":"bob","n":2},{"customer":"ann","n":3},{"n":4},{"customer":"ann","n":5}]"#

    /// With a paused upstream, and with one that has rejected the credentials.
    @Test(arguments: ["pause", "credentials"])
    func lanes_areNamed_counted_andAllListed(reason: String) throws {
        var setup = Setup(upstreams: [OrderedUpstream()], results: [.status(403)])
        if reason == "pause" { setup.paused = ["ordered"] }
        try withGateway(setup) { gateway in
            #expect(try gateway.client.post("/v1/ordered/event", Self.events).status == 202)
            var lanes: [JSON] = []
            let isListed = try eventually {
                lanes = try gateway.client.get("/v1/upstreams/ordered/lanes").json["lanes"].array
                return lanes.count == 2 && lanes.allSatisfy { $0["reason"].string == reason }
            }
            #expect(isListed, "\(lanes)")
            #expect(lanes.map { $0["key"].string } == ["ann", "bob"])
            #expect(lanes.map { $0["queued"].int } == [3, 1])
            #expect(lanes.allSatisfy { $0["isCountComplete"].bool == true })
            let second = try gateway.client.get("/v1/upstreams/ordered/lanes?limit=1").json
            let next = try #require(second["next"].string)
            let rest = try gateway.client.get("/v1/upstreams/ordered/lanes?limit=1&cursor=\(next)").json
            #expect(rest["lanes"].array.map { $0["key"].string } == ["bob"])
        }
    }

    @Test func messages_showTheirLane_andAreFoundAndCancelledByIt() throws {
        var setup = Setup(upstreams: [OrderedUpstream()])
        setup.paused = ["ordered"]
        try withGateway(setup) { gateway in
            #expect(try gateway.client.post("/v1/ordered/event", Self.events).status == 202)
            func list(_ query: String) throws -> [JSON] {
                try gateway.client.get("/v1/messages\(query)").json["messages"].array
            }
            let all = try list("")
            #expect(all.map { $0["lane"].string } == ["ann", "bob", "ann", nil, "ann"])
            #expect(try list("?lane=ann").map { $0["id"].string } == [0, 2, 4].map { all[$0]["id"].string })
            let digest = try gateway.client.get("/v1/upstreams/ordered/lanes").json["lanes"][1]["lane"].string ?? ""
            #expect(digest.count == 16)
            #expect(try list("?lane=\(digest)").map { $0["id"].string } == [all[1]["id"].string])
            #expect(try list("?lane=nobody").isEmpty)
            #expect(try list("?lane=ann&state=failed").isEmpty)
            let body = #"{"upstream":"ordered","lane":"ann"}"#
            #expect(try gateway.client.post("/v1/messages/cancel", body).json["cancelled"].int == 3)
            #expect(try list("?state=queued").map { $0["lane"].string } == ["bob", nil])
            #expect(try list("?state=cancelled").map { $0["lane"].string } == ["ann", "ann", "ann"])
            #expect(try list("?lane=ann&state=cancelled").count == 3)
        }
    }

    /// What failed of one customer is found, and sent again, by the lane.
    @Test func failedMessages_showTheirLane_andAreRetriedByIt() throws {
        let setup = Setup(
            upstreams: [OrderedUpstream()], results: [.status(410), .status(410), .status(200), .status(200)])
        try withGateway(setup) { gateway in
            func list(_ query: String) throws -> [JSON] {
                try gateway.client.get("/v1/messages\(query)").json["messages"].array
            }
            for customer in ["ann", "bob"] {
                let id = try gateway.accept("/v1/ordered/event", #"{"customer":"\#(customer)"}"#)
                try gateway.wait(for: "state", "failed", of: id)
            }
            #expect(try list("?state=failed").map { $0["lane"].string } == ["ann", "bob"])
            let bobs = try list("?lane=bob")
            #expect(bobs.map { $0["state"].string } == ["failed"])
            let body = #"{"upstream":"ordered","lane":"bob"}"#
            #expect(try gateway.client.post("/v1/messages/retry", body).json["retried"].int == 1)
            try gateway.wait(for: "state", "delivered", of: #require(bobs[0]["id"].string))
            // Receipts have neither a payload nor parts of one.
            #expect(try list("?lane=bob").isEmpty)
            #expect(try list("?state=delivered").allSatisfy { !$0["lane"].isThere })
            #expect(try list("?lane=ann").map { $0["state"].string } == ["failed"])
        }
    }

    /// The rows of a mixed queue do not say that an endpoint waits.
    @Test func lanes_waitForTheirEndpointAlone_inTheAPIAndOnTheCommandLine() throws {
        var setup = Setup(upstreams: [OrderedUpstream()], results: [.status(200), .status(403)])
        setup.time = ManualTime()
        try withGateway(setup) { gateway in
            let delivered = try gateway.accept("/v1/ordered/event", #"{"customer":"ann"}"#)
            try gateway.wait(for: "state", "delivered", of: delivered)
            let refused = try gateway.accept("/v1/ordered/note", #"{"customer":"bob","n":1}"#)
            try gateway.waitFor("credentials", of: refused)
            // Not sent yet, and without an order: it waits for the same endpoint.
            let other = try gateway.accept("/v1/ordered/note", #"{"n":2}"#)
            try gateway.waitFor("credentials", of: other)
            #expect(try gateway.upstream("ordered")["circuit"]["state"].string == "closed")
            let lanes = try gateway.client.get("/v1/upstreams/ordered/lanes").json["lanes"].array
            #expect(lanes.map { $0["key"].string } == ["bob"])
            #expect(lanes.map { $0["state"].string } == ["held"])
            #expect(lanes.map { $0["reason"].string } == ["credentials"])
            #expect(lanes.allSatisfy { $0["until"].isThere })
            let held = try gateway.client.get("/v1/upstreams/ordered/lanes?state=held").json["lanes"].array
            #expect(held.count == 1)
            #expect(try gateway.client.get("/v1/upstreams/ordered/lanes?state=ready").json["lanes"].array.isEmpty)
            let waiting = try gateway.client.get("/v1/messages?waitingFor=credentials").json["messages"].array
            #expect(waiting.map { $0["id"].string } == [refused, other])
            try expectSameLanes(gateway)
        }
    }

    /// On the command line, names are known from the configuration. Without it there are digests.
    private func expectSameLanes(_ gateway: TestGateway) throws {
        let location = StoreLocation(path: gateway.outbox.path, upstreams: [OrderedUpstream()])
        let store = try OutboxInspection(location, now: gateway.context.time.now)
        func json(_ text: String) -> JSON { JSON(Array(text.utf8)) }
        let name = try #require(UpstreamName("ordered"))
        let lane = try json(store.lanes(of: name, in: .held, after: nil, limit: 9, asJSON: true).text)["lanes"][0]
        #expect(lane["key"].string == "bob")
        #expect(lane["reason"].string == "credentials")
        let filter = MessageFilter(state: .queued)
        let list = try json(store.list(filter, waitingFor: .credentials, after: nil, limit: 9, asJSON: true).text)
        #expect(list["messages"].array.map { $0["lane"].string } == ["bob", nil])
        let id = try #require(list["messages"][0]["id"].string)
        #expect(try store.show(id, payload: false, asJSON: false).contains("lane          bob"))
        var lines: [String] = []
        try store.export(filter) { lines.append($0) }
        #expect(lines.first?.contains(#""lane":"bob""#) == true, "\(lines)")
        let plain = try OutboxInspection(StoreLocation(path: gateway.outbox.path), now: gateway.context.time.now)
        #expect(try json(plain.show(id, payload: false, asJSON: true))["lane"].string?.count == 16)
    }
}
