import PosternCore
import PosternTestKit
import Testing

@testable import PosternAPI

@Suite struct TokenBucketTests {
    private func at(_ milliseconds: Int) -> MonotonicInstant {
        MonotonicInstant(nanoseconds: Int64(milliseconds) * 1_000_000)
    }

    @Test func bucket_isFullAtFirst_andThenRefusesUntilOneUnitIsBack() {
        var bucket = TokenBucket(rate: 10, burst: 0, at: at(0))
        for _ in 0..<10 { #expect(bucket.take(1, at: at(0)) == nil) }
        #expect(bucket.remaining == 0)
        #expect(bucket.take(1, at: at(0)) == .milliseconds(100))
        #expect(bucket.take(1, at: at(50))?.wholeMilliseconds == 50)
        #expect(bucket.take(1, at: at(100)) == nil)
    }

    @Test func burst_isSavedUp_butNoMore() {
        var bucket = TokenBucket(rate: 1, burst: 5, at: at(0))
        for _ in 0..<5 { #expect(bucket.take(1, at: at(0)) == nil) }
        #expect(bucket.take(1, at: at(0)) != nil)
        for _ in 0..<5 { #expect(bucket.take(1, at: at(3_600_000)) == nil) }
        #expect(bucket.take(1, at: at(3_600_000)) != nil)
    }

    @Test func largerThanTheBucket_passesWhenItIsFull_andLeavesADebt() {
        var bucket = TokenBucket(rate: 100, burst: 0, at: at(0))
        #expect(bucket.take(1000, at: at(0)) == nil)
        #expect(bucket.remaining == 0)
        #expect(bucket.take(1, at: at(8000))?.wholeMilliseconds == 1010)
        #expect(bucket.take(1, at: at(9010)) == nil)
        // Not full again, so that another one has to wait.
        #expect(bucket.take(1000, at: at(9500)) != nil)
    }

    @Test func rateBelowOne_letsOneThrough() {
        var bucket = TokenBucket(rate: 0.5, burst: 0, at: at(0))
        #expect(bucket.take(1, at: at(0)) == nil)
        #expect(bucket.take(1, at: at(1000))?.wholeMilliseconds == 1000)
        #expect(bucket.take(1, at: at(2000)) == nil)
    }

    /// 1000 requests in each second, at moments that are as uneven as they come.
    @Test(arguments: 1...5) func steadyExcess_passesAtTheRate(seed: UInt64) {
        var random = SplitMix64(state: seed)
        var bucket = TokenBucket(rate: 100, burst: 0, at: at(0))
        _ = bucket.take(100, at: at(0))
        for second in 0..<20 {
            let moments = (0..<1000).map { _ in second * 1000 + Int(random.next() % 1000) }.sorted()
            let passed = moments.count { bucket.take(1, at: at($0)) == nil }
            #expect((95...105).contains(passed), "\(passed) in second \(second)")
        }
    }

    @Test func clockSetBack_givesNothing() {
        var bucket = TokenBucket(rate: 1, burst: 1, at: at(1000))
        #expect(bucket.take(1, at: at(1000)) == nil)
        #expect(bucket.take(1, at: at(0)) != nil)
    }
}
