import PosternCore
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// A hold applies to one endpoint while another one works, and otherwise to the upstream.
@Suite(.timeLimit(.minutes(10))) struct EndpointTests {
    /// An upstream that sends each message alone to the endpoint before the slash in the name of its lane.
    struct ManyEndpoints: PlainAtHeart {
        let traits = Traits()
        func plan(for messages: [Message], in context: PlanContext) -> Plan {
            guard case .named(let lane, _) = messages[0].lane else { preconditionFailure("lanes are named") }
            let endpoint = String(lane.prefix { $0 != "/" })
            return .send(
                UpstreamRequest(url: "http://plain.test/\(endpoint)", body: messages[0].payload, endpoint: endpoint),
                count: 1)
        }
        func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
            switch response.status {
            case 404: Decision(.holdUpstream(.configuration, detail: "wrong URL"))
            case 412: Decision(.holdUpstream(.credentials, detail: "wrong key"), holdsAll: true)
            default: plain.judge(response, to: batch, in: context)
            }
        }
    }

    private let harness: DeliveryHarness

    init() throws {
        harness = try DeliveryHarness(
            ManyEndpoints(),
            settings: DeliverySettings.with { ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (4, 1, .zero) })
    }

    private func accept(_ lane: String) throws -> MessageID {
        try harness.accept(["{\"to\":\"\(lane)\"}"], lane: .named(lane))[0]
    }

    private func sent(to endpoint: String) -> Int {
        harness.transport.requests.count { $0.url.hasSuffix("/\(endpoint)") }
    }

    @Test(arguments: [404, 403, 429, 503])
    func oneEndpoint_thatFails_stopsNoOther(status: Int) throws {
        harness.transport.answerAll { request in
            request.url.hasSuffix("/bad") ? .status(status, headers: [("Retry-After", "60")]) : .status(200)
        }
        _ = try accept("good/0")
        try harness.run(for: .milliseconds(100))
        for number in 0..<8 { _ = try accept("bad/\(number)") }
        for number in 1...100 {
            let id = try accept("good/\(number)")
            try harness.run(for: .milliseconds(100))
            #expect(try harness.state(id) == .delivered)
        }
        #expect(harness.ledger.failed == 0)
        #expect(sent(to: "bad") <= 24)
        #expect(harness.worker.snapshot.circuit == .closed)
        #expect(harness.worker.snapshot.health == .degraded)
        #expect(harness.worker.snapshot.endpoints.map(\.name) == ["bad"])
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(320))
        #expect(harness.ledger.queued == 0)
        #expect(harness.worker.snapshot.health == .up)
    }

    /// Without evidence the whole upstream waits; its probe takes another lane, and that shows that the rest works.
    @Test func firstFailure_holdsTheUpstream_untilAProbeOfAnotherEndpointSucceeds() throws {
        harness.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : .status(200) }
        let bad = try accept("bad/0")
        try harness.run(for: .milliseconds(100))
        #expect(harness.worker.snapshot.health == .misconfigured)
        let good = try (0..<20).map { try accept("good/\($0)") }
        try harness.run(for: .seconds(301))
        #expect(try good.allSatisfy { try harness.state($0) == .delivered })
        #expect(try harness.state(bad) == .queued)
        #expect(harness.worker.snapshot.circuit == .closed)
    }

    @Test func successOfARequestInFlight_narrowsTheHold() throws {
        harness.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : nil }
        let good = try accept("good/0")
        try harness.turn()
        _ = try accept("bad/0")
        try harness.turn()
        #expect(harness.worker.snapshot.circuit != .closed)
        harness.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : .status(200) }
        try harness.answer(.status(200))
        #expect(try harness.state(good) == .delivered)
        #expect(harness.worker.snapshot.circuit == .closed)
        let next = try accept("good/1")
        try harness.run(for: .milliseconds(100))
        #expect(try harness.state(next) == .delivered)
    }

    @Test func holdOfAll_stopsEveryEndpoint_evenIfOthersWorkedBefore() throws {
        harness.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(412) : .status(200) }
        let slow = try accept("good/0")
        try harness.run(for: .milliseconds(100))
        #expect(try harness.state(slow) == .delivered)
        harness.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(412) : nil }
        let inFlight = try accept("good/1")
        try harness.turn()
        _ = try accept("bad/0")
        try harness.turn()
        harness.transport.answerAll { _ in .status(412) }
        try harness.answer(.status(200))
        #expect(try harness.state(inFlight) == .delivered)
        #expect(harness.worker.snapshot.health == .unauthorized)
        let sent = harness.transport.requests.count
        let waiting = try (2..<20).map { try accept("good/\($0)") }
        try harness.run(for: .seconds(60))
        #expect(harness.transport.requests.count <= sent + 8 + 2, "eight probes follow soon, then two after 8 and 16 s")
        harness.transport.answerAll { _ in .status(200) }
        try harness.run(for: .seconds(640))
        #expect(try waiting.allSatisfy { try harness.state($0) == .delivered })
        #expect(harness.ledger.queued == 0)
        #expect(harness.worker.snapshot.health == .up)
    }

    @Test func cancelledCause_endsTheHold_forItsLane() throws {
        harness.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : .status(200) }
        _ = try accept("good/0")
        try harness.run(for: .milliseconds(100))
        let cause = try accept("bad/0")
        let other = try accept("bad/1")
        try harness.run(for: .milliseconds(100))
        harness.transport.answerAll { _ in .status(200) }
        #expect(try harness.cancel(cause))
        try harness.run(for: .seconds(1))
        #expect(try harness.state(other) == .delivered)
        #expect(harness.worker.snapshot.endpoints.isEmpty)
    }

    /// The operator learns of each extent once: of the endpoint, and of the upstream once nothing else is known to work.
    @Test func holdOfAnEndpoint_isReportedAgain_onceItWidensToTheUpstream() throws {
        let (ofEndpoint, ofUpstream) = (
            "endpoint rejected our credentials or URL; its messages are held, others are delivered",
            "upstream rejected our credentials or URL; messages are held"
        )
        harness.transport.answerAll { $0.url.hasSuffix("/bad") ? .status(404) : .status(200) }
        _ = try accept("good/0")
        try harness.run(for: .milliseconds(100))
        let bad = try accept("bad/0")
        try harness.run(for: .seconds(20))
        #expect(harness.logged(ofEndpoint) == 1 && harness.logged(ofUpstream) == 0)
        harness.transport.answerAll { _ in .refusedConnection }
        let others = try (1...8).map { try accept("good/\($0)") }
        try harness.run(for: .seconds(60))
        #expect(harness.worker.snapshot.health == .down)
        // The host is back, and what is left is for the endpoint that does not exist.
        for id in others { #expect(try harness.cancel(id)) }
        harness.transport.answerAll { _ in .status(404) }
        try harness.run(for: .seconds(3600))
        #expect(try harness.state(bad) == .queued)
        #expect(harness.worker.snapshot.health == .misconfigured)
        #expect(harness.logged(ofEndpoint) == 1 && harness.logged(ofUpstream) == 1)
        #expect(harness.logged("upstream is down") == 1, "the outage before it")
    }

    @Test func deadHost_holdsTheWholeUpstream() throws {
        harness.transport.answerAll { _ in .status(200) }
        _ = try accept("a/0")
        _ = try accept("b/0")
        try harness.run(for: .milliseconds(100))
        harness.transport.answerAll { _ in .refusedConnection }
        for number in 1...10 { _ = try accept("a/\(number)") }
        try harness.run(for: .seconds(60))
        #expect(harness.worker.snapshot.health == .down)
        let sent = harness.transport.requests.count
        _ = try accept("b/1")
        try harness.run(for: .milliseconds(100))
        #expect(harness.transport.requests.count <= sent + 1)
    }
}
