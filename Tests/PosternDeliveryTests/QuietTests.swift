import PosternCore
import PosternStore
import PosternTestKit
import Testing

@testable import PosternDelivery

/// A worker that has nothing to do sleeps: at least a second, whatever the reason.
@Suite(.timeLimit(.minutes(10))) struct QuietTests {
    private static let quick = DeliverySettings.with {
        ($0.maxInFlight, $0.batchMaxMessages, $0.batchMaxWait) = (2, 1, .zero)
    }
    typealias Case = (name: String, prepare: (DeliveryBench) throws -> Void)

    nonisolated(unsafe) static let cases: [Case] = [
        // Closures without state; they only lack the annotation.
        ("an empty queue", { _ in }),
        (
            "all delivered",
            { bench in
                bench.transport.answerAll { _ in .status(200) }
                try bench.accept(5)
            }
        ),
        ("requests under way", { bench in try bench.accept(10) }),
        (
            "waiting for a retry",
            { bench in
                bench.transport.expect(.status(503, headers: [("Retry-After", "100")]))
                try bench.accept(1)
            }
        ),
        (
            "an open circuit, messages waiting",
            { bench in
                bench.transport.answerAll { _ in .status(429, headers: [("Retry-After", "100")]) }
                try bench.accept(10)
            }
        ),
        (
            "an open circuit whose time is over, nothing to probe with",
            { bench in
                bench.transport.expect(.status(429, headers: [("Retry-After", "100")]))
                let id = try bench.accept(1)[0]
                try bench.turn()
                let done = Inbox<Bool>()
                bench.outbox.cancel([id]) { result in done.put((try? result.get()) == [id]) }
                #expect(bench.threads.take(from: done) == [true])
                bench.time.advance(by: .seconds(101))
            }
        ),
        (
            "a pause, messages waiting",
            { bench in
                bench.worker.pause()
                try bench.accept(10)
            }
        ),
        (
            "a hold",
            { bench in
                bench.transport.answerAll { _ in .status(403) }
                try bench.accept(10)
            }
        ),
        (
            "a lane that waits for its first message",
            { bench in
                bench.transport.expect(.reset)
                try bench.accept(10, lane: .digest(1))
                try bench.turn()
                bench.draw(1)
                for _ in 1...2 {
                    bench.transport.expect(.reset)
                    try bench.run(for: .seconds(3))
                }
            }
        ),
        ("crowded lanes", { bench in try bench.accept(50, lane: .digest(1)) }),
        (
            "a schedule",
            { bench in
                try bench.accept(["{}"], notBefore: bench.time.now + .seconds(60))
            }
        ),
        (
            "a plan that says wait",
            { bench in
                try bench.restart(
                    WaitingUpstream(until: bench.time.now + .seconds(60)), settings: Self.quick)
                try bench.accept(10)
            }
        ),
        (
            "a plan that says wait until the past",
            { bench in
                try bench.restart(PastUpstream(), settings: Self.quick)
                try bench.accept(1)
            }
        ),
        (
            "a token that cannot be fetched",
            { bench in
                try bench.restart(PlainUpstream(tokenSource: NoTokens()), settings: Self.quick)
                bench.transport.answerAll { _ in .status(401) }
                try bench.accept(10)
            }
        ),
        (
            "a token under way",
            { bench in
                try bench.restart(PlainUpstream(tokenSource: NoTokens()), settings: Self.quick)
                try bench.accept(10)
            }
        ),
        (
            "a token that is not needed",
            { bench in
                try bench.restart(PlainUpstream(tokenSource: NoTokens()), settings: Self.quick)
            }
        ),
        (
            "a stop, messages waiting",
            { bench in
                bench.worker.beginStopping()
                try bench.accept(10)
            }
        ),
    ]

    @Test(arguments: cases.indices) func worker_sleepsAtLeastASecond_withNothingToDo(number: Int) throws {
        let bench = try DeliveryBench(settings: Self.quick)
        try Self.cases[number].prepare(bench)
        try bench.turn()
        let sleep = try bench.turn()
        #expect(sleep >= .seconds(1), "\(Self.cases[number].name)")
        #expect(sleep <= .seconds(5), "\(Self.cases[number].name)")
    }
}

private struct NoTokens: TokenSource {
    var tokenRequest: UpstreamRequest { UpstreamRequest(url: DeliveryBench.tokenURL) }
    func token(from response: UpstreamResponse, now: Timestamp) throws(TokenRefusal) -> Token {
        throw TokenRefusal(credentialsRefused: true, detail: "no")
    }
}

private struct PastUpstream: PlainAtHeart {
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .wait(.schedule, until: context.now - .seconds(1))
    }
}
