import InMemoryLogging
import Logging
import PosternCore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternDelivery

/// Credentials that are verified before there is a message.
@Suite(.timeLimit(.minutes(10))) struct VerificationTests {
    private static let settings = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero)
    }

    private func makeHarness(verifies: Bool = true, secret: String = "secret") throws -> DeliveryHarness {
        try DeliveryHarness(upstream(verifies: verifies, secret: secret), settings: Self.settings)
    }

    private func upstream(verifies: Bool = true, secret: String) -> PlainUpstream {
        PlainUpstream(tokenSource: PlainTokens(secret: secret), verifiesAtStart: verifies)
    }

    /// The token endpoint knows the secret `right`; everything else is taken.
    private func takeTheRightSecret(_ harness: DeliveryHarness) {
        harness.transport.answerAll { request in
            guard request.url == DeliveryHarness.tokenURL else { return .status(200) }
            return request.text == "right" ? .status(200, "a:3600") : .status(401)
        }
    }

    private func lines(_ harness: DeliveryHarness, at level: Logger.Level) -> [String] {
        harness.log.entries.filter { $0.level == level }.map(\.message.description)
    }

    @Test func idleUpstream_fetchesATokenAtTheStart_once() throws {
        let harness = try makeHarness()
        #expect(harness.tokenRequests.count == 1)
        harness.transport.answerAll { _ in .status(200, "a:100") }
        #expect(harness.transport.answer(.status(200, "a:100")) { $0.url == DeliveryHarness.tokenURL })
        try harness.run(for: .seconds(3600))
        #expect(harness.tokenRequests.count == 1, "an idle upstream renews nothing")
        #expect(harness.worker.snapshot.health == .up)
        #expect(lines(harness, at: .warning).isEmpty)
    }

    @Test func idleUpstreamWithAWrongSecret_isUnauthorized_withOneWarning_untilAReload() throws {
        let harness = try makeHarness(secret: "wrong")
        #expect(harness.transport.answer(.status(401)) { $0.url == DeliveryHarness.tokenURL })
        takeTheRightSecret(harness)
        try harness.turn()
        #expect(harness.worker.snapshot.health == .unauthorized)
        try harness.run(for: .seconds(3600))
        #expect(harness.worker.snapshot.health == .unauthorized)
        #expect(lines(harness, at: .warning) == ["token fetch failed; no message waits for it"])
        #expect(lines(harness, at: .error).isEmpty)
        // 300 s with this draw.
        #expect((10...14).contains(harness.tokenRequests.count))
        harness.worker.apply(Self.settings, upstream: upstream(secret: "right"))
        try harness.turn()
        #expect(harness.worker.snapshot.health == .up)
        #expect(harness.worker.snapshot.token?.isValid == true)
    }

    /// The credentials were right at the start, and are wrong after a reload.
    @Test func reloadWithAWrongSecret_isSeenWithoutAMessage() throws {
        let harness = try makeHarness(secret: "right")
        #expect(harness.transport.answer(.status(200, "a:3600")) { $0.url == DeliveryHarness.tokenURL })
        takeTheRightSecret(harness)
        try harness.turn()
        #expect(harness.worker.snapshot.health == .up)
        harness.worker.apply(Self.settings, upstream: upstream(secret: "wrong"))
        try harness.turn()
        #expect(harness.worker.snapshot.health == .unauthorized)
    }

    @Test(arguments: ["refused", "503", "junk"])
    func unreachableTokenEndpoint_isDown_withBackoff_andRecoversByItself(how: String) throws {
        let result: TransferResult =
            switch how {
            case "refused": .refusedConnection
            case "503": .status(503)
            default: .status(200, "<html>")
            }
        let harness = try makeHarness()
        #expect(harness.transport.answer(result) { $0.url == DeliveryHarness.tokenURL })
        harness.transport.answerAll { _ in result }
        try harness.turn()
        #expect(harness.worker.snapshot.health == .down)
        try harness.run(for: .seconds(3600))
        #expect((10...25).contains(harness.tokenRequests.count), "1, 2, 4 … 300 s with this draw")
        #expect(lines(harness, at: .warning).count == 1)
        harness.transport.answerAll { _ in .status(200, "a:3600") }
        try harness.run(for: .seconds(301))
        #expect(harness.worker.snapshot.health == .up)
    }

    /// The token endpoint may work although the other endpoints did not in the run before.
    @Test func openCircuit_doesNotDelayTheVerification() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        harness.transport.expect(.status(503, headers: [("Retry-After", "3000")]))
        try harness.accept(1)
        try harness.turn()
        try harness.restart(upstream(secret: "wrong"), settings: Self.settings)
        harness.transport.answerAll { _ in .status(401) }
        try harness.turn()
        #expect(harness.tokenRequests.count == 1)
        #expect(harness.worker.snapshot.health == .unauthorized)
        #expect(lines(harness, at: .error) == ["token fetch failed; messages wait for a token"])
    }

    @Test func messageThatIsHeldByWrongCredentials_isReportedAsAnError_once() throws {
        let harness = try makeHarness(secret: "wrong")
        #expect(harness.transport.answer(.status(401)) { $0.url == DeliveryHarness.tokenURL })
        takeTheRightSecret(harness)
        try harness.run(for: .seconds(10))
        try harness.accept(1)
        try harness.run(for: .seconds(3600))
        #expect(lines(harness, at: .error) == ["token fetch failed; messages wait for a token"])
        #expect(lines(harness, at: .warning) == ["token fetch failed; no message waits for it"])
    }

    @Test func pausedUpstream_isVerified_onceItIsResumed() throws {
        let harness = try makeHarness(verifies: false)
        harness.worker.pause()
        try harness.turn()
        harness.worker.apply(Self.settings, upstream: upstream(secret: "right"))
        try harness.run(for: .seconds(60))
        #expect(harness.tokenRequests.isEmpty)
        harness.worker.resume()
        try harness.turn()
        #expect(harness.tokenRequests.count == 1)
    }

    // MARK: Flushes

    @Test(arguments: [true, false]) func flushOfAnEmptyQueue_fetchesATokenIfThereIsNone(hasToken: Bool) throws {
        let harness = try makeHarness(verifies: hasToken, secret: "right")
        takeTheRightSecret(harness)
        if hasToken {
            #expect(harness.transport.answer(.status(200, "a:3600")) { $0.url == DeliveryHarness.tokenURL })
            try harness.turn()
        }
        let report = try #require(try harness.flush(for: .zero))
        #expect(report.sent == 0 && report.token == .ok && report.error == nil)
        #expect(harness.tokenRequests.count == 1)
    }

    @Test(arguments: [("wrong", TokenCheck.unauthorized), ("right", .unreachable)])
    func flushOfAnEmptyQueue_saysWhyThereIsNoToken(secret: String, check: TokenCheck) throws {
        let harness = try makeHarness(verifies: false, secret: secret)
        takeTheRightSecret(harness)
        if check == .unreachable { harness.transport.answerAll { _ in .refusedConnection } }
        for count in 1...2 {
            let report = try #require(try harness.flush(for: .zero))
            #expect(report.sent == 0 && report.token == check)
            #expect(report.error?.detail.hasPrefix("no token: ") == true)
            #expect(harness.tokenRequests.count == count, "each flush asks again, without a wait")
        }
        #expect(harness.worker.snapshot.health == (check == .unreachable ? .down : .unauthorized))
    }

    @Test func flush_waitsForTheTokenEndpoint() throws {
        let harness = try makeHarness(verifies: false)
        #expect(try harness.flush(for: .seconds(20)) == nil)
        #expect(harness.tokenRequests.count == 1)
    }

    @Test func flushWithoutATokenSource_saysNothingOfTokens() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        let report = try #require(try harness.flush())
        #expect(report.sent == 0 && report.token == nil && report.error == nil)
    }

    @Test func failedFlush_saysWhy() throws {
        let harness = try makeHarness(secret: "right")
        harness.transport.answerAll { $0.url == DeliveryHarness.tokenURL ? .status(200, "a:3600") : .status(503) }
        #expect(harness.transport.answer(.status(200, "a:3600")) { $0.url == DeliveryHarness.tokenURL })
        try harness.accept(3)
        try harness.turn()
        let report = try #require(try harness.flush())
        #expect(report.sent == 0 && report.token == .ok)
        #expect(report.error?.status == 503)
        harness.transport.answerAll { _ in .status(200) }
        let second = try #require(try harness.flush())
        #expect(second.sent == 3 && second.error == nil)
    }

    /// Its circuit opens at the first failure; what was not sent at all has the same reason.
    @Test func flushOfAnUpstreamThatIsDown_failsWithTheErrorOfItsProbe() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        harness.transport.answerAll { _ in .status(429, headers: [("Retry-After", "3000")]) }
        try harness.accept(20)
        try harness.run(for: .seconds(10))
        let report = try #require(try harness.flush())
        #expect(report.error?.status == 429 && report.delivered == 0)
    }

    /// A message that failed first and was delivered in the end does not make the flush fail.
    @Test func messageThatIsDeliveredInTheEnd_isNotAFailureOfTheFlush() throws {
        let harness = try DeliveryHarness(settings: Self.settings)
        try harness.accept([#"{"n":1}"#, #"{"n":2}"#])
        try harness.accept([#"{"n":3}"#], notBefore: harness.time.now + .seconds(86_400))
        try harness.turn()
        let reports = Inbox<FlushReport>()
        harness.worker.flush { if let report = $0 { reports.put(report) } }
        try harness.turn()
        try harness.answer(.status(503))
        #expect(reports.takeAll().isEmpty, "another request is in flight")
        harness.random.set(0)
        try harness.run(for: .seconds(1))
        try harness.answer(.status(200))
        try harness.answer(.status(200))
        let report = try #require(reports.takeAll().first)
        #expect(report.delivered == 2 && report.error == nil)
    }
}
