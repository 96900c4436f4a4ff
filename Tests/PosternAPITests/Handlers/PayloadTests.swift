import PosternCore
import PosternTestKit
import Testing

@testable import PosternAPI

/// `GET /v1/messages/{id}/payload` and `/request`.
@Suite struct PayloadTests {
    private static let odd =
        #"{ "b" : 12345678901234567890, "a":1e400,"10":1.10, "9":-0.0 ,"u":"\u00e9\/\u202e","n":1 }"#

    @Test func payload_isByteForByteWhatCame() throws {
        try withPausedGateway { gateway in
            let id = try gateway.accept("/v1/picky/event", Self.odd)
            let answer = try gateway.client.get("/v1/messages/\(id)/payload")
            #expect(answer.status == 200 && answer.text == Self.odd)
            #expect(answer.header("Content-Type") == "application/json")
            #expect(answer.header("X-Content-Type-Options") == "nosniff")
            #expect(answer.header("Content-Disposition") == nil)
            _ = try gateway.client.ask("DELETE", "/v1/messages/\(id)")
            #expect(try gateway.client.get("/v1/messages/\(id)/payload").text == Self.odd)
        }
    }

    @Test(arguments: [("?download", true), ("?download=true", true), ("?download=false", false)])
    func download_isAnAttachment(query: String, isAttachment: Bool) throws {
        try withPausedGateway { gateway in
            let id = try gateway.accept()
            let answer = try gateway.client.get("/v1/messages/\(id)/payload\(query)")
            #expect(answer.text == #"{"n":1}"#)
            #expect(
                answer.header("Content-Disposition") == (isAttachment ? #"attachment; filename="\#(id).json""# : nil))
            try gateway.client.get("/v1/messages/\(id)/payload?download=1").problem(400, "bad-request")
        }
    }

    @Test(arguments: ["payload", "request"]) func deliveredMessage_hasNoneAnyMore(part: String) throws {
        var setup = Setup()
        setup.results = [.status(200)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitForState("delivered", of: id)
            let answer = try gateway.client.get("/v1/messages/\(id)/\(part)")
            answer.problem(404, "not-found")
            #expect(answer.json["detail"].string?.contains("no longer kept") == true)
            try gateway.client.get("/v1/messages/0000000000101/\(part)").problem(404, "not-found")
        }
    }

    @Test func request_isWhatADryRunShows_ofAQueuedAndOfAFailedMessage() throws {
        var setup = Setup()
        setup.results = [.status(422)]
        try withGateway(setup) { gateway in
            let body = #"{"n":1,"name":"\#(PickyUpstream.secret)","lane":7}"#
            let failed = try gateway.accept("/v1/picky/event", body)
            try gateway.waitForState("failed", of: failed)
            _ = try gateway.client.post("/v1/upstreams/picky/pause")
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let queued = try gateway.accept("/v1/picky/event", body)
            let shown = try gateway.client.post("/v1/picky/event?dryRun=true", body)
            #expect(shown.json["requests"][0]["url"].string == "http://picky.test/events")
            for id in [failed, queued] {
                let answer = try gateway.client.get("/v1/messages/\(id)/request")
                #expect(answer.status == 200 && answer.json.keys == ["requests"])
                #expect(shown.text.hasSuffix(answer.text.dropFirst()), "\(answer.text)")
                #expect(!answer.text.contains(PickyUpstream.secret))
            }
            _ = try gateway.client.ask("DELETE", "/v1/messages/\(queued)")
            let cancelled = try gateway.client.get("/v1/messages/\(queued)/request")
            cancelled.problem(409, "conflict")
        }
    }

    @Test func request_isNotMade_forAnUpstreamThatIsNotConfigured() throws {
        var setup = Setup()
        setup.folder = ScratchFolder()
        var id = ""
        try withPausedGateway(setup) { gateway in id = try gateway.accept("/v1/plain/thing", "{}") }
        setup.upstreams = [PickyUpstream("picky")]
        try withPausedGateway(setup) { gateway in
            try gateway.client.get("/v1/messages/\(id)/request").problem(409, "conflict")
            #expect(try gateway.client.get("/v1/messages/\(id)/payload").text == "{}")
        }
    }
}
