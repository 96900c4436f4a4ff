import PosternTestKit
import Testing

/// `POST /v1/messages/cancel`, and previews.
@Suite struct CancelManyTests {
    @Test func backlogOfAnUpstream_isCounted_thenCancelled() throws {
        try withPausedGateway { gateway in
            // More messages than one page holds.
            let events = "[" + (1...902).map { #"{"n":\#($0)}"# }.joined(separator: ",") + "]"
            #expect(try gateway.client.post("/v1/picky/event", events).status == 202)
            #expect(try gateway.client.post("/v1/picky/note", #"[{"n":1},{"n":2}]"#).status == 202)
            let other = try gateway.accept("/v1/plain/thing", "{}")
            let preview = try gateway.client.post(
                "/v1/messages/cancel", #"{"upstream":"picky","kind":"event","dryRun":true}"#)
            #expect(preview.status == 200)
            #expect(preview.text == #"{"cancelled":902,"dryRun":true}"# + "\n")
            #expect(gateway.queued == 905)
            let done = try gateway.client.post("/v1/messages/cancel", #"{"upstream":"picky","kind":"event"}"#)
            #expect(done.text == #"{"cancelled":902}"# + "\n")
            #expect(gateway.queued == 3)
            #expect(try gateway.message(other)["state"].string == "queued")
        }
    }

    @Test func messagesByID_areCancelled_exceptThoseSettledOrBeingSent() throws {
        try withGateway { gateway in
            let sent = try gateway.accept()
            try gateway.waitForOpenRequest()
            let waiting = try gateway.accept()
            let answer = try gateway.client.post(
                "/v1/messages/cancel", #"{"ids":["\#(sent)","\#(waiting)","0000000000101"]}"#)
            #expect(answer.text == #"{"cancelled":1}"# + "\n")
            #expect(try gateway.message(waiting)["state"].string == "cancelled")
            #expect(try gateway.message(sent)["state"].string == "queued")
        }
    }

    @Test func retry_isCounted_whenItIsADryRun() throws {
        var setup = Setup()
        setup.results = [.status(422)]
        try withGateway(setup) { gateway in
            let id = try gateway.accept()
            try gateway.waitForState("failed", of: id)
            let preview = try gateway.client.post("/v1/messages/retry", #"{"upstream":"picky","dryRun":true}"#)
            #expect(preview.status == 200)
            #expect(preview.text == #"{"retried":1,"dryRun":true}"# + "\n")
            #expect(try gateway.message(id)["state"].string == "failed")
        }
    }

    @Test(arguments: [
        (#"{}"#, [""]), (#"{"upstream":"picky","state":"failed"}"#, ["/state"]),
        (#"{"upstream":"picky","dryRun":1}"#, ["/dryRun"]), (#"{"ids":"x","all":true}"#, ["/ids", "/all"]),
    ])
    func unreadableRequest_changesNothing(body: String, pointers: [String]) throws {
        try withPausedGateway { gateway in
            _ = try gateway.accept()
            let answer = try gateway.client.post("/v1/messages/cancel", body)
            answer.problem(422, "invalid-payload")
            #expect(answer.json["errors"].array.map { $0["pointer"].string } == pointers)
            #expect(gateway.queued == 1)
        }
    }

    @Test func form_isNotTakenForARequest() throws {
        try withPausedGateway { gateway in
            let headers = [("Content-Type", "application/x-www-form-urlencoded")]
            let answer = try gateway.client.post("/v1/messages/cancel", "upstream=picky", headers: headers)
            answer.problem(415, "unsupported-media-type")
        }
    }
}
