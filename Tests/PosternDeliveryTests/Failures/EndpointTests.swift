import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

/// A hold concerns what failed: one endpoint while another works, the upstream otherwise.
@Suite(.timeLimit(.minutes(10))) struct EndpointTests {
    /// Sends each lane to an endpoint of its own name up to the slash.
    private struct ManyEndpoints: PlainAtHeart {
        let laneRule = LaneRule.separate
        func plan(for messages: [Message], in context: PlanContext) -> Plan {
            guard case .named(let lane, _) = messages[0].lane else { preconditionFailure("lanes are named") }
            let endpoint = String(lane.prefix { $0 != "/" })
            return .send(
                UpstreamRequest(url: "http://plain.test/\(endpoint)", body: messages[0].payload, endpoint: endpoint),
                count: 1)
        }
        func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
            response.status == 404
                ? Judgement(.holdUpstream(.configuration, detail: "wrong URL"))
                : plain.judge(response, to: batch, in: context)
        }
    }

    private let bench: DeliveryBench

    init() throws {
        bench = try DeliveryBench(
            ManyEndpoints(),
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero) })
    }

    private func accept(_ lane: String) throws -> MessageID {
        try bench.accept(["{\"to\":\"\(lane)\"}"], lane: .named(lane))[0]
    }

    private func sent(to endpoint: String) -> Int {
        bench.transport.requests.count { $0.url.hasSuffix("/\(endpoint)") }
    }

    @Test(arguments: [404, 403, 429, 503])
    func oneEndpoint_thatFails_stopsNoOther(status: Int) throws {
        bench.transport.answerAll { request in
            request.url.hasSuffix("/bad") ? .status(status, headers: [("Retry-After", "60")]) : .status(200)
        }
        _ = try accept("good/0")
        try bench.run(for: .milliseconds(100))
        for number in 0..<8 { _ = try accept("bad/\(number)") }
        for number in 1...100 {
            let id = try accept("good/\(number)")
            try bench.run(for: .milliseconds(100))
            #expect(try bench.state(id) == .delivered)
        }
        #expect(bench.ledger.failed == 0)
        #expect(sent(to: "bad") <= 24)
        #expect(bench.worker.snapshot.circuit == .closed)
        #expect(bench.worker.snapshot.health == .degraded)
        #expect(bench.worker.snapshot.endpoints.map(\.name) == ["bad"])
        bench.transport.answerAll { _ in .status(200) }
        try bench.run(for: .seconds(320))
        #expect(bench.ledger.queued == 0)
        #expect(bench.worker.snapshot.health == .up)
    }

    /// Without evidence the whole upstream waits; its probe takes another lane, and that shows that the rest works.
    @Test func firstFailure_holdsTheUpstream_untilAProbeOfAnotherEndpointSucceeds() throws {
        bench.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : .status(200) }
        let bad = try accept("bad/0")
        try bench.run(for: .milliseconds(100))
        #expect(bench.worker.snapshot.health == .misconfigured)
        let good = try (0..<20).map { try accept("good/\($0)") }
        try bench.run(for: .seconds(301))
        #expect(try good.allSatisfy { try bench.state($0) == .delivered })
        #expect(try bench.state(bad) == .queued)
        #expect(bench.worker.snapshot.circuit == .closed)
    }

    @Test func successOfARequestInFlight_narrowsTheHold() throws {
        bench.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : nil }
        let good = try accept("good/0")
        try bench.turn()
        _ = try accept("bad/0")
        try bench.turn()
        #expect(bench.worker.snapshot.circuit != .closed)
        bench.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : .status(200) }
        try bench.answer(.status(200))
        #expect(try bench.state(good) == .delivered)
        #expect(bench.worker.snapshot.circuit == .closed)
        let next = try accept("good/1")
        try bench.run(for: .milliseconds(100))
        #expect(try bench.state(next) == .delivered)
    }

    @Test func cancelledCause_endsTheHold_forItsLane() throws {
        bench.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : .status(200) }
        _ = try accept("good/0")
        try bench.run(for: .milliseconds(100))
        let cause = try accept("bad/0")
        let other = try accept("bad/1")
        try bench.run(for: .milliseconds(100))
        bench.transport.answerAll { _ in .status(200) }
        #expect(try bench.cancel(cause))
        try bench.run(for: .seconds(1))
        #expect(try bench.state(other) == .delivered)
        #expect(bench.worker.snapshot.endpoints.isEmpty)
    }

    @Test func deadHost_holdsTheWholeUpstream() throws {
        bench.transport.answerAll { _ in .status(200) }
        _ = try accept("a/0")
        _ = try accept("b/0")
        try bench.run(for: .milliseconds(100))
        bench.transport.answerAll { _ in .refusedConnection }
        for number in 1...10 { _ = try accept("a/\(number)") }
        try bench.run(for: .seconds(60))
        #expect(bench.worker.snapshot.health == .down)
        let sent = bench.transport.requests.count
        _ = try accept("b/1")
        try bench.run(for: .milliseconds(100))
        #expect(bench.transport.requests.count <= sent + 1)
    }
}
