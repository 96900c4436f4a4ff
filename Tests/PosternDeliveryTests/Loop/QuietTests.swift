import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternDelivery

/// A worker that has nothing to do sleeps: at least a second, whatever the reason.
@Suite(.timeLimit(.minutes(10))) struct QuietTests {
    private static let quick = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (2, 1, .zero)
    }
    typealias Case = (name: String, prepare: (DeliveryHarness) throws -> Void)

    nonisolated(unsafe) static let cases: [Case] = [
        // Closures without state; they only lack the annotation.
        ("an empty queue", { _ in }),
        (
            "all delivered",
            { harness in
                harness.transport.answerAll { _ in .status(200) }
                try harness.accept(5)
            }
        ),
        ("requests under way", { harness in try harness.accept(10) }),
        (
            "waiting for a retry",
            { harness in
                harness.transport.expect(.status(503, headers: [("Retry-After", "100")]))
                try harness.accept(1)
            }
        ),
        (
            "an open circuit, messages waiting",
            { harness in
                harness.transport.answerAll { _ in .status(429, headers: [("Retry-After", "100")]) }
                try harness.accept(10)
            }
        ),
        (
            "an open circuit whose time is over, nothing to probe with",
            { harness in
                harness.transport.expect(.status(429, headers: [("Retry-After", "100")]))
                let id = try harness.accept(1)[0]
                try harness.turn()
                #expect(try harness.cancel(id))
                harness.time.advance(by: .seconds(101))
            }
        ),
        (
            "a pause, messages waiting",
            { harness in
                harness.worker.pause()
                try harness.accept(10)
            }
        ),
        (
            "a hold",
            { harness in
                harness.transport.answerAll { _ in .status(403) }
                try harness.accept(10)
            }
        ),
        (
            "a lane that waits for its first message",
            { harness in
                harness.transport.expect(.reset)
                try harness.accept(10, lane: .digest(1))
                try harness.turn()
                harness.random.set(1)
                for _ in 1...2 {
                    harness.transport.expect(.reset)
                    try harness.run(for: .seconds(3))
                }
            }
        ),
        ("crowded lanes", { harness in try harness.accept(50, lane: .digest(1)) }),
        (
            "a schedule",
            { harness in
                try harness.accept(["{}"], notBefore: harness.time.now + .seconds(60))
            }
        ),
        (
            "a plan that says wait",
            { harness in
                try harness.restart(
                    WaitingUpstream(until: harness.time.now + .seconds(60)), settings: Self.quick)
                try harness.accept(10)
            }
        ),
        (
            "a plan that says wait until the past",
            { harness in
                try harness.restart(PastUpstream(), settings: Self.quick)
                try harness.accept(1)
            }
        ),
        (
            "a token that cannot be fetched",
            { harness in
                try harness.restart(PlainUpstream(tokenSource: NoTokens()), settings: Self.quick)
                harness.transport.answerAll { _ in .status(401) }
                try harness.accept(10)
            }
        ),
        (
            "a token under way",
            { harness in
                try harness.restart(PlainUpstream(tokenSource: NoTokens()), settings: Self.quick)
                try harness.accept(10)
            }
        ),
        (
            "a token that is not needed",
            { harness in
                try harness.restart(PlainUpstream(tokenSource: NoTokens()), settings: Self.quick)
            }
        ),
        (
            "a stop, messages waiting",
            { harness in
                harness.worker.beginStopping()
                try harness.accept(10)
            }
        ),
    ]

    @Test(arguments: cases.indices) func worker_sleepsAtLeastASecond_withNothingToDo(number: Int) throws {
        let harness = try DeliveryHarness(settings: Self.quick)
        try Self.cases[number].prepare(harness)
        try harness.turn()
        let sleep = try harness.turn()
        #expect(sleep >= .seconds(1), "\(Self.cases[number].name)")
        #expect(sleep <= .seconds(5), "\(Self.cases[number].name)")
    }
}

private struct NoTokens: TokenSource {
    var tokenRequest: UpstreamRequest { UpstreamRequest(url: DeliveryHarness.tokenURL) }
    func token(from response: UpstreamResponse, now: Timestamp) throws(Token.Failure) -> Token {
        throw Token.Failure(credentialsRefused: true, detail: "no")
    }
}

private struct PastUpstream: PlainAtHeart {
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .wait(.schedule, until: context.now - .seconds(1))
    }
}

/// An upstream that sends nothing before a given time.
struct WaitingUpstream: PlainAtHeart {
    let until: Timestamp
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        context.now < until ? .wait(.schedule, until: until) : plain.plan(for: messages, in: context)
    }
}
