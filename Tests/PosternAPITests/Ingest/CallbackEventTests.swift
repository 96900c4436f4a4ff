import Foundation
import PosternCore
import PosternDelivery
import PosternEvents
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing
import WebhookAdapter

@testable import PosternAPI

/// The content of events about settled messages, and their delivery to a webhook.
@Suite(.timeLimit(.minutes(10))) struct CallbackEventTests {
    /// A gateway whose upstream `picky` is reported to `hooks`, a webhook.
    private func withCallbacks(
        _ results: [TransferResult] = [], orderBy: String = "", includesPayload: Bool = false, isPaused: Bool = true,
        _ body: (TestGateway) throws -> Void
    ) throws {
        let settings: [String: SettingValue] = [
            "url": .text("http://hooks.test"), "kinds": .objects(["settled": [:]]), "orderBy": .text(orderBy),
        ]
        var setup = Setup()
        setup.upstreams = [
            PickyUpstream("picky"), try UpstreamType.webhook.make(try #require(UpstreamName("hooks")), settings),
        ]
        setup.results = results
        setup.paused = isPaused ? ["hooks"] : []
        try withGateway(setup) { gateway in
            gateway.outbox.setCallbacks([
                Callback(
                    to: gateway.workers[1].queue.target, as: "settled", of: [.delivered, .failed], in: nil,
                    includesPayload: includesPayload)
            ])
            try body(gateway)
        }
    }

    private func record(about id: String, _ gateway: TestGateway) throws -> MessageRecord {
        var found: [MessageRecord] = []
        #expect(
            try eventually {
                found = try gateway.outbox.messages(
                    MessageFilter(upstream: UpstreamName("hooks"), key: id), after: nil, limit: 2, payload: true
                ).messages
                return !found.isEmpty
            })
        #expect(found.count == 1)
        return try #require(found.first)
    }

    private func event(about id: String, _ gateway: TestGateway) throws -> String {
        String(decoding: try #require(try record(about: id, gateway).payload), as: UTF8.self)
    }

    // MARK: What it says

    @Test func deliveredMessage_isReported_withItsResult() throws {
        try withCallbacks([.status(200, #"{"taken": 1.0}"#)]) { gateway in
            let envelope = #"{"upstream":"picky","kind":"note","payload":{"n":1},"key":"a\"b"}"#
            let id = try gateway.accept("/v1/messages", envelope)
            let settledAt = try #require(try gateway.settled(id)["settledAt"].string)
            #expect(
                try event(about: id, gateway)
                    == #"{"id":"\#(id)","upstream":"picky","kind":"note","state":"delivered","key":"a\"b","via":null,"attempts":1,"#
                    + #""settledAt":"\#(settledAt)","lastError":null,"result":{"taken": 1.0}}"#)
        }
    }

    @Test func failedMessage_isReported_withItsErrorAndTheTextOfItsResult() throws {
        try withCallbacks([.status(410, "no more")]) { gateway in
            let id = try gateway.accept()
            let message = try gateway.settled(id)
            let (settledAt, at) = (message["settledAt"].string ?? "", message["lastError"]["at"].string ?? "")
            #expect(
                try event(about: id, gateway)
                    == #"{"id":"\#(id)","upstream":"picky","kind":"event","state":"failed","key":null,"via":null,"attempts":1,"#
                    + #""settledAt":"\#(settledAt)","lastError":{"class":"refused","status":410,"detail":"gone","at":"\#(at)"},"#
                    + #""result":"no more"}"#)
        }
    }

    @Test func members_areThoseOfTheDocument() throws {
        try withCallbacks([.status(200)]) { gateway in
            let id = try gateway.accept()
            let document = String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self)
            let schema = try #require(document.range(of: "\n    CallbackEvent:\n      description:"))
            let required = try #require(document[schema.upperBound...].firstMatch(of: /required: \[([a-zA-Z, ]+)\]/))
            let members = try JSON(Array(event(about: id, gateway).utf8)).keys
            #expect(required.output.1.split(separator: ", ").map(String.init).sorted() == members.sorted())
        }
    }

    // MARK: Payloads

    @Test(arguments: [true, false]) func payload_isIncluded_byteForByte_ifThatIsConfigured(isIncluded: Bool) throws {
        try withCallbacks([.status(200)], includesPayload: isIncluded) { gateway in
            let payload = "{ \"n\":1,\t\"x\": [1.50e+2, \"\\u00e9\u{e9}\"]\n}"
            let id = try gateway.accept("/v1/picky/event", payload)
            let event = try event(about: id, gateway)
            #expect(event.hasSuffix(isIncluded ? "\"result\":null,\"payload\":\(payload)}" : "\"result\":null}"))
        }
    }

    /// Inside the event, the payload is nested more deeply than the gateway accepts.
    @Test func payloadOfTheGreatestDepth_isIncluded() throws {
        try withCallbacks([.status(200)], orderBy: "/upstream", includesPayload: true) { gateway in
            let nested = String(repeating: "[", count: 63) + String(repeating: "]", count: 63)
            let payload = "{\"n\":1,\"x\":\(nested)}"
            let id = try gateway.accept("/v1/picky/event", payload)
            let record = try record(about: id, gateway)
            #expect(String(decoding: record.payload ?? [], as: UTF8.self).hasSuffix(",\"payload\":\(payload)}"))
            #expect(record.lane != 0)
        }
    }

    // MARK: Order

    @Test(arguments: [("/key", false), ("/upstream", true), ("/payload/name", false), ("/lastError", true), ("", true)])
    func lane_isThatOfTheMemberWhichOrderByNames(pointer: String, areEqual: Bool) throws {
        try withCallbacks([.status(410), .status(410)], orderBy: pointer, includesPayload: true) { gateway in
            let lanes = try ["a", "b"].map { name in
                let id = try gateway.accept(
                    "/v1/messages",
                    #"{"upstream":"picky","kind":"event","payload":{"n":1,"name":"\#(name)"},"key":"\#(name)"}"#)
                _ = try gateway.settled(id)
                return try record(about: id, gateway).lane
            }
            #expect((lanes[0] == lanes[1]) == areEqual)
            // The members of an object have no order.
            #expect((lanes[0] == 0) == ["", "/lastError"].contains(pointer))
        }
    }

    // MARK: Delivery

    @Test func event_isSentToItsWebhook_andNotReportedItself() throws {
        try withCallbacks([.status(200), .status(204)], isPaused: false) { gateway in
            let id = try gateway.accept()
            let event = try record(about: id, gateway)
            _ = try gateway.settled("\(event.id)")
            let request = try #require(gateway.transport.requests.last)
            #expect(request.url == "http://hooks.test")
            #expect(request.text.hasPrefix(#"{"id":"\#(id)","upstream":"picky","kind":"event","state":"delivered","#))
            #expect(gateway.transport.requests.count == 2)
            #expect(gateway.outbox.ledger(of: event.id.upstream).accepted == 1)
        }
    }

    @Test func event_isListedByTheIdOfItsMessage_andCounted() throws {
        try withCallbacks([.status(200)]) { gateway in
            let id = try gateway.accept()
            _ = try record(about: id, gateway)
            let list = try gateway.client.get("/v1/messages?upstream=hooks&key=\(id)").json["messages"].array
            #expect(list.map { $0["state"].string } == ["queued"])
            let metrics = try gateway.client.get("/metrics").text
            #expect(metrics.contains(#"postern_messages_accepted_total{upstream="hooks",kind="settled"} 1"#))
            #expect(metrics.contains(#"postern_outbox_messages{upstream="hooks",state="queued"} 1"#))
        }
    }

    // MARK: Alerts

    /// A gateway that tells `hooks` of alerts, of whose upstream `picky` the credentials are rejected.
    private func withAlerts(
        _ results: [TransferResult], of alerts: Set<AlertEvent>, orderBy: String = "",
        _ body: (TestGateway) throws -> Void
    ) throws {
        try withCallbacks(results, orderBy: orderBy) { gateway in
            gateway.outbox.setCallbacks([
                Callback(
                    to: gateway.workers[1].queue.target, as: "settled", of: [], in: nil, includesPayload: false,
                    alerts: alerts)
            ])
            gateway.context.watchForAlerts(oldAfter: [:])
            try body(gateway)
        }
    }

    @Test func rejectedCredentials_areTold_withTheirError() throws {
        try withAlerts([.status(403)], of: Set(AlertEvent.allCases), orderBy: "/upstream") { gateway in
            _ = try gateway.accept()
            let record = try record(about: "upstream.unauthorized/picky", gateway)
            let text = String(decoding: try #require(record.payload), as: UTF8.self)
            let at = try #require(JSON(Array(text.utf8))["at"].string)
            let detail = try #require(try gateway.upstream()["lastError"]["detail"].string)
            #expect(
                text
                    == #"{"event":"upstream.unauthorized","upstream":"picky","status":"firing","at":"\#(at)","#
                    + #""since":"\#(at)","detail":"\#(detail)","counts":{"accepted":1,"queued":1,"delivered":0,"#
                    + #""failed":0,"cancelled":0,"dropped":0,"expired":0}}"#)
            #expect(record.lane != 0)
            let document = String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self)
            let schema = try #require(document.range(of: "\n    AlertEvent:\n      description:"))
            let required = try #require(document[schema.upperBound...].firstMatch(of: /required: \[([a-zA-Z, ]+)\]/))
            let members = JSON(Array(text.utf8)).keys
            #expect(required.output.1.split(separator: ", ").map(String.init).sorted() == members.sorted())
            let events = AlertEvent.allCases.map(\.rawValue).joined(separator: ", ")
            #expect(document[schema.upperBound...].contains("enum: [\(events)]"))
        }
    }

    @Test func event_isReportedToListeners() throws {
        try withCallbacks([.status(200)]) { gateway in
            let client = try EventClient(gateway.port, "?upstream=hooks")
            let id = try gateway.accept()
            let told = try client.next(.messageQueued)
            #expect(told.ids == ["\(try record(about: id, gateway).id)"])
        }
    }
}

extension TestGateway {
    /// Waits until the message is settled.
    fileprivate func settled(_ id: String) throws -> JSON {
        #expect(try eventually { try message(id)["state"].string != "queued" })
        return try message(id)
    }
}
