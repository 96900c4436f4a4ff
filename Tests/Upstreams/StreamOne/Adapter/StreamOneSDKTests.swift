import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// The endpoint for the platform's own SDKs (the specification's section 10).
@Suite struct StreamOneSDKTests {
    private let harness = StreamOneHarness()
    private var transport: ScriptedTransport { harness.transport }
    private let kept = StreamOneSamples.answer(cacheable: true, body: "[1]")
    private let inSession = StreamOneSDK(session: StreamOneVectors.session)

    // MARK: Passing on

    @Test func call_isSignedAgain_andItsResponsePassedOn() throws {
        let text = #" {"body": {"x":1e400,"y":"\/"}, "header" : {"status":0,"statusmessage":"OK","new":[]}} "#
        transport.expect(.status(200, text))
        let upstream = try StreamOneSamples.upstream(["defaultAccountId": .text("A9")])
        let sdk = StreamOneSDK(parameters: [("timezone", "Europe/Amsterdam"), ("account", "A1,A2")])
        let sent = sdk.sent("item/edit", [("b", "Café ~*!'()"), ("a", "")], at: harness.clock.now)
        harness.clock.advance(by: .seconds(7))
        let reply = try upstream.ask(
            .post, "api/item/edit", queryText: sent.query, body: sent.body.replacing("+", with: "%20"), harness)
        #expect(reply.json?.text == text)
        #expect(reply.json?.headers == ["X-Cache": "miss"])
        let request = try #require(transport.requests.first)
        #expect(String(decoding: request.body, as: UTF8.self) == "b=Caf%C3%A9+%7E%2A%21%27%28%29&a=")
        let parameters = try #require(harness.calls.first).parameters
        #expect(parameters["timestamp"] == "1450000007")
        #expect(parameters["account"] == "A1,A2")
        #expect(parameters["timezone"] == "Europe/Amsterdam")
        #expect(try #require(sent.query.split(separator: "=").last) != parameters["signature"] ?? "")
    }

    /// The SDK knows its own default account; without one it asks about none.
    @Test(
        arguments: [
            ([], nil, nil), ([("account", "A1")], "A1", nil), ([("customer", "C1")], nil, "C1"),
            ([("account", ""), ("customer", "C1")], nil, "C1"), ([("account", "")], nil, nil),
        ] as [([(String, String)], String?, String?)])
    func scope_isTheSDKs(parameters: [(String, String)], account: String?, customer: String?) throws {
        transport.expect(.status(200, StreamOneSamples.answer()))
        let upstream = try StreamOneSamples.upstream(["defaultAccountId": .text("D1")])
        try upstream.call("item/view", by: StreamOneSDK(parameters: parameters), harness)
        let sent = try #require(harness.calls.first).parameters
        #expect(sent["account"] == account && sent["customer"] == customer)
    }

    @Test(arguments: Status.all.map(\.number) + [9999])
    func refusalOfThePlatforms_isPassedOn(status: Int) throws {
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(status)) }
        let reply = try StreamOneSamples.upstream().call("item/edit", harness)
        #expect(reply.json?.text == StreamOneSamples.answer(status))
    }

    // MARK: Refusing

    @Test func refusal_isAnAnswerOfThePlatformsKind() throws {
        let reply = try StreamOneSamples.upstream().call("item/view", harness) { $0.query += "&limit=3" }
        #expect(
            reply.json?.text
                == #"{"header":{"status":7,"statusmessage":"UNKNOWN_PARAMETER: there is no parameter limit","apiversion":3,"cacheable":false},"body":null}"#
        )
        #expect(reply.status == 7)
        #expect(transport.requests.isEmpty)
    }

    @Test func stranger_isRefused_withoutAsking() throws {
        let upstream = try StreamOneSamples.upstream()
        #expect(try upstream.call("item/view", by: StreamOneSDK(psk: "wrong"), harness).status == 3)
        #expect(try upstream.call("item/view", by: StreamOneSDK(psk: ""), harness).status == 3)
        #expect(try upstream.call("item/view", harness) { $0.body = "a=1" }.status == 3)
        let user = StreamOneSDK(actor: StreamOneVectors.user, psk: StreamOneVectors.psk(of: StreamOneVectors.user))
        #expect(try upstream.call("item/view", by: user, harness).status == 3)
        #expect(try upstream.call("item/View", harness).status == 5)
        #expect(try upstream.call("item/view", by: inSession, harness).status == 282)
        #expect(transport.requests.isEmpty)
        let ofUser = try StreamOneSamples.upstream([
            "authenticationType": .text("user"), "id": .text(user.actor.id), "psk": .text(user.psk),
        ])
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        #expect(try ofUser.call("item/view", by: user, harness).status == 0)
        #expect(try ofUser.call("item/view", harness).status == 3)
    }

    /// Nothing of a large body is read for a caller that could not be right.
    @Test func callThatCannotBeRight_isRefused_beforeItsBodyIsChecked() throws {
        let upstream = try StreamOneSamples.upstream()
        let body = "a=" + String(repeating: "x", count: 1 << 20)
        let changes: [(String, String, Int)] = [
            ("application=9yC-4pQxT_2a", "application=another", 3), ("timestamp=1450000000", "timestamp=1450000301", 2),
            ("api=3", "api=2", 6), ("format=json", "format=json&limit=3", 7),
        ]
        for (text, other, status) in changes {
            let reply = try upstream.call("item/edit", harness) {
                ($0.query, $0.body) = ($0.query.replacing(text, with: other), body)
            }
            #expect(reply.status == status)
        }
        #expect(try upstream.call("item/Edit", harness) { $0.body = body }.status == 5)
        #expect(harness.checks.withLock { $0 }.isEmpty)
        #expect(try upstream.call("item/edit", harness) { $0.body = body }.status == 3)
        #expect(harness.checks.withLock { $0 } == [body.utf8.count])
    }

    /// Too many others are being checked, or are in progress. In words that the SDK can read.
    @Test func call_isToBeRepeated_whileTooMuchIsInProgress() throws {
        let upstream = try StreamOneSamples.upstream()
        for overload in [StreamOneHarness.Overload.checks, .memory] {
            harness.overload.withLock { $0 = overload }
            let reply = try upstream.call("item/edit", with: [("a", "1")], harness)
            #expect(reply.status == 8)
            #expect(reply.json?.text.contains("repeat this one later") == true)
        }
        #expect(transport.requests.isEmpty)
    }

    /// A stranger who tries ids gets the same answer after the same work.
    @Test func stranger_doesNotLearn_whetherThereIsASession() throws {
        let upstream = try StreamOneSamples.upstream()
        var known = try begin(upstream)
        let before = harness.checks.withLock { $0.count }
        known.session?.key = "guessed"
        let refused = try upstream.call("item/edit", by: known, harness)
        #expect(harness.checks.withLock { $0.count } == before + 1)
        let unknown = try upstream.call("item/edit", by: StreamOneSDK(session: ("Another", "guessed")), harness)
        #expect(harness.checks.withLock { $0.count } == before + 2)
        #expect(refused.status == 282 && refused.json?.text == unknown.json?.text)
        // The store is read for one that is in memory, too.
        harness.reads.withLock { $0 = 0 }
        _ = try upstream.call("item/edit", by: known, harness)
        #expect(harness.reads.withLock { $0 } == 1)
        _ = try upstream.call("item/edit", by: StreamOneSDK(session: ("Another", "guessed")), harness)
        #expect(harness.reads.withLock { $0 } == 2)
    }

    /// Whatever it is that does not prove who sends the call.
    @Test func callThatIsNotProven_countsAsAFailedAuthentication() throws {
        let upstream = try StreamOneSamples.upstream()
        #expect(try upstream.call("item/view", by: StreamOneSDK(psk: "wrong"), harness).status == 3)
        #expect(
            try upstream.call("item/view", by: StreamOneSDK(session: ("Another", "guessed")), harness).status == 282)
        #expect(try upstream.call("item/view", harness) { $0.body = "a" }.status == 6)
        #expect(harness.refusals.withLock { $0 } == 3)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        #expect(try upstream.call("item/view", harness).status == 0)
        #expect(try upstream.call("item/View", harness).status == 5)
        #expect(harness.refusals.withLock { $0 } == 3)
    }

    /// Every client can sign with an empty key.
    @Test func gatewayWithoutCredentials_refusesEveryCaller() throws {
        for settings in [["psk": SettingValue.text("")], ["id": .text("")]] {
            let sdk = StreamOneSDK(
                actor: StreamOneActor(kind: .application, id: settings["id"] == nil ? "9yC-4pQxT_2a" : ""), psk: "")
            let reply = try StreamOneSamples.upstream(settings).call("item/view", by: sdk, harness)
            #expect(reply.status == 1)
        }
        #expect(transport.requests.isEmpty)
    }

    @Test(arguments: [
        TransferResult.refusedConnection, .reset, .status(503), .status(200, "<html>"), .status(200),
        .failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "late")),
    ])
    func platformAway_isItsInternalError(result: TransferResult) throws {
        transport.answerAll { _ in result }
        let upstream = try StreamOneSamples.upstream()
        for action in ["item/view", "item/edit", "session/initialize"] {
            #expect(try upstream.call(action, harness).status == 1)
        }
    }

    @Test func pausedActor_isRefusedAsThePlatformWould_withoutAsking() throws {
        for status in [3, 8] {
            let upstream = try StreamOneSamples.upstream()
            transport.answerAll { _ in .status(200, StreamOneSamples.answer(status)) }
            #expect(try upstream.call("item/edit", harness).json?.text == StreamOneSamples.answer(status))
            let sent = transport.requests.count
            #expect(try upstream.call("item/edit", harness).status == status)
            #expect(transport.requests.count == sent)
        }
    }

    // MARK: Cache

    @Test func read_isCached_forAllDoors() throws {
        transport.answerAll { [kept] _ in .status(200, kept) }
        let upstream = try StreamOneSamples.upstream()
        #expect(try upstream.call("item/view", with: [("a", "1"), ("b", "2")], harness).cache == "miss")
        harness.clock.advance(by: .seconds(5))
        let hit = try upstream.call("item/view", with: [("b", "2"), ("a", "1")], harness)
        #expect(hit.json?.headers == ["X-Cache": "hit", "Age": "5"])
        #expect(hit.json?.text == kept)
        let proxied = try upstream.ask(.post, "proxy/item/view", body: #"{"a":1,"b":2}"#, harness)
        #expect(proxied.cache == "hit")
        #expect(
            try upstream.call("item/view", with: [("a", "1"), ("b", "2")], by: StreamOneSDK(psk: "wrong"), harness)
                .status
                == 3)
        #expect(try upstream.call("item/edit", harness).cache == "miss")
        #expect(try upstream.call("item/view", with: [("a", "1"), ("b", "2")], harness).cache == "miss")
    }

    @Test func cache_isEachUsersOwn() throws {
        let upstream = try StreamOneSamples.upstream()
        let sessions = try [("S1", "Ann"), ("S2", "Ben"), ("S3", "Ann")].map { try begin(upstream, $0.0, user: $0.1) }
        transport.answerAll { request in
            .status(
                200,
                StreamOneSamples.answer(
                    cacheable: true, timeout: 3600,
                    body: "\"\(SentCall(request).parameters["session"] ?? "none")\""))
        }
        func seen(_ sdk: StreamOneSDK) throws -> String {
            let text = try #require(try upstream.call("user/viewme", by: sdk, harness).json?.text)
            return String(try #require(text.split(separator: "\"").dropLast(0).last { $0 != "}" }))
        }
        #expect(try seen(sessions[0]) == "S1")
        #expect(try seen(sessions[1]) == "S2")
        #expect(try seen(StreamOneSDK()) == "none")
        #expect(try seen(sessions[2]) == "S1", "the same user's")
        #expect(
            transport.requests.suffix(3).count == 3 && harness.calls.filter { $0.path == "api/user/viewme" }.count == 3)
        // A cached response contains the remaining time of the caller's session.
        harness.clock.advance(by: .seconds(50))
        let hit = try upstream.call("user/viewme", by: sessions[2], harness)
        #expect(hit.cache == "hit")
        #expect(hit.json?.text.contains(#""sessiontimeout":3550,"#) == true)
    }

    // MARK: Sessions

    /// Logs in through the endpoint. Returns the SDK with that session.
    private func begin(
        _ upstream: StreamOneUpstream, _ id: String = StreamOneVectors.session.id, user: String = "QIpMpsuPCBKn"
    ) throws -> StreamOneSDK {
        let created = StreamOneSamples.created(id, key: "key of \(id)", user: user)
        transport.expect(.status(200, created))
        let reply = try upstream.call("session/create", with: [("challenge", "c"), ("response", "r")], harness)
        #expect(reply.json?.text == created)
        return StreamOneSDK(session: (id, "key of \(id)"))
    }

    @Test func login_isRelayed_untouchedButForItsSignature() throws {
        let upstream = try StreamOneSamples.upstream()
        transport.expect(
            .status(200, StreamOneSamples.initialized), .status(200, StreamOneSamples.created()),
            .status(200, StreamOneSamples.initialized))
        let first = [("user", "jan@example.nl"), ("userip", "10.11.12.13")]
        #expect(
            try upstream.call("session/initialize", with: first, harness).json?.text == StreamOneSamples.initialized)
        let second = [("challenge", "OTzt"), ("response", "RgF+/A=="), ("v2hash", "5f4d")]
        #expect(try upstream.call("session/create", with: second, harness).json?.text == StreamOneSamples.created())
        #expect(try upstream.call("session/initialize", with: first, harness).cache == "miss", "never cached")
        #expect(
            transport.requests.map(\.text)
                == [first, second, first].map(StreamOneSDK.form))
        #expect(harness.calls.allSatisfy { $0.parameters["session"] == nil })
    }

    @Test func session_livesFromItsCreationToItsEnd() throws {
        let upstream = try StreamOneSamples.upstream()
        let sdk = try begin(upstream)
        #expect(harness.state.credentials.keys.map { $0.hasSuffix("/Hz1kPspd2Bk1") } == [true])
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(timeout: 1000)) }
        #expect(try upstream.call("item/edit", by: sdk, harness).status == 0)
        #expect(harness.calls.last?.parameters["session"] == "Hz1kPspd2Bk1")
        let request = try #require(transport.requests.last?.url)
        let signed = request.dropFirst("http://api.test".count).split(separator: "&signature=")[0] + "&"
        #expect(request.hasSuffix(StreamOneSDK.signature(of: String(signed), key: sdk.psk + "key of Hz1kPspd2Bk1")))
        var thief = sdk
        thief.session?.key = ""
        #expect(try upstream.call("item/edit", by: thief, harness).status == 282)
        // The next run reads the session and its remaining time from the store.
        harness.clock.advance(by: .seconds(999))
        let next = try StreamOneSamples.upstream()
        #expect(try next.call("item/edit", by: sdk, harness).status == 0)
        harness.clock.advance(by: .seconds(1001))
        let sent = transport.requests.count
        #expect(try next.call("item/edit", by: sdk, harness).status == 282)
        #expect(transport.requests.count == sent)
    }

    @Test(arguments: [
        TransferResult.status(200, StreamOneSamples.answer()), .status(200, StreamOneSamples.answer(1)), .status(500),
        .refusedConnection, .failure(TransferFailure(.timeout, mayHaveArrived: true, detail: "late")),
    ])
    func deletedSession_isOver_whateverThePlatformAnswers(result: TransferResult) throws {
        let upstream = try StreamOneSamples.upstream()
        let sdk = try begin(upstream)
        transport.answerAll { _ in result }
        _ = try upstream.call("session/delete", by: sdk, harness).status
        #expect(harness.calls.last?.path == "api/session/delete")
        #expect(harness.state.credentials.isEmpty)
        #expect(try upstream.call("item/edit", by: sdk, harness).status == 282)
        #expect(try upstream.call("session/delete", by: sdk, harness).status == 282)
    }

    @Test(arguments: [3, 282])
    func sessionThatThePlatformForgot_isOver(status: Int) throws {
        let upstream = try StreamOneSamples.upstream()
        let sdk = try begin(upstream)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(status)) }
        #expect(try upstream.call("item/edit", by: sdk, harness).json?.text == StreamOneSamples.answer(status))
        #expect(try upstream.call("item/edit", by: sdk, harness).status == 282)
    }

    /// Refused, or something that is no session: the SDK sees it as it is.
    @Test(arguments: [
        StreamOneSamples.answer(281), StreamOneSamples.answer(), StreamOneSamples.answer(body: #"{"id":"i"}"#),
    ])
    func loginWithoutASession_isPassedOn(answer: String) throws {
        transport.expect(.status(200, answer))
        let reply = try StreamOneSamples.upstream().call("session/create", with: [("challenge", "c")], harness)
        #expect(reply.json?.text == answer)
        #expect(harness.state.credentials.isEmpty)
    }

    /// A challenge is used once: the SDK has to request another one.
    @Test func secondStepOfALogin_isNotSignedAgain() throws {
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(2)) }
        let upstream = try StreamOneSamples.upstream()
        #expect(
            try upstream.call("session/create", with: [("challenge", "c"), ("response", "r")], harness).status == 2)
        #expect(transport.requests.count == 1)
    }

    /// The platform blocks the address of a client that tries passwords; the second step of a login does not name it.
    @Test func blockedLogin_delaysNoOtherLogin() throws {
        let upstream = try StreamOneSamples.upstream()
        let blocked = TransferResult.status(200, StreamOneSamples.answer(8))
        transport.expect(blocked)
        #expect(
            try upstream.call("session/create", with: [("challenge", "c"), ("response", "r")], harness).status == 8)
        #expect(Pause(in: harness.state) == nil, "nor the queue")
        transport.expect(blocked)
        #expect(
            try upstream.call("session/initialize", with: [("user", "jan"), ("userip", "10.0.0.1")], harness).status
                == 8)
        let sent = transport.requests.count
        #expect(
            try upstream.call("session/initialize", with: [("user", "piet"), ("userip", "10.0.0.1")], harness).status
                == 8
        )
        #expect(transport.requests.count == sent)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        #expect(
            try upstream.call("session/initialize", with: [("user", "piet"), ("userip", "10.0.0.2")], harness).status
                == 0
        )
        #expect(try upstream.call("item/edit", harness).status == 0)
    }
}
