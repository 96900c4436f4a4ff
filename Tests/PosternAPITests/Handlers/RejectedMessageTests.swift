import PosternCore
import PosternEvents
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// Messages that were stored as failed, and messages of SDKs.
@Suite struct RejectedMessageTests {
    @Test func message_isShownAsFailed_grouped_told_andSentIfItIsRetried() throws {
        var setup = Setup()
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let client = try EventClient(gateway.port)
            let receipt = try gateway.append([gateway.newMessage(#"{"n":"bad"}"#, failure: "/n must be an integer")])
            let id = receipt.ids[0].description
            #expect(try client.next(.messageFailed).ids == [id])
            let message = try gateway.client.get("/v1/messages/\(id)?include=payload,attempts").json
            #expect(message["state"].string == "failed" && message["attempts"].int == 0)
            #expect(message["attemptLog"].array.isEmpty && message["payload"]["n"].string == "bad")
            let error = message["lastError"]
            #expect(error["class"].string == "refused" && !error["status"].isThere)
            #expect(error["detail"].string == "/n must be an integer")
            #expect(error["at"].string == message["settledAt"].string)
            let group = try gateway.client.get("/v1/upstreams/picky/failures").json["failures"][0]
            #expect(group["count"].int == 1 && group["sample"].string == id && !group["status"].isThere)
            let counts = try gateway.upstream()["counts"]
            #expect(counts["accepted"].int == 1 && counts["failed"].int == 1 && counts["queued"].int == 0)
            #expect(try gateway.client.post("/v1/messages/\(id)/retry").status == 202)
            #expect(try client.next(.messageQueued).ids == [id], "it was not queued before")
            try gateway.waitForState("delivered", of: id)
            let sent = gateway.transport.requests.map { String(decoding: $0.body, as: UTF8.self) }
            #expect(sent == [#"[{"n":"bad"}]"#])
        }
    }

    @Test func messageOfAnSDK_saysSo_whateverBecomesOfIt() throws {
        var setup = Setup()
        setup.deliveredPayloads = .seconds(3600)
        setup.results = [.status(200), .status(200)]
        try withGateway(setup) { gateway in
            let ids = try gateway.append([
                gateway.newMessage(isFromSDK: true), gateway.newMessage(isFromSDK: true, failure: "is late"),
            ]).ids.map(\.description)
            try gateway.waitForState("delivered", of: ids[0])
            for id in ids { #expect(try gateway.message(id)["via"].string == "sdk") }
            let ordinary = try gateway.message(try gateway.accept())
            #expect(ordinary.keys.contains("via") && !ordinary["via"].isThere)
            gateway.transport.answerAll { _ in .status(200) }
            _ = try gateway.client.post("/v1/messages/replay", #"{"upstream":"picky"}"#)
            func copies() throws -> [JSON] {
                try gateway.client.get("/v1/messages").json["messages"].array.filter { $0["replayOf"].string == ids[0] }
            }
            try #require(try eventually { try copies().count == 1 })
            #expect(try copies()[0]["via"].string == "sdk")
        }
    }

    /// So that an import keeps what an export says.
    @Test func envelope_mayNameTheSDK() throws {
        try withPausedGateway { gateway in
            func post(_ via: String) throws -> HTTPClient.Answer {
                try gateway.client.post(
                    "/v1/messages", #"{"upstream":"picky","kind":"event","payload":{"n":1},"via":\#(via)}"#)
            }
            let answers = try ["\"sdk\"", "null"].map { try post($0).json["id"].string ?? "" }
            #expect(try answers.map { try gateway.message($0)["via"].string } == ["sdk", nil])
            for via in ["\"api\"", "1"] {
                let answer = try post(via)
                answer.problem(422, "invalid-payload")
                #expect(answer.json["errors"][0]["pointer"].string == "/via")
            }
        }
    }
}
