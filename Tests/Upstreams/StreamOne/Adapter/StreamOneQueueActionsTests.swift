import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// The endpoint below `sdk.prefix`, and the calls that it queues while the platform is away.
@Suite struct StreamOneQueueActionsTests {
    private let harness = StreamOneHarness()
    private var transport: ScriptedTransport { harness.transport }
    private static let queued =
        #"{"header":{"status":0,"statusmessage":"OK","apiversion":3,"cacheable":false,"queued":true},"body":null}"#

    private func upstream(_ settings: [String: SettingValue] = [:]) throws -> StreamOneUpstream {
        try StreamOneSamples.upstream(
            [
                "sdk.enabled": .bool(true), "readActions": .list(["item/overview"]),
                "sdk.queueActions": .list(["item/edit", "item/view", "item/overview", "session/create"]),
            ].merging(settings) { $1 })
    }

    private struct Outcome {
        let answer: SDKAnswer
        var text: String { String(decoding: answer.body, as: UTF8.self) }
        var status: Int? { Answer(answer.body)?.status.number }
        var isQueued: Bool { answer.outcome == .accepted && text == StreamOneQueueActionsTests.queued }
    }

    private func post(
        _ action: String, with arguments: [(String, String)] = [], by sdk: StreamOneSDK = StreamOneSDK(),
        to upstream: StreamOneUpstream
    ) throws -> Outcome {
        let sent = sdk.sent(action, arguments, at: harness.clock.now)
        return Outcome(answer: try upstream.post("/api/\(action)", sent, harness))
    }

    private var payloads: [String] { harness.queued.withLock { $0.map(\.payload) } }

    // MARK: The same endpoint

    private func begin(_ session: (id: String, key: String), _ upstream: StreamOneUpstream) throws -> StreamOneSDK {
        transport.expect(.status(200, StreamOneSamples.created(session.id, key: session.key)))
        let begun = try post("session/create", with: [("challenge", "c"), ("response", "r")], to: upstream)
        #expect(begun.answer.outcome == .proxied)
        return StreamOneSDK(session: session)
    }

    @Test(arguments: StreamOneVectors.php)
    func callOfPHP_isTakenBelowThePrefix(vector: StreamOneVectors.Vector) throws {
        let upstream = try upstream([
            "authenticationType": .text(vector.actor.kind.rawValue), "id": .text(vector.actor.id),
            "psk": .text(StreamOneVectors.psk(of: vector.actor)),
        ])
        if vector.isInSession { _ = try begin(StreamOneVectors.session, upstream) }
        let signed = vector.signed
        let sent = StreamOneSDK.Sent(query: "\(signed.parameters)&signature=\(signed.signature)", body: signed.body)
        try expectTaken(signed, sent, upstream)
        let forged = StreamOneSDK.Sent(query: sent.query, body: sent.body + (sent.body.isEmpty ? "z=" : "&z="))
        let refused = Outcome(answer: try upstream.post(signed.path, forged, harness))
        #expect(refused.answer.outcome == .unauthorized && !refused.answer.isOfStranger)
        #expect(refused.status == (vector.isInSession ? 282 : 3))
    }

    /// The signature is one of the sorted parameters.
    @Test(arguments: StreamOneVectors.ios)
    func callOfIOS_isTakenBelowThePrefix(signed: StreamOneVectors.Signed) throws {
        let kind = signed.parameters.contains("application=") ? "application" : "user"
        let upstream = try upstream([
            "authenticationType": .text(kind), "id": .text(kind), "psk": .text(kind == "user" ? "psk" : "apppsk"),
        ])
        let pairs = signed.parameters.split(separator: "&").map(String.init) + ["signature=\(signed.signature)"]
        let sent = StreamOneSDK.Sent(query: pairs.sorted().joined(separator: "&"), body: signed.body)
        let seconds: Int64 = signed.parameters.contains("5678") ? 5678 : 1234
        try expectTaken(signed, sent, upstream, at: Timestamp(milliseconds: seconds * 1000))
    }

    private func expectTaken(
        _ signed: StreamOneVectors.Signed, _ sent: StreamOneSDK.Sent, _ upstream: StreamOneUpstream,
        at now: Timestamp? = nil
    ) throws {
        let platforms = StreamOneSamples.answer(body: #"{"x":1e400,"y":"\/"}"#)
        transport.expect(.status(200, platforms))
        let outcome = Outcome(answer: try upstream.post(signed.path, sent, at: now, harness))
        #expect(outcome.text == platforms && outcome.answer.status == 200 && outcome.answer.outcome == .proxied)
        #expect(outcome.answer.headers.map(\.name) == ["Content-Type", "X-Cache"])
        let call = try #require(harness.calls.last)
        #expect("/" + call.path == signed.path)
        let arguments = try #require(StreamOneEncoding.pairs(of: signed.body.utf8))
        #expect(call.arguments == Dictionary(uniqueKeysWithValues: arguments.map { ($0.name, $0.value) }))
    }

    @Test func refusals_haveThePlatformsForm() throws {
        let endpoints = try #require(try upstream().sdk)
        let expected: [(SDKRefusal, Int, Int)] = [
            (.notFound, 404, 5), (.methodNotAllowed("POST"), 405, 5), (.unauthorized, 200, 3), (.forbidden, 200, 4),
            (.malformed, 200, 6), (.tooLarge, 200, 6), (.noRoom, 200, 1),
        ]
        for (reason, http, status) in expected {
            let outcome = Outcome(answer: endpoints.refusal(reason))
            #expect(outcome.answer.status == http && outcome.status == status, "\(reason)")
            #expect(outcome.answer.outcome == reason.outcome)
            #expect(outcome.text.hasSuffix(#","apiversion":3,"cacheable":false},"body":null}"#))
        }
        #expect(endpoints.refusal(.methodNotAllowed("POST")).headers.contains { $0 == ("Allow", "POST") })
        #expect(try post("item/", to: upstream()).answer == endpoints.refusal(.notFound))
    }

    // MARK: What is queued

    @Test func call_isQueued_whilePlatformIsKnownToBeAway() throws {
        let upstream = try upstream()
        harness.awayness.withLock { $0 = true }
        #expect(try post("item/edit", with: [("title", "a")], to: upstream).isQueued)
        #expect(transport.requests.isEmpty)
        #expect(payloads == [#"{"command":"item","action":"edit","accounts":[],"arguments":{"title":"a"}}"#])
    }

    /// Refused, or not connected in time: it has certainly not been carried out.
    @Test(arguments: [
        TransferResult.refusedConnection,
        .failure(TransferFailure(.timeout, mayHaveArrived: false, detail: "connection timed out")),
    ])
    func call_isQueued_ifThePlatformCannotBeReached(result: TransferResult) throws {
        transport.expect(result)
        #expect(try post("item/edit", to: upstream()).isQueued)
        #expect(transport.requests.count == 1 && payloads.count == 1)
    }

    /// The gateway does not repeat what may have been done.
    @Test(arguments: [
        TransferResult.reset, .status(503), .status(200, "<html>"), .status(200),
        .failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "late")),
        .failure(TransferFailure(.cancelled, mayHaveArrived: true, detail: "stopped")),
    ])
    func call_isNotQueued_ifItsOutcomeIsUnknown(result: TransferResult) throws {
        transport.expect(result)
        let outcome = try post("item/edit", to: upstream())
        #expect(outcome.status == 1 && outcome.answer.outcome == .refused)
        #expect(payloads.isEmpty)
    }

    @Test func call_isQueued_behindThoseOfItsAccountOrCustomer() throws {
        let upstream = try upstream()
        let scopes: [[(String, String)]] = [[("account", "A1")], [("customer", "C1")], []]
        for scope in scopes {
            transport.expect(.refusedConnection)
            #expect(try post("item/edit", by: StreamOneSDK(parameters: scope), to: upstream).isQueued)
        }
        let asked = transport.requests.count
        for scope in scopes + [[("account", "A1,A2")]] {
            #expect(try post("item/edit", by: StreamOneSDK(parameters: scope), to: upstream).isQueued)
        }
        #expect(transport.requests.count == asked)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        for scope in [[("account", "A2")], [("account", "A2,A1")], [("customer", "A1")]] {
            #expect(try post("item/edit", by: StreamOneSDK(parameters: scope), to: upstream).answer.outcome == .proxied)
        }
        #expect(try post("item/create", to: upstream).answer.outcome == .proxied, "it is not named")
    }

    /// The platform blocks the actor, or does not accept its key. A restart does not forget that.
    @Test(arguments: [3, 8]) func call_isQueued_whileTheActorIsHeld(status: Int) throws {
        let upstream = try upstream()
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(status)) }
        #expect(try post("item/edit", to: upstream).text == StreamOneSamples.answer(status))
        let asked = transport.requests.count
        #expect(try post("item/edit", by: StreamOneSDK(parameters: [("account", "A1")]), to: upstream).isQueued)
        let restarted = try self.upstream()
        #expect(try post("item/edit", by: StreamOneSDK(parameters: [("account", "A2")]), to: restarted).isQueued)
        #expect(try post("item/create", to: upstream).status == status, "it is not named")
        #expect(transport.requests.count == asked)
    }

    @Test func readsAndSessions_areNeverQueued_evenIfNamed() throws {
        let upstream = try upstream()
        let session = try begin(StreamOneVectors.session, upstream)
        harness.awayness.withLock { $0 = true }
        transport.answerAll { _ in .refusedConnection }
        for action in ["item/view", "item/overview", "session/create", "item/create"] {
            #expect(try post(action, to: upstream).status == 1, "\(action)")
        }
        #expect(try post("item/edit", by: session, to: upstream).status == 1)
        #expect(try post("item/edit", by: StreamOneSDK(psk: "wrong"), to: upstream).status == 3)
        #expect(payloads.isEmpty)
    }

    @Test func fullQueue_isTheAnswer_andAStoreThatCannotBeReadAnInternalError() throws {
        let upstream = try upstream()
        harness.hasRoom.withLock { $0 = false }
        transport.expect(.refusedConnection)
        let full = try post("item/edit", to: upstream)
        #expect(full.text == "no room" && full.answer.outcome == .noRoom)
        harness.isUnreadable.withLock { $0 = true }
        #expect(try post("item/edit", to: upstream).status == 1)
        #expect(transport.requests.count == 1)
    }

    /// The path of the gateway's own API is the same endpoint.
    @Test func otherPath_queuesTheSame_onlyIfTheEndpointsForSDKsAreServed() throws {
        let upstream = try upstream()
        transport.answerAll { _ in .refusedConnection }
        #expect(try upstream.call("item/edit", harness).json?.text == Self.queued)
        #expect(payloads.count == 1)
        harness.servesSDKs.withLock { $0 = false }
        #expect(try upstream.call("item/edit", harness).status == 1)
        #expect(payloads.count == 1)
    }

    /// What is queued is valid, belongs to the lane that it was stored in, and is sent as the SDK meant it.
    @Test(
        arguments: [
            ([("account", "A1,A2")], "account/A1", "A1,A2"), ([("customer", "C1")], "customer/C1", nil),
            ([("timezone", "Europe/Amsterdam")], "none", nil),
        ] as [([(String, String)], String, String?)])
    func queuedCall_isTheSDKs(parameters: [(String, String)], lane: String, account: String?) throws {
        let upstream = try upstream(["defaultAccountId": .text("D1")])
        harness.awayness.withLock { $0 = true }
        let arguments = [("title \"a\"\\", "Café\u{0}\n\u{2028}😀 \\u0041"), ("e", ""), ("b[]", "1,2")]
        #expect(
            try post("item/edit", with: arguments, by: StreamOneSDK(parameters: parameters), to: upstream).isQueued)
        let (payload, stored) = try #require(harness.queued.withLock { $0.first })
        #expect(stored == .named(lane))
        let context = ValidationContext(acceptedAt: harness.clock.now)
        let valid = try JSONParser().parse(Array(payload.utf8)) { value throws(InvalidPayload) in
            try upstream.validate(value, of: "call", in: context)
        }.get()
        #expect(valid.lane == stored)
        let call = try JSONParser().parse(Array(payload.utf8)) { value throws(InvalidPayload) in
            try StreamOneCall(value, defaultAccount: nil)
        }.get()
        #expect(call.arguments == arguments.map { StreamOneCall.Argument($0, $1) })
        #expect(call.scope.accounts == account?.split(separator: ",").map(String.init) ?? [])
        #expect(call.timezone == parameters.first { $0.0 == "timezone" }?.1)
    }

    @Test func call_isRefused_ifItIsTooLargeForTheQueue() throws {
        harness.awayness.withLock { $0 = true }
        let outcome = try post("item/edit", with: [("a", String(repeating: "x", count: 2 << 20))], to: upstream())
        #expect(outcome.status == 6 && payloads.isEmpty)
    }

    // MARK: Settings

    @Test func endpointsNeedCredentials() throws {
        for values: [String: SettingValue] in [["id": "a"], ["psk": "b"], [:]] {
            #expect(throws: Setting.Problems.self) {
                try StreamOneSettings(values.merging(["sdk.enabled": .bool(true)]) { $1 })
            }
        }
        #expect(throws: Never.self) { try StreamOneSettings(["id": "a", "psk": "b", "sdk.enabled": .bool(true)]) }
    }

    @Test func queueActions_areNames_andThoseThatAreNeverQueuedAreReported() throws {
        for bad in ["item", "item/", "Item/edit", "item/edit/x", ""] {
            #expect(throws: Setting.Problems.self) { try upstream(["sdk.queueActions": .list([bad])]) }
        }
        let warnings = try #require(try upstream().sdk).warnings
        #expect(warnings.allSatisfy { $0.setting == "queueActions" })
        #expect(
            warnings.map(\.detail) == [
                "has item/overview, which only reads: it is never queued",
                "has item/view, which only reads: it is never queued",
                "has session/create, which is about a session: it is never queued",
            ])
        #expect(try upstream(["writeActions": .list(["item/view"])]).sdk?.warnings.count == 2)
    }
}
