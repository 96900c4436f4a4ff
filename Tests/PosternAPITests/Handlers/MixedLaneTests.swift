import PosternCore
import PosternTestKit
import Testing

@testable import PosternAPI

/// Lanes of an upstream whose batches mix them: they are known by a digest of a part of the payload.
@Suite struct MixedLaneTests {
    private struct OrderedUpstream: PlainAtHeart, LaneNamingUpstream {
        let plain = PlainUpstream("ordered", kinds: ["event"])

        func admit(
            _ payload: JSONValue, of kind: Kind, in context: AdmissionContext
        ) throws(InvalidPayload) -> Admission {
            Admission(lane: laneName(of: payload, of: kind).map { .digest(of: $0.utf8) } ?? .none)
        }

        func laneName(of payload: JSONValue, of kind: Kind) -> String? { payload["customer"]?.string }
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
            #expect(try list("?state=cancelled").allSatisfy { !$0["lane"].isThere })
            try gateway.client.post("/v1/messages/retry", body).problem(422, "invalid-payload")
        }
    }
}
