import PosternCore
import Testing

@testable import PosternDelivery

@Suite struct StoreRetryTests {
    @Test func wait_doublesWithEachRound_upToTheLongest() {
        var retry = StoreRetry()
        var now = MonotonicInstant(nanoseconds: 0)
        var waits: [Duration] = []
        for round in 0..<6 {
            #expect(!retry.isWaiting(at: now))
            // More failures of the same round change nothing.
            let (isFirst, isFirstAgain) = (retry.failed(at: now), retry.failed(at: now))
            #expect(isFirst == (round == 0) && !isFirstAgain)
            let wait = (retry.at ?? now) - now
            waits.append(wait)
            #expect(retry.isWaiting(at: now + (wait - .nanoseconds(1))))
            now = now + wait
        }
        #expect(waits == [.milliseconds(500), .seconds(1), .seconds(2), .seconds(4), .seconds(5), .seconds(5)])
    }

    @Test func success_beginsAgain() {
        var retry = StoreRetry()
        let now = MonotonicInstant(nanoseconds: 0)
        let outcomes = [
            retry.succeeded(), retry.failed(at: now), retry.succeeded(), retry.succeeded(), retry.failed(at: now),
        ]
        #expect(outcomes == [false, true, true, false, true])
        #expect(retry.isWaiting(at: now))
    }
}
