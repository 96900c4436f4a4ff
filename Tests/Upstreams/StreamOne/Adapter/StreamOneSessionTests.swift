import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import StreamOneAdapter
@testable import StreamOneClient

/// Logging in, using a session and logging out (the specification's section 5).
@Suite(.timeLimit(.minutes(10))) struct StreamOneSessionTests {
    private let harness = StreamOneHarness()
    private var transport: ScriptedTransport { harness.transport }
    private let credentials = #"{"username":"jan@example.nl","password":"password","userip":"10.11.12.13"}"#

    private func login(_ upstream: StreamOneUpstream, _ results: TransferResult...) throws -> StreamOneReply {
        for result in results { transport.expect(result) }
        let reply = try upstream.ask(.post, "sessions", body: credentials, harness)
        try reply.wait()
        return reply
    }

    private func initialized(needsHash: Bool = false, salt: String = "$2y$12$gmdjitkypwyd4d1mkeefiv") -> TransferResult
    {
        .status(
            200,
            StreamOneSamples.answer(
                body:
                    #"{"challenge":"EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp","salt":"\#(salt)","needsv2hash":\#(needsHash)}"#))
    }

    @Test func login_answersTheChallenge() throws {
        let upstream = try StreamOneSamples.upstream()
        let reply = try login(upstream, initialized(), .status(200, StreamOneSamples.created()))
        let shown = try #require(reply.json)
        #expect(shown.status == 201)
        #expect(shown.text == #"{"id":"Hz1kPspd2Bk1","user":"QIpMpsuPCBKn","expiresAt":"2015-12-13T10:46:40.000Z"}"#)
        let calls = harness.calls
        #expect(calls.map(\.path) == ["api/session/initialize", "api/session/create"])
        #expect(calls[0].arguments == ["user": "jan@example.nl", "userip": "10.11.12.13"])
        #expect(
            calls[1].arguments == [
                "challenge": "EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp",
                "response": "RgFOFwNQQAVeXFtbElkfQRVLVVZUBwtdV1YDWkQoDUsYRC4PDAASUyt+PRoVW2ADYV5hDA4rF1hcUFUU",
            ])
        #expect(calls.allSatisfy { $0.parameters["session"] == nil })
        #expect(harness.state.values.isEmpty)
        #expect(!shown.text.contains("SQKEyak6R2BcwH3qnTakY50SKeABxXcg"), "the key stays here")
    }

    @Test func oldHash_isSent_onlyWhenAskedFor() throws {
        let upstream = try StreamOneSamples.upstream()
        _ = try login(
            upstream, initialized(needsHash: true, salt: "$2y$04$gmdjitkypwyd4d1mkeefiv"),
            .status(200, StreamOneSamples.created()))
        #expect(harness.calls.last?.arguments["v2hash"] == "5f4dcc3b5aa765d61d8327deb882cf99")
        // Asked for only afterwards, by status 280: from the start, once.
        let quick = initialized(salt: "$2y$04$gmdjitkypwyd4d1mkeefiv")
        let refused = TransferResult.status(200, StreamOneSamples.answer(280))
        #expect(try login(upstream, quick, refused, quick, .status(200, StreamOneSamples.created())).json != nil)
        #expect(harness.calls.suffix(4).map { $0.arguments["v2hash"] != nil } == [false, false, false, true])
        #expect(try login(upstream, quick, refused, quick, refused).problem?.status == 401)
    }

    @Test(arguments: [
        (281, 401, "unauthorized"), (282, 401, "unauthorized"), (8, 429, "rate-limited"), (3, 502, "delivery-failed"),
        (4, 502, "delivery-failed"), (6, 502, "delivery-failed"), (1, 502, "delivery-failed"),
        (10, 502, "delivery-failed"), (9999, 502, "delivery-failed"),
    ])
    func refusedLogin_isReportedToTheCaller_andNotRepeated(number: Int, status: Int, slug: String) throws {
        for step in 0..<2 {
            let upstream = try StreamOneSamples.upstream()
            let sent = transport.requests.count
            let refusal = TransferResult.status(200, StreamOneSamples.answer(number))
            let quick = initialized(salt: "$2y$04$gmdjitkypwyd4d1mkeefiv")
            let reply = step == 0 ? try login(upstream, refusal) : try login(upstream, quick, refusal)
            let problem = try #require(reply.problem)
            #expect(problem.status == status && problem.slug == slug)
            #expect(!problem.detail.contains("password"))
            #expect(transport.requests.count == sent + step + 1)
        }
    }

    /// A challenge is used once, so both steps are repeated, once.
    @Test func loginWithAWrongTimestamp_startsAgain_withAnotherChallenge() throws {
        let upstream = try StreamOneSamples.upstream()
        let quick = initialized(salt: "$2y$04$gmdjitkypwyd4d1mkeefiv")
        let refused = TransferResult.status(200, StreamOneSamples.answer(2))
        let reply = try login(upstream, quick, refused, quick, .status(200, StreamOneSamples.created()))
        #expect(reply.json?.status == 201)
        let steps = ["api/session/initialize", "api/session/create"]
        #expect(harness.calls.map(\.path) == steps + steps)
        #expect(try login(upstream, quick, refused, quick, refused).problem?.status == 502)
        #expect(harness.calls.map(\.path) == steps + steps + steps + steps)
    }

    @Test func blockedAddress_isNotTriedAgain_othersAre() throws {
        let upstream = try StreamOneSamples.upstream()
        _ = try login(upstream, .status(200, StreamOneSamples.answer(8)))
        let sent = transport.requests.count
        #expect(try login(upstream).problem?.status == 429)
        #expect(transport.requests.count == sent)
        _ = try StreamOneSamples.login(upstream, harness)
        harness.clock.advance(by: .seconds(60))
        _ = try login(
            upstream, initialized(salt: "$2y$04$gmdjitkypwyd4d1mkeefiv"), .status(200, StreamOneSamples.created()))
    }

    /// What is blocked is the address, which the second step does not name.
    @Test func blockedSecondStep_holdsTheAddressOnly() throws {
        let upstream = try StreamOneSamples.upstream()
        let quick = initialized(salt: "$2y$04$gmdjitkypwyd4d1mkeefiv")
        _ = try login(upstream, quick, .status(200, StreamOneSamples.answer(8)))
        #expect(Pause(in: harness.state) == nil, "nor does the queue wait")
        #expect(try login(upstream).problem?.status == 429)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        #expect(try upstream.ask(.post, "proxy/item/edit", harness).json != nil)
    }

    @Test(arguments: [
        #"{"challenge":"c","salt":"*0","needsv2hash":false}"#, #"{"challenge":"c","needsv2hash":false}"#, "null", "[]",
        #"{"challenge":5,"salt":"$2y$12$gmdjitkypwyd4d1mkeefiv"}"#,
    ])
    func unusableChallenge_endsTheLogin(body: String) throws {
        let reply = try login(StreamOneSamples.upstream(), .status(200, StreamOneSamples.answer(body: body)))
        #expect(reply.problem?.status == 502)
        #expect(transport.requests.count == 1)
    }

    @Test(arguments: ["null", #"{"id":"i","key":"k","user":"u"}"#, #"{"id":"","key":"k","user":"u","timeout":1}"#])
    func unusableSession_endsTheLogin(body: String) throws {
        let quick = initialized(salt: "$2y$04$gmdjitkypwyd4d1mkeefiv")
        let reply = try login(StreamOneSamples.upstream(), quick, .status(200, StreamOneSamples.answer(body: body)))
        #expect(reply.problem?.status == 502)
    }

    @Test func badCredentials_areRefused_withoutAsking() throws {
        let upstream = try StreamOneSamples.upstream()
        let bad: [(String, [String])] = [
            ("{}", ["/username", "/password", "/userip"]), ("[]", [""]),
            (#"{"username":"","password":7,"userip":"x"}"#, ["/username", "/password"]),
        ]
        for (body, pointers) in bad {
            let reply = try upstream.ask(.post, "sessions", body: body, harness)
            guard case .problem(.invalidPayload, 422, _, let faults)? = reply.answer else {
                Issue.record("\(body) was taken")
                continue
            }
            #expect(faults.kept.map(\.pointer) == pointers)
        }
        let user = try StreamOneSamples.upstream(["authenticationType": .text("user")])
        #expect(try user.ask(.post, "sessions", body: credentials, harness).problem?.slug == "conflict")
        #expect(transport.requests.isEmpty)
    }

    // MARK: A new password

    @Test func newPassword_isHashedWithTheUsersSalt() throws {
        let upstream = try StreamOneSamples.upstream()
        transport.expect(initialized())
        let reply = try upstream.ask(.post, "passwords", body: credentials, harness)
        try reply.wait()
        #expect(
            reply.json?.text
                == #"{"hash":"4de314adce7b776266d55663fcff376415f776a3623bf0f28d693b5f706061cf"}"#)
        #expect(harness.calls.map(\.path) == ["api/session/initialize"])
        #expect(harness.calls[0].arguments == ["user": "jan@example.nl", "userip": "10.11.12.13"])
        #expect(harness.state.values.isEmpty)
    }

    @Test func newPassword_isRefused_asALoginIs() throws {
        let upstream = try StreamOneSamples.upstream()
        #expect(try upstream.ask(.post, "passwords", body: "{}", harness).problem?.status == 422)
        for (outcome, status) in [
            (initialized(salt: "*0"), 502), (.status(200, StreamOneSamples.answer(8)), 429),
            (initialized(), 429),
        ] {
            transport.expect(outcome)
            let reply = try upstream.ask(.post, "passwords", body: credentials, harness)
            try reply.wait()
            #expect(reply.problem?.status == status)
        }
        #expect(transport.requests.count == 2, "the address is blocked")
        let user = try StreamOneSamples.upstream(["authenticationType": .text("user")])
        #expect(try user.ask(.post, "passwords", body: credentials, harness).problem?.slug == "conflict")
    }

    // MARK: Using

    @Test func session_isShown_untilItEnds() throws {
        let upstream = try StreamOneSamples.upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        let sent = transport.requests.count
        func shown(_ id: String) throws -> String? { try upstream.ask(.get, "sessions/\(id)", harness).json?.text }
        #expect(try shown(session) == #"{"active":true,"expiresAt":"2015-12-13T10:46:40.000Z"}"#)
        #expect(try shown("another") == #"{"active":false,"expiresAt":null}"#)
        harness.clock.advance(by: .seconds(3601))
        #expect(try shown(session) == #"{"active":false,"expiresAt":null}"#)
        #expect(transport.requests.count == sent, "the platform is not asked")
        let user = try StreamOneSamples.upstream(["authenticationType": .text("user")])
        #expect(try user.ask(.get, "sessions/\(session)", harness).problem?.slug == "conflict")
    }

    @Test func callInASession_isSignedWithBothKeys() throws {
        let upstream = try StreamOneSamples.upstream(["defaultAccountId": .text("A4pMV-sKDVEy")])
        let session = try StreamOneSamples.login(upstream, harness)
        transport.expect(.status(200, StreamOneSamples.answer()))
        try upstream.ask(.post, "proxy/item/view", session: session, body: #"{"itemtype":"video"}"#, harness)
        let url = try #require(transport.requests.last?.url)
        // P8 of the specification.
        #expect(url.hasSuffix("&session=Hz1kPspd2Bk1&signature=54eda8dd22660925c196570a1f00da410282bcad"))
    }

    /// Any valid answer of the platform's renews it, a refusal too; a kept one does not.
    @Test func deadline_movesWithTheAnswers() throws {
        let upstream = try StreamOneSamples.upstream(["requestCacheSeconds": .integer(86400)])
        let session = try StreamOneSamples.login(upstream, harness)
        func view(_ result: TransferResult, _ id: Int = 0) throws -> StreamOneReply {
            transport.answerAll { _ in result }
            return try upstream.ask(.post, "proxy/item/view", session: session, body: #"{"id":\#(id)}"#, harness)
        }
        harness.clock.advance(by: .seconds(3000))
        #expect(try view(.status(200, StreamOneSamples.answer(120, timeout: 1000)), 1).json != nil)
        harness.clock.advance(by: .seconds(900))
        let kept = try view(.status(200, StreamOneSamples.answer(cacheable: true, timeout: 500)))
        #expect(kept.json?.text.contains(#""sessiontimeout":500,"#) == true)
        harness.clock.advance(by: .seconds(400))
        let hit = try view(.status(503))
        #expect(hit.json?.headers["X-Cache"] == "hit")
        #expect(hit.json?.text.contains(#""sessiontimeout":100,"#) == true, "what is left by the own deadline")
        harness.clock.advance(by: .seconds(101))
        #expect(try view(.status(503)).problem?.slug == "unknown-session", "a hit is served while the session lives")
    }

    @Test(arguments: [3, 282])
    func deadSession_isForgotten(status: Int) throws {
        let upstream = try StreamOneSamples.upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(status)) }
        let reply = try upstream.ask(.post, "proxy/item/edit", session: session, harness)
        #expect(reply.json?.text == StreamOneSamples.answer(status))
        let sent = transport.requests.count
        #expect(
            try upstream.ask(.post, "proxy/item/edit", session: session, harness).problem?.slug == "unknown-session")
        #expect(transport.requests.count == sent)
        // The application itself is not held for it.
        try upstream.ask(.post, "proxy/item/edit", harness)
        #expect(transport.requests.count > sent)
    }

    @Test(arguments: [TransferResult.status(200, StreamOneSamples.answer()), .status(500), .refusedConnection])
    func logout_forgetsTheSession_whateverTheAnswer(result: TransferResult) throws {
        let upstream = try StreamOneSamples.upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        transport.answerAll { _ in result }
        #expect(try upstream.ask(.delete, "sessions/\(session)", harness).answer == .empty())
        #expect(harness.calls.last?.path == "api/session/delete")
        #expect(harness.calls.last?.parameters["session"] == session)
        #expect(
            try upstream.ask(.post, "proxy/item/view", session: session, harness).problem?.slug == "unknown-session")
        guard case .problem(.notFound, 404, _, _)? = try upstream.ask(.delete, "sessions/\(session)", harness).answer
        else {
            Issue.record("it is still there")
            return
        }
    }

    @Test func logout_isAnswered_onceTheEndIsOnDisk() throws {
        let upstream = try StreamOneSamples.upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        harness.holdChanges()
        let reply = try upstream.ask(.delete, "sessions/\(session)", harness)
        #expect(reply.answer == nil)
        harness.release()
        #expect(reply.answer == .empty())
    }

    @Test func proxiedLogout_forgetsTheSessionToo() throws {
        let upstream = try StreamOneSamples.upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        try upstream.ask(.post, "proxy/session/delete", session: session, harness)
        #expect(
            try upstream.ask(.post, "proxy/item/view", session: session, harness).problem?.slug == "unknown-session")
    }

    // MARK: Keeping

    @Test func session_outlivesTheRun_andItsLogoutToo() throws {
        let session = try StreamOneSamples.login(StreamOneSamples.upstream(), harness)
        let held = try #require(harness.state.credentials.first { $0.key.hasSuffix("/\(session)") }?.value)
        #expect(!"\(held)".contains("SQKEyak6R2BcwH3qnTakY50SKeABxXcg"))
        let next = try StreamOneSamples.upstream(["defaultAccountId": .text("A4pMV-sKDVEy")])
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        try next.ask(.post, "proxy/item/view", session: session, body: #"{"itemtype":"video"}"#, harness)
        let url = try #require(transport.requests.last?.url)
        #expect(url.hasSuffix("&session=Hz1kPspd2Bk1&signature=54eda8dd22660925c196570a1f00da410282bcad"))
        try next.ask(.delete, "sessions/\(session)", harness)
        #expect(harness.state.credentials.isEmpty)
        let last = try StreamOneSamples.upstream()
        #expect(try last.ask(.post, "proxy/item/view", session: session, harness).problem?.slug == "unknown-session")
    }

    /// Its key belongs to one application at one platform, and is shown to no other.
    @Test(arguments: ["id", "apiUrl"])
    func session_isNotKnown_afterAReloadToAnother(setting: String) throws {
        let session = try StreamOneSamples.login(StreamOneSamples.upstream(), harness)
        let other = try StreamOneSamples.upstream([setting: .text(setting == "id" ? "other" : "http://other.test")])
        let sent = transport.requests.count
        #expect(try other.ask(.post, "proxy/item/view", session: session, harness).problem?.slug == "unknown-session")
        #expect(transport.requests.count == sent)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        #expect(try StreamOneSamples.upstream().ask(.post, "proxy/item/view", session: session, harness).json != nil)
    }

    @Test func blockedSession_delaysNoOtherSession() throws {
        let upstream = try StreamOneSamples.upstream()
        let blocked = try StreamOneSamples.login(upstream, harness, id: "S1")
        let other = try StreamOneSamples.login(upstream, harness, id: "S2")
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(8)) }
        #expect(try upstream.ask(.post, "proxy/item/edit", session: blocked, harness).json != nil)
        let sent = transport.requests.count
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        #expect(try upstream.ask(.post, "proxy/item/edit", session: blocked, harness).problem?.status == 429)
        #expect(transport.requests.count == sent)
        #expect(try upstream.ask(.post, "proxy/item/edit", session: other, harness).json != nil)
        #expect(try upstream.ask(.post, "proxy/item/edit", harness).json != nil)
        harness.clock.advance(by: .seconds(61))
        #expect(try upstream.ask(.post, "proxy/item/edit", session: blocked, harness).json != nil)
    }

    /// Those behind it get its turn at the processor.
    @Test func login_isNotHashed_onceItsTimeIsOver() throws {
        let clock = harness.clock
        transport.answerAll { _ in
            clock.advance(by: .seconds(2))
            return .status(200, StreamOneSamples.initialized)
        }
        let reply = try StreamOneSamples.upstream().ask(
            .post, "sessions", headers: [("Prefer", "wait=1")], body: credentials, harness)
        try reply.wait()
        #expect(reply.problem?.status == 504)
        #expect(harness.calls.map(\.path) == ["api/session/initialize"])
    }

    @Test func deadline_isWrittenDown_whenItMovesByAMinute() throws {
        let upstream = try StreamOneSamples.upstream()
        let session = try StreamOneSamples.login(upstream, harness)
        transport.answerAll { _ in .status(200, StreamOneSamples.answer(timeout: 3600)) }
        let before = harness.writes.withLock { $0 }
        for _ in 0..<120 {
            harness.clock.advance(by: .seconds(1))
            try upstream.ask(.post, "proxy/item/edit", session: session, harness)
        }
        #expect(harness.writes.withLock { $0 } == before + 2)
        #expect(harness.state.credentials.values.first?.expiresAt == harness.clock.now + .seconds(3600))
        // The deadline of the previous run still applies, so the session has expired.
        harness.clock.advance(by: .seconds(3601))
        let next = try StreamOneSamples.upstream()
        #expect(try next.ask(.post, "proxy/item/view", session: session, harness).problem?.slug == "unknown-session")
        #expect(harness.state.credentials.isEmpty)
    }

    /// Else it would come back to life: with every lookup that had begun before.
    @Test func sessionThatEndsWhileItIsLookedUp_staysEnded() async throws {
        let session = Session(id: "S1", key: "k", user: "u", deadline: harness.clock.now + .seconds(60))
        let platform = StreamOnePlatform(
            base: try BaseURL("http://api.test"), actor: StreamOneActor(kind: .application, id: "a"), psk: "p",
            defaultAccount: nil)
        await Sessions(of: platform).add(session, harness)
        let sessions = Sessions(of: platform)
        harness.whileReading.withLock { $0 = { await sessions.forget("S1", $0) } }
        #expect(try await sessions.find("S1", harness) == nil)
        harness.whileReading.withLock { $0 = nil }
        #expect(try await sessions.find("S1", harness) == nil)
    }

    /// A store that cannot be read is not a session that has ended.
    @Test func unreadableStore_isAnError_andNoMissingSession() throws {
        let session = try StreamOneSamples.login(StreamOneSamples.upstream(), harness)
        harness.isUnreadable.withLock { $0 = true }
        let next = try StreamOneSamples.upstream()
        #expect(try next.ask(.post, "proxy/item/view", session: session, harness).problem?.slug == "internal")
        #expect(try next.ask(.delete, "sessions/\(session)", harness).problem?.slug == "internal")
        harness.isUnreadable.withLock { $0 = false }
        transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        #expect(try next.ask(.post, "proxy/item/view", session: session, harness).json != nil)
    }

    /// The others get its turn at the processor, and the platform is not asked for a session without an owner.
    @Test func login_endsBetweenItsSteps_onceItsCallerHasLeft() throws {
        let reply = try StreamOneSamples.upstream().ask(.post, "sessions", body: credentials, harness)
        reply.hangUp()
        #expect(transport.openRequests.count == 1, "a step that was sent runs to its end")
        transport.answer(.status(200, StreamOneSamples.initialized))
        try reply.wait()
        #expect(harness.calls.map(\.path) == ["api/session/initialize"])
    }
}
