import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import StreamOneClient

/// A probe is a call that authenticates: failed ones lead to blocks (Assumptions A3, A4).
@Suite struct StreamOneProbeTests {
    private let harness = StreamOneHarness()

    @Test(arguments: [(0, "ok"), (4, "ok"), (3, "unauthorized"), (2, "failed"), (1, "failed"), (8, "failed")])
    func probe_readsTheRolesOfTheActor(status: Int, outcome: String) async throws {
        harness.transport.answerAll { _ in .status(200, StreamOneSamples.answer(status)) }
        let report = try await StreamOneSamples.upstream().probe(in: harness)
        #expect(report.outcome.rawValue == outcome && report.status == 200, "\(report)")
        let call = try #require(harness.calls.first)
        #expect(harness.calls.count == 1 && call.path == "api/application/getmyroles")
        #expect(call.parameters["signature"]?.count == 40)
    }

    @Test func probeAfterAFailedAuthentication_sendsNothing_untilThePauseIsOver() async throws {
        harness.transport.answerAll { _ in .status(200, StreamOneSamples.answer(3)) }
        let upstream = try StreamOneSamples.upstream()
        for _ in 0..<2 { #expect(await upstream.probe(in: harness).outcome == .unauthorized) }
        #expect(harness.calls.count == 1)
        harness.clock.advance(by: .seconds(3601))
        harness.transport.answerAll { _ in .status(200, StreamOneSamples.answer()) }
        #expect(await upstream.probe(in: harness).outcome == .ok)
    }

    @Test func wrongClock_isReported() async throws {
        harness.transport.answerAll { _ in
            .status(200, StreamOneSamples.answer(2), headers: [("Date", "Sun, 13 Dec 2015 09:44:40 GMT")])
        }
        _ = try await StreamOneSamples.upstream().probe(in: harness)
        #expect(harness.notices.withLock { $0 } == ["the clock here is 120 s ahead of the platform's"])
    }

    /// The queue has to know it: its calls would prolong the block.
    @Test func blockedActor_isKnownToTheQueue() async throws {
        harness.transport.answerAll { _ in .status(200, StreamOneSamples.answer(8)) }
        _ = try await StreamOneSamples.upstream().probe(in: harness)
        #expect(Pause(in: harness.state)?.reason == .rateLimited)
    }

    @Test(arguments: [(404, "misconfigured"), (401, "unauthorized"), (502, "failed"), (200, "failed")])
    func answerThatIsNotThePlatforms_isNoSuccess(status: Int, outcome: String) async throws {
        harness.transport.answerAll { _ in .status(status, "<html>") }
        let report = try await StreamOneSamples.upstream().probe(in: harness)
        #expect(report.outcome.rawValue == outcome && report.status == status, "\(report)")
    }
}
