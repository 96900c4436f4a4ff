import PosternCore
import Testing

@Suite struct RetryPolicyTests {
    @Test(arguments: [
        (-1, 1), (0, 1), (1, 1), (2, 2), (3, 4), (4, 8), (9, 256), (10, 300), (31, 300), (500, 300), (Int.max, 300),
    ])
    func ceiling_doublesPerAttempt_upToTheLongest(attempt: Int, seconds: Int) {
        #expect(RetryPolicy().delay(afterAttempt: attempt, retryAfter: nil, random: 1) == .seconds(seconds))
    }

    @Test(arguments: [(0.0, 0), (0.25, 1000), (0.5, 2000), (1.0, 4000)])
    func delay_isAnyPartOfTheCeiling_asChanceHasIt(random: Double, milliseconds: Int) {
        let delay = RetryPolicy().delay(afterAttempt: 3, retryAfter: nil, random: random)
        #expect(delay == .milliseconds(milliseconds))
    }

    @Test(arguments: [(90, 1.0, 90), (2, 1.0, 4), (2, 0.25, 2), (0, 0.0, 0)])
    func retryAfter_wins_whenLongerThanTheBackoff(retryAfter: Int, random: Double, seconds: Int) {
        let delay = RetryPolicy().delay(afterAttempt: 3, retryAfter: .seconds(retryAfter), random: random)
        #expect(delay == .seconds(seconds))
    }

    @Test(arguments: [
        (300, 0.0, 150.0), (300, 1.0, 300.0), (60, 0.5, 45.0), (2, 0.0, 15.0), (2, 1.0, 30.0), (0, 0.0, 15.0),
    ])
    func slowDelay_isHalfToAllOfTheLongest_butNeverShort(longest: Int, random: Double, seconds: Double) {
        let policy = RetryPolicy(base: .milliseconds(1), longest: .seconds(longest))
        #expect(policy.slowDelay(random: random) == .seconds(seconds))
    }

    @Test func base_beyondTheLongest_isCut() {
        let policy = RetryPolicy(base: .seconds(3600), longest: .seconds(2))
        #expect(policy.delay(afterAttempt: 1, retryAfter: nil, random: 1) == .seconds(2))
    }
}
