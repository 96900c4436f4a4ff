import PosternCore
import PosternStore
import PosternTestKit
import Testing

@testable import PosternAPI

/// `POST /v1/messages/erase`.
@Suite struct EraseTests {
    private static let person = "person-4711-is-to-be-erased"

    private func envelope(_ key: String, _ name: String, upstream: String = "picky") -> String {
        #"{"upstream":"\#(upstream)","kind":"\#(upstream == "picky" ? "event" : "thing")","key":"\#(key)","#
            + #""payload":{"n":1,"name":"\#(name)","user":{"id":4711}}}"#
    }

    /// Nothing is sent. Calls `body` with the ids of a message of the person to each upstream, and one of another.
    private func withMessages(_ setup: Setup = Setup(), _ body: (TestGateway, [String]) throws -> Void) throws {
        try withPausedGateway(setup) { gateway in
            let ids = try [
                envelope(Self.person, Self.person), envelope(Self.person, "any", upstream: "plain"),
                envelope("other", "other"),
            ].map { try #require(try gateway.client.post("/v1/messages", $0).json["id"].string) }
            try body(gateway, ids)
        }
    }

    private func erase(_ gateway: TestGateway, _ body: String) throws -> HTTPClient.Answer {
        try gateway.client.post("/v1/messages/erase", body)
    }

    @Test func messagesWithTheKey_areErased_andTheAnswerCountsThem() throws {
        try withMessages { gateway, ids in
            let request = #"{"key":"\#(Self.person)","dryRun":true}"#
            let counts = #""delivered":0,"failed":0,"cancelled":0,"dropped":0,"expired":0,"callbacks":0,"#
            let records = #""idempotencyRecords":0,"events":0"#
            #expect(
                try erase(gateway, request).text == "{\"queued\":2,\(counts)\(records),\"dryRun\":true}\n")
            #expect(try gateway.message(ids[0])["state"].string == "queued")
            let done = try erase(gateway, #"{"key":"\#(Self.person)"}"#)
            #expect(done.status == 200 && done.text == "{\"queued\":2,\(counts)\(records)}\n")
            for id in ids.prefix(2) {
                let message = try gateway.client.get("/v1/messages/\(id)?include=payload").json
                #expect(message["state"].string == "cancelled" && message["erased"].bool == true)
                #expect(!message["key"].isThere && !message["payload"].isThere)
                #expect(try gateway.client.get("/v1/messages/\(id)/payload").status == 404)
            }
            #expect(try !gateway.message(ids[2]).keys.contains("erased"))
            #expect(try gateway.message(ids[2])["state"].string == "queued")
            #expect(try gateway.folder.files(with: Self.person) == [])
            #expect(
                try gateway.client.get("/metrics").text.contains(#"postern_messages_erased_total{upstream="picky"} 1"#))
        }
    }

    @Test(arguments: [
        (#"{"pointer":"/name","value":"person-4711-is-to-be-erased"}"#, 1),
        (#"{"pointer":"/user/id","value":4711}"#, 3),
        (#"{"pointer":"/user/id","value":"4711"}"#, 0), (#"{"pointer":"/user/id","value":4711.0}"#, 0),
        (#"{"pointer":"/user/id","value":4711,"upstream":"plain"}"#, 1), (#"{"pointer":"/id","value":4711}"#, 0),
    ])
    func messagesWithTheValue_areErased(body: String, count: Int) throws {
        try withMessages { gateway, _ in
            let answer = try erase(gateway, body)
            #expect(answer.json["queued"].int == count)
            #expect(gateway.queued == 3 - count)
        }
    }

    @Test(arguments: [
        ("{}", [""]), (#"{"key":"a","pointer":"/a","value":1}"#, [""]), (#"{"pointer":"/a"}"#, [""]),
        (#"{"value":"a"}"#, [""]), (#"{"key":""}"#, ["/key"]), (#"{"pointer":"a","value":"b"}"#, ["/pointer"]),
        (#"{"pointer":"/a","value":""}"#, ["/value"]), (#"{"pointer":"/a","value":true}"#, ["/value"]),
        (#"{"key":"a","upstream":"none"}"#, ["/upstream"]), (#"{"key":"a","state":"failed"}"#, ["/state"]),
        (#"{"key":"a","dryRun":1}"#, ["/dryRun"]), ("[]", [""]),
    ])
    func requestThatIsNotValid_erasesNothing(body: String, pointers: [String]) throws {
        try withMessages { gateway, _ in
            let answer = try erase(gateway, body)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"].array.map { $0["pointer"].string } == pointers)
            #expect(gateway.queued == 3)
        }
    }

    @Test func erasedMessage_isNotSentAgain_andTheReasonIsGiven() throws {
        var setup = Setup()
        setup.results = [.status(422)]
        try withGateway(setup) { gateway in
            let id = try #require(
                try gateway.client.post("/v1/messages", envelope(Self.person, Self.person)).json["id"].string)
            try gateway.waitForState("failed", of: id)
            #expect(try erase(gateway, #"{"key":"\#(Self.person)"}"#).json["failed"].int == 1)
            for body in ["", #"{"dryRun":true}"#] {
                let answer = try gateway.client.post("/v1/messages/\(id)/retry", body)
                answer.problem(409, "conflict")
                #expect(answer.json["detail"].string == "The message was erased; it cannot be sent again.")
            }
            #expect(try gateway.client.post("/v1/messages/retry", #"{"upstream":"picky"}"#).json["retried"].int == 0)
            #expect(try gateway.message(id)["lastError"]["detail"].string == "erased")
        }
    }

    @Test func repeatOfAnErasedRequest_isStoredAsANewMessage() throws {
        try withPausedGateway { gateway in
            let key = [("Idempotency-Key", Self.person)]
            let first = try gateway.client.post("/v1/messages", envelope(Self.person, "a"), headers: key)
            #expect(try erase(gateway, #"{"key":"\#(Self.person)"}"#).json["idempotencyRecords"].int == 1)
            let second = try gateway.client.post("/v1/messages", envelope(Self.person, "a"), headers: key)
            #expect(second.status == 202 && second.json["id"].string != first.json["id"].string)
        }
    }
}
