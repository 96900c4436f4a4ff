import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

/// Tokens are what the answer's body says; `name:lifetime` in seconds.
private struct PlainTokens: TokenSource {
    var secret = "secret"
    var tokenRequest: UpstreamRequest { UpstreamRequest(url: DeliveryBench.tokenURL, body: Array(secret.utf8)) }

    func token(from response: UpstreamResponse, now: Timestamp) throws(TokenRefusal) -> Token {
        guard response.status == 200 else {
            throw TokenRefusal(credentialsRefused: response.status == 401, detail: "HTTP \(response.status)")
        }
        let parts = String(decoding: response.body, as: UTF8.self).split(separator: ":")
        guard parts.count == 2, let lifetime = Int(parts[1]) else {
            throw TokenRefusal(credentialsRefused: false, detail: "no token in it")
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
    var laneRule: LaneRule { .separate }

    func limits(_ configured: BatchLimits, ofLane name: String) -> BatchLimits {
        clock.value?.advance(by: claimTakes.value)
        return configured
    }
}

@Suite(.timeLimit(.minutes(10))) struct TokenTests {
    private let bench: DeliveryBench
    private static let settings = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero)
    }

    init() throws { bench = try DeliveryBench(PlainUpstream(tokenSource: PlainTokens()), settings: Self.settings) }

    private var tokenRequests: Int { bench.transport.requests.filter { $0.url == DeliveryBench.tokenURL }.count }
    private var openTokenRequests: Int {
        bench.transport.openRequests.filter { $0.url == DeliveryBench.tokenURL }.count
    }
    private func answerToken(_ outcome: TransferResult) throws {
        #expect(bench.transport.answer(outcome) { $0.url == DeliveryBench.tokenURL })
        try bench.turn()
    }
    private var tokensUsed: [String] {
        bench.transport.requests.filter { $0.url != DeliveryBench.tokenURL }.map { $0.headers[0].value }
    }

    @Test func token_isFetched_whenSomethingIsToBeSent_andNotBefore() throws {
        try bench.run(for: .seconds(60))
        #expect(tokenRequests == 0)
        #expect(bench.worker.snapshot.token == .init(isValid: false))
        #expect(bench.worker.snapshot.health == .up)
        try bench.accept(6)
        try bench.turn()
        #expect(tokenRequests == 1)
        #expect(bench.sent.isEmpty)
        try answerToken(.status(200, "a:3600"))
        #expect(tokensUsed == Array(repeating: "Bearer a", count: 4))
        #expect(bench.worker.snapshot.token?.isValid == true)
        #expect(bench.metrics.tokenRefreshes("plain", "fetched").value == 1)
    }

    @Test func token_isFetchedOnce_howeverLongThatTakes() throws {
        try bench.accept(1)
        try bench.run(for: .seconds(30))
        try bench.accept(10)
        try bench.run(for: .seconds(30))
        #expect(tokenRequests == 1)
    }

    @Test func token_isRenewedEarly_whileRequestsGoOutUnderTheOldOne() throws {
        try bench.accept(1)
        try bench.turn()
        try answerToken(.status(200, "a:100"))
        try bench.answer(.status(200))
        bench.time.advance(by: .seconds(91))
        try bench.accept(1)
        try bench.turn()
        #expect(openTokenRequests == 1)
        #expect(tokensUsed == ["Bearer a", "Bearer a"])
        try answerToken(.status(200, "b:100"))
        try bench.accept(1)
        try bench.turn()
        #expect(tokensUsed == ["Bearer a", "Bearer a", "Bearer b"])
    }

    @Test func idleUpstream_renewsNothing() throws {
        try bench.accept(1)
        try bench.turn()
        try answerToken(.status(200, "a:100"))
        try bench.answer(.status(200))
        try bench.run(for: .seconds(3600))
        #expect(tokenRequests == 1)
    }

    @Test func expiredToken_isNotSent() throws {
        try bench.accept(1)
        try bench.turn()
        try answerToken(.status(200, "a:100"))
        try bench.answer(.status(200))
        bench.time.advance(by: .seconds(101))
        try bench.accept(1)
        try bench.turn()
        #expect(tokensUsed == ["Bearer a"])
        try answerToken(.status(200, "b:100"))
        #expect(tokensUsed == ["Bearer a", "Bearer b"])
    }

    @Test func failedRenewal_leavesTheOldToken_untilItExpires() throws {
        try bench.accept(1)
        try bench.turn()
        try answerToken(.status(200, "a:100"))
        try bench.answer(.status(200))
        bench.time.advance(by: .seconds(91))
        bench.transport.answerAll { $0.url == DeliveryBench.tokenURL ? .status(503) : .status(200) }
        try bench.accept(3)
        try bench.run(for: .seconds(1))
        #expect(bench.ledger.delivered == 4)
        #expect(bench.worker.snapshot.health == .degraded)
        bench.time.advance(by: .seconds(10))
        try bench.accept(1)
        try bench.run(for: .seconds(60))
        #expect(bench.ledger.queued == 1)
        #expect(bench.worker.snapshot.health == .down)
    }

    @Test func tokenThatIsOldOnArrival_isTried_withoutFetchingWithoutEnd() throws {
        bench.transport.answerAll { $0.url == DeliveryBench.tokenURL ? .status(200, "a:-500") : .status(200) }
        try bench.accept(20)
        try bench.run(for: .seconds(1))
        #expect(bench.ledger.delivered == 20)
        #expect(tokenRequests == 1)
    }

    @Test func refusedToken_isRenewedOnce_andAllGoAgain() throws {
        let ids = try bench.accept(4)
        try bench.turn()
        try answerToken(.status(200, "a:3600"))
        for _ in 1...4 { try bench.answer(.status(401)) }
        #expect(tokenRequests == 2)
        try answerToken(.status(200, "b:3600"))
        for _ in 1...4 { try bench.answer(.status(200)) }
        #expect(tokensUsed == Array(repeating: "Bearer a", count: 4) + Array(repeating: "Bearer b", count: 4))
        #expect(try ids.map(bench.record).map(\.attempts) == [1, 1, 1, 1])
        #expect(bench.worker.snapshot.health == .up)
    }

    @Test func secondRefusal_meansBadCredentials_slowProbes_andNobodyIsBlamed() throws {
        let ids = try bench.accept(4)
        bench.transport.answerAll { $0.url == DeliveryBench.tokenURL ? .status(200, "a:3600") : .status(401) }
        try bench.run(for: .seconds(10))
        #expect(bench.worker.snapshot.health == .unauthorized)
        #expect(bench.worker.snapshot.hold == .credentials)
        let (early, earlyTokens) = (bench.sent.count, tokenRequests)
        #expect(early <= 8)
        try bench.run(for: .seconds(3600))
        // 300 s with this draw: at most twelve probes, each with a token of its own.
        #expect(bench.sent.count - early <= 12)
        #expect(tokenRequests - earlyTokens <= 12)
        let records = try ids.map(bench.record)
        #expect(records.allSatisfy { $0.state == .queued && $0.attempts == 0 })
        bench.transport.answerAll { $0.url == DeliveryBench.tokenURL ? .status(200, "b:3600") : .status(200) }
        try bench.run(for: .seconds(310))
        #expect(bench.ledger.delivered == 4)
        #expect(bench.worker.snapshot.health == .up)
        #expect(bench.worker.snapshot.hold == nil)
    }

    @Test func refusalLongAfterASuccess_isAStaleToken_notBadCredentials() throws {
        try bench.accept(1)
        try bench.turn()
        try answerToken(.status(200, "a:3600"))
        try bench.answer(.status(401))
        try answerToken(.status(200, "b:3600"))
        try bench.answer(.status(200))
        try bench.accept(1)
        try bench.turn()
        try bench.answer(.status(401))
        #expect(bench.worker.snapshot.hold == nil)
        #expect(openTokenRequests == 1)
    }

    @Test(arguments: ["refused", "503", "junk"]) func tokenEndpointDown_makesMessagesWait(how: String) throws {
        let outcome: TransferResult =
            switch how {
            case "refused": .refusedConnection
            case "503": .status(503)
            default: .status(200, "<html>")
            }
        bench.transport.answerAll { _ in outcome }
        let ids = try bench.accept(3)
        try bench.run(for: .seconds(3600))
        #expect(bench.sent.isEmpty)
        #expect(tokenRequests < 30)
        #expect(bench.worker.snapshot.health == .down)
        #expect(bench.worker.snapshot.lastError?.detail.hasPrefix("no token: ") == true)
        #expect(try ids.map(bench.record).map(\.attempts) == [0, 0, 0])
        bench.transport.answerAll { $0.url == DeliveryBench.tokenURL ? .status(200, "a:3600") : .status(200) }
        try bench.run(for: .seconds(301))
        #expect(bench.ledger.delivered == 3)
        #expect(bench.worker.snapshot.health == .up)
    }

    @Test func tokenEndpointsRetryAfter_isObeyed() throws {
        bench.transport.expect(.status(503, headers: [("Retry-After", "120")]))
        try bench.accept(1)
        try bench.run(for: .seconds(119))
        #expect(tokenRequests == 1)
        try bench.run(for: .seconds(2))
        #expect(tokenRequests == 2)
    }

    @Test func refusedCredentials_areTriedSlowly_untilOthersAreConfigured() throws {
        bench.transport.answerAll { request in
            guard request.url == DeliveryBench.tokenURL else { return .status(200) }
            return request.text == "right" ? .status(200, "a:3600") : .status(401)
        }
        try bench.accept(3)
        try bench.run(for: .seconds(3600))
        #expect(tokenRequests <= 14)
        #expect(bench.worker.snapshot.health == .unauthorized)
        bench.worker.adopt(Self.settings, upstream: PlainUpstream(tokenSource: PlainTokens(secret: "right")))
        try bench.turn()
        #expect(bench.ledger.delivered == 3)
        #expect(bench.worker.snapshot.health == .up)
    }

    @Test func tokenOfFormerCredentials_isIgnored_whenItComesLate() throws {
        try bench.accept(1)
        try bench.turn()
        bench.worker.adopt(Self.settings, upstream: PlainUpstream(tokenSource: PlainTokens(secret: "new")))
        try bench.turn()
        #expect(openTokenRequests == 2)
        try answerToken(.status(200, "former:3600"))
        #expect(bench.sent.isEmpty)
        try answerToken(.status(200, "new:3600"))
        #expect(tokensUsed == ["Bearer new"])
    }

    @Test func outage_asksForNoTokens() throws {
        bench.transport.answerAll { $0.url == DeliveryBench.tokenURL ? .status(200, "a:2") : .refusedConnection }
        try bench.accept(10)
        try bench.run(for: .seconds(3600))
        #expect(tokenRequests <= bench.sent.count)
    }

    /// Such a request would leave without a token.
    @Test func batch_waitsForANewToken_whenTheTokenExpiresDuringItsClaim() throws {
        let upstream = SlowUpstream(clock: SharedValue(nil), claimTakes: SharedValue(.zero))
        let bench = try DeliveryBench(upstream, settings: Self.settings)
        upstream.clock.set(bench.time)
        func tokens() -> [String] {
            bench.transport.requests.filter { $0.url != DeliveryBench.tokenURL }.map {
                $0.headers.first?.value ?? "none"
            }
        }
        try bench.accept(1, lane: .named("a"))
        try bench.turn()
        upstream.claimTakes.set(.seconds(11))
        #expect(bench.transport.answer(.status(200, "a:10")) { $0.url == DeliveryBench.tokenURL })
        try bench.turn()
        #expect(tokens().isEmpty)
        try bench.turn()
        upstream.claimTakes.set(.zero)
        #expect(bench.transport.answer(.status(200, "b:10")) { $0.url == DeliveryBench.tokenURL })
        try bench.turn()
        #expect(tokens() == ["Bearer b"])
    }
}
