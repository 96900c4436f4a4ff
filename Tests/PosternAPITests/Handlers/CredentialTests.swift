import PosternCore
import PosternHTTP
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// An upstream whose payloads carry a `token` for the lanes of their `user`.
private struct KeyedUpstream: PlainAtHeart {
    let plain = PlainUpstream("keyed", kinds: ["event"], laneRule: .perLane)

    func validate(_ payload: JSONValue, of kind: Kind, in context: ValidationContext) throws(InvalidPayload)
        -> ValidPayload
    {
        let user = payload["user"]?.string ?? ""
        let token = payload["token"]?.string
        return ValidPayload(
            lane: .named(user + "/lane", group: user), rewritten: Array(#"{"user":"\#(user)"}"#.utf8),
            credential: token.map { Credential(owner: user, value: Array($0.utf8), note: "kind") })
    }

    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        guard case .named(_, let user?) = messages[0].lane,
            let held = context.state.credential(of: user), held.isUsable(at: context.now)
        else { return .park }
        let headers = [("Authorization", held.note + " " + String(decoding: held.value, as: UTF8.self))]
        return .send(
            UpstreamRequest(url: "http://keyed.test/", headers: headers, credentialVersion: held.version), count: 1)
    }

    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        guard response.status == 401 else { return plain.judge(response, to: batch, in: context) }
        guard case .named(_, let user?) = batch.messages[0].lane, let version = batch.request?.credentialVersion else {
            return Decision(.park)
        }
        return Decision(Judgement(.park)) { _ in [.refuse(credentialOf: user, version: version)] }
    }
}

/// Credentials that arrive with messages, as callers see them.
@Suite struct CredentialTests {
    private var setup: Setup {
        var setup = Setup()
        setup.upstreams = [KeyedUpstream()]
        setup.encryptionKeys = EncryptionKeys(current: [UInt8](repeating: 7, count: 32))
        return setup
    }

    private static let path = "/v1/keyed/event"
    private static let item = #"{"user":"u","token":"canary-1"}"#

    @Test func refusedCredential_isWaitedFor_andAskedForInTheNextReceipt() throws {
        try withGateway(setup) { gateway in
            let id = try gateway.accept(Self.path, Self.item)
            try gateway.waitForOpenRequest()
            gateway.transport.answer(.status(401))
            try gateway.waitFor("token", of: id)
            #expect(try gateway.message(id)["attempts"].int == 0)
            let again = try gateway.client.post(Self.path, Self.item)
            #expect(again.json["needsToken"].bool == true)
            #expect(gateway.transport.requests.count == 1)
            let fresh = try gateway.client.post(Self.path, #"{"user":"u","token":"canary-2"}"#)
            #expect(fresh.json["needsToken"].bool == nil)
            try gateway.waitForOpenRequest()
            #expect(gateway.transport.openRequests[0].headers[0].value == "kind canary-2")
            gateway.transport.answerAll { _ in .status(200) }
            gateway.transport.answer(.status(200))
            try gateway.waitForState("delivered", of: id)
        }
    }

    @Test func dryRun_showsNoCredential_handedInOrHeld() throws {
        try withPausedGateway(setup) { gateway in
            _ = try gateway.accept(Self.path, Self.item)
            for body in [Self.item, #"{"user":"u"}"#, #"{"user":"v","token":"canary-3"}"#] {
                let answer = try gateway.client.post(Self.path + "?dryRun=true", body)
                #expect(answer.text.contains(#""Authorization":"kind ***""#), "\(answer.text)")
                #expect(!answer.text.contains("canary"))
            }
        }
    }

    @Test func canary_isInNoAnswer() throws {
        try withGateway(setup) { gateway in
            var texts: [String] = []
            let posted = try gateway.client.post(Self.path, Self.item)
            let id = try #require(posted.json["id"].string)
            texts.append(posted.text)
            try gateway.waitForOpenRequest()
            func look() throws {
                for path in [
                    "/v1/messages/\(id)?include=payload,attempts", "/v1/messages?include=payload", "/v1/upstreams",
                    "/v1/upstreams/keyed", "/metrics", "/readyz",
                ] { texts.append(try gateway.client.get(path).text) }
            }
            try look()
            gateway.transport.answer(.status(401, "canary-1"))
            try gateway.waitFor("token", of: id)
            try look()
            #expect(texts.allSatisfy { !$0.isEmpty && !$0.contains("canary") })
        }
    }
}
