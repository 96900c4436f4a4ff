import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// A token source that reads tokens from the response body: `name:lifetime`, in seconds.
struct PlainTokens: TokenSource {
    var secret = "secret"
    var tokenRequest: UpstreamRequest { UpstreamRequest(url: DeliveryHarness.tokenURL, body: Array(secret.utf8)) }

    func token(from response: UpstreamResponse, now: Timestamp) throws(Token.Failure) -> Token {
        guard response.status == 200 else {
            throw Token.Failure(credentialsRefused: response.status == 401, detail: "HTTP \(response.status)")
        }
        let parts = String(decoding: response.body, as: UTF8.self).split(separator: ":")
        guard parts.count == 2, let lifetime = Int(parts[1]) else {
            throw Token.Failure(credentialsRefused: false, detail: "no token in it")
        }
        let expiresAt = now + .seconds(lifetime)
        return Token(
            value: String(parts[0]), renewAt: expiresAt - .seconds(min(60, lifetime / 10)), expiresAt: expiresAt)
    }
}

/// Reading the store for a claim takes as long as `claimTakes` says.
private struct SlowUpstream: PlainAtHeart, TokenUpstream {
    let clock: SharedValue<ManualTime?>
    let claimTakes: SharedValue<Duration>
    var tokenSource: (any TokenSource)? { PlainTokens() }
    var verifiesAtStart: Bool { false }
    var traits: Traits { Traits() }

    func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits {
        clock.value?.advance(by: claimTakes.value)
        return configured
    }
}

@Suite(.timeLimit(.minutes(10))) struct TokenTests {
    private let harness: DeliveryHarness
    private static let settings = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero)
    }

    init() throws { harness = try DeliveryHarness(PlainUpstream(tokenSource: PlainTokens()), settings: Self.settings) }

    private var tokenRequests: Int { harness.transport.requests.filter { $0.url == DeliveryHarness.tokenURL }.count }
    private var openTokenRequests: Int {
        harness.transport.openRequests.filter { $0.url == DeliveryHarness.tokenURL }.count
    }
    private func answerToken(_ result: TransferResult) throws {
        #expect(harness.transport.answer(result) { $0.url == DeliveryHarness.tokenURL })
        try harness.turn()
    }
    private var tokensUsed: [String] {
        harness.transport.requests.filter { $0.url != DeliveryHarness.tokenURL }.map { $0.headers[0].value }
    }

    @Test func token_isFetched_whenSomethingIsToBeSent_andNotBefore() throws {
        try harness.run(for: .seconds(60))
        #expect(tokenRequests == 0)
        #expect(harness.worker.snapshot.token == .init(isValid: false))
        #expect(harness.worker.snapshot.health == .up)
        try harness.accept(6)
        try harness.turn()
        #expect(tokenRequests == 1)
        #expect(harness.sent.isEmpty)
        try answerToken(.status(200, "a:3600"))
        #expect(tokensUsed == Array(repeating: "Bearer a", count: 4))
        #expect(harness.worker.snapshot.token?.isValid == true)
        #expect(harness.metrics.tokenRefreshes("plain", "fetched").value == 1)
    }

    @Test func token_isFetchedOnce_howeverLongThatTakes() throws {
        try harness.accept(1)
        try harness.run(for: .seconds(30))
        try harness.accept(10)
        try harness.run(for: .seconds(30))
        #expect(tokenRequests == 1)
    }

    @Test func token_isRenewedEarly_whileRequestsGoOutUnderTheOldOne() throws {
        try harness.accept(1)
        try harness.turn()
        try answerToken(.status(200, "a:100"))
        try harness.answer(.status(200))
        harness.time.advance(by: .seconds(91))
        try harness.accept(1)
        try harness.turn()
        #expect(openTokenRequests == 1)
        #expect(tokensUsed == ["Bearer a", "Bearer a"])
        try answerToken(.status(200, "b:100"))
        try harness.accept(1)
        try harness.turn()
        #expect(tokensUsed == ["Bearer a", "Bearer a", "Bearer b"])
    }

    @Test func idleUpstream_renewsNothing() throws {
        try harness.accept(1)
        try harness.turn()
        try answerToken(.status(200, "a:100"))
        try harness.answer(.status(200))
        try harness.run(for: .seconds(3600))
        #expect(tokenRequests == 1)
    }

    @Test func expiredToken_isNotSent() throws {
        try harness.accept(1)
        try harness.turn()
        try answerToken(.status(200, "a:100"))
        try harness.answer(.status(200))
        harness.time.advance(by: .seconds(101))
        try harness.accept(1)
        try harness.turn()
        #expect(tokensUsed == ["Bearer a"])
        try answerToken(.status(200, "b:100"))
        #expect(tokensUsed == ["Bearer a", "Bearer b"])
    }

    @Test func failedRenewal_leavesTheOldToken_untilItExpires() throws {
        try harness.accept(1)
        try harness.turn()
        try answerToken(.status(200, "a:100"))
        try harness.answer(.status(200))
        harness.time.advance(by: .seconds(91))
        harness.transport.answerAll { $0.url == DeliveryHarness.tokenURL ? .status(503) : .status(200) }
        try harness.accept(3)
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.delivered == 4)
        #expect(harness.worker.snapshot.health == .degraded)
        harness.time.advance(by: .seconds(10))
        try harness.accept(1)
        try harness.run(for: .seconds(60))
        #expect(harness.ledger.queued == 1)
        #expect(harness.worker.snapshot.health == .down)
    }

    @Test func tokenThatIsOldOnArrival_isTried_withoutFetchingWithoutEnd() throws {
        harness.transport.answerAll { $0.url == DeliveryHarness.tokenURL ? .status(200, "a:-500") : .status(200) }
        try harness.accept(20)
        try harness.run(for: .seconds(1))
        #expect(harness.ledger.delivered == 20)
        #expect(tokenRequests == 1)
    }

    @Test func refusedToken_isRenewedOnce_andAllGoAgain() throws {
        let ids = try harness.accept(4)
        try harness.turn()
        try answerToken(.status(200, "a:3600"))
        for _ in 1...4 { try harness.answer(.status(401)) }
        #expect(tokenRequests == 2)
        try answerToken(.status(200, "b:3600"))
        for _ in 1...4 { try harness.answer(.status(200)) }
        #expect(tokensUsed == Array(repeating: "Bearer a", count: 4) + Array(repeating: "Bearer b", count: 4))
        #expect(try ids.map(harness.record).map(\.attempts) == [1, 1, 1, 1])
        #expect(harness.worker.snapshot.health == .up)
    }

    @Test func secondRefusal_holdsTheUpstream_andFailsNoMessage() throws {
        let ids = try harness.accept(4)
        harness.transport.answerAll { $0.url == DeliveryHarness.tokenURL ? .status(200, "a:3600") : .status(401) }
        try harness.run(for: .seconds(60))
        #expect(harness.worker.snapshot.health == .unauthorized)
        #expect(harness.worker.snapshot.hold == .credentials)
        #expect(harness.worker.snapshot.token?.isValid == false)
        // Each message with the first token and with a new one; no other message is there to probe.
        #expect(harness.sent.count == 8)
        #expect(tokenRequests == 2)
        try harness.run(for: .seconds(3600))
        // A hold has eight probes that may follow soon, and six with pauses that double, up to 256 s. The others are 300 s
        // apart with this draw, ten in the rest of the hour. Those of the first two minutes share a token.
        #expect(harness.sent.count <= 8 + 8 + 6 + 10)
        #expect(tokenRequests <= 2 + 3 + 10)
        let (sent, tokens) = (harness.sent.count, tokenRequests)
        try harness.run(for: .seconds(3600))
        #expect(harness.sent.count - sent <= 12)
        #expect(tokenRequests - tokens <= 12)
        let records = try ids.map(harness.record)
        #expect(records.allSatisfy { $0.state == .queued && $0.attempts == 0 })
        harness.transport.answerAll { $0.url == DeliveryHarness.tokenURL ? .status(200, "b:3600") : .status(200) }
        try harness.run(for: .seconds(310))
        #expect(harness.ledger.delivered == 4)
        #expect(harness.worker.snapshot.health == .up)
        #expect(harness.worker.snapshot.hold == nil)
    }

    @Test func refusalLongAfterASuccess_isAStaleToken_notBadCredentials() throws {
        try harness.accept(1)
        try harness.turn()
        try answerToken(.status(200, "a:3600"))
        try harness.answer(.status(401))
        try answerToken(.status(200, "b:3600"))
        try harness.answer(.status(200))
        try harness.accept(1)
        try harness.turn()
        try harness.answer(.status(401))
        #expect(harness.worker.snapshot.hold == nil)
        #expect(openTokenRequests == 1)
    }

    @Test(arguments: ["refused", "503", "junk"]) func tokenEndpointDown_makesMessagesWait(how: String) throws {
        let result: TransferResult =
            switch how {
            case "refused": .refusedConnection
            case "503": .status(503)
            default: .status(200, "<html>")
            }
        harness.transport.answerAll { _ in result }
        let ids = try harness.accept(3)
        try harness.run(for: .seconds(3600))
        #expect(harness.sent.isEmpty)
        #expect(tokenRequests < 30)
        #expect(harness.worker.snapshot.health == .down)
        #expect(harness.worker.snapshot.lastError?.detail.hasPrefix("no token: ") == true)
        #expect(try ids.map(harness.record).map(\.attempts) == [0, 0, 0])
        harness.transport.answerAll { $0.url == DeliveryHarness.tokenURL ? .status(200, "a:3600") : .status(200) }
        try harness.run(for: .seconds(301))
        #expect(harness.ledger.delivered == 3)
        #expect(harness.worker.snapshot.health == .up)
    }

    @Test func tokenEndpointsRetryAfter_isObeyed() throws {
        harness.transport.expect(.status(503, headers: [("Retry-After", "120")]))
        try harness.accept(1)
        try harness.run(for: .seconds(119))
        #expect(tokenRequests == 1)
        try harness.run(for: .seconds(2))
        #expect(tokenRequests == 2)
    }

    @Test func refusedCredentials_areTriedSlowly_untilOthersAreConfigured() throws {
        harness.transport.answerAll { request in
            guard request.url == DeliveryHarness.tokenURL else { return .status(200) }
            return request.text == "right" ? .status(200, "a:3600") : .status(401)
        }
        try harness.accept(3)
        try harness.run(for: .seconds(3600))
        #expect(tokenRequests <= 14)
        #expect(harness.worker.snapshot.health == .unauthorized)
        harness.worker.apply(Self.settings, upstream: PlainUpstream(tokenSource: PlainTokens(secret: "right")))
        try harness.turn()
        #expect(harness.ledger.delivered == 3)
        #expect(harness.worker.snapshot.health == .up)
    }

    @Test func tokenOfFormerCredentials_isIgnored_whenItComesLate() throws {
        try harness.accept(1)
        try harness.turn()
        harness.worker.apply(Self.settings, upstream: PlainUpstream(tokenSource: PlainTokens(secret: "new")))
        try harness.turn()
        #expect(openTokenRequests == 2)
        try answerToken(.status(200, "former:3600"))
        #expect(harness.sent.isEmpty)
        try answerToken(.status(200, "new:3600"))
        #expect(tokensUsed == ["Bearer new"])
    }

    @Test func outage_asksForNoTokens() throws {
        harness.transport.answerAll { $0.url == DeliveryHarness.tokenURL ? .status(200, "a:2") : .refusedConnection }
        try harness.accept(10)
        try harness.run(for: .seconds(3600))
        #expect(tokenRequests <= harness.sent.count)
    }

    @Test func message_wakesTheWorker_afterAReloadThatFoundNothingQueued() throws {
        let upstream = SlowUpstream(clock: SharedValue(nil), claimTakes: SharedValue(.zero))
        let harness = try DeliveryHarness(upstream, settings: Self.settings)
        try harness.accept(1, lane: .named("a"))
        try harness.turn()
        #expect(harness.transport.answer(.status(200, "a:3600")) { $0.url == DeliveryHarness.tokenURL })
        try harness.turn()
        try harness.answer(.status(200))
        harness.worker.apply(Self.settings, upstream: upstream)
        try harness.turn()
        let wasWoken = SharedValue(false)
        harness.queue.onArrival(limits: harness.queue.target.limits) { wasWoken.set(true) }
        harness.time.advance(by: .seconds(1))
        try harness.accept(1, lane: .named("a"))
        #expect(wasWoken.value)
    }

    /// Such a request would be sent without a token.
    @Test func batch_waitsForANewToken_whenTheTokenExpiresDuringItsClaim() throws {
        let upstream = SlowUpstream(clock: SharedValue(nil), claimTakes: SharedValue(.zero))
        let harness = try DeliveryHarness(upstream, settings: Self.settings)
        upstream.clock.set(harness.time)
        func tokens() -> [String] {
            harness.transport.requests.filter { $0.url != DeliveryHarness.tokenURL }.map {
                $0.headers.first?.value ?? "none"
            }
        }
        try harness.accept(1, lane: .named("a"))
        try harness.turn()
        upstream.claimTakes.set(.seconds(11))
        #expect(harness.transport.answer(.status(200, "a:10")) { $0.url == DeliveryHarness.tokenURL })
        try harness.turn()
        #expect(tokens().isEmpty)
        try harness.turn()
        upstream.claimTakes.set(.zero)
        #expect(harness.transport.answer(.status(200, "b:10")) { $0.url == DeliveryHarness.tokenURL })
        try harness.turn()
        #expect(tokens() == ["Bearer b"])
    }
}
