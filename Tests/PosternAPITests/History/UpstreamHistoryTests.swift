import PosternCore
import Testing

@testable import PosternAPI
@testable import PosternMetrics

/// The history of an upstream as a value: the test says what time it is.
@Suite struct UpstreamHistoryTests {
    private let start = Timestamp(milliseconds: 1_700_000_000_000)
    private let durations = Histogram(bounds: Histogram.durationBounds)
    private let waits = Histogram(bounds: Histogram.waitBounds)

    private func sample(_ change: (inout UpstreamHistory.Sample) -> Void = { _ in }) -> UpstreamHistory.Sample {
        var sample = UpstreamHistory.Sample()
        (sample.durations, sample.waits) = (durations.counts, waits.counts)
        change(&sample)
        return sample
    }

    private func accepted(_ count: Int) -> UpstreamHistory.Sample { sample { $0.accepted = count } }

    @Test func step_hasWhatHappenedInIt_andWhatIsQueuedAtItsEnd() {
        var history = UpstreamHistory(
            sample { ($0.accepted, $0.delivered, $0.failed, $0.queued) = (100, 80, 5, 15) }, at: start)
        history.add(
            sample {
                ($0.accepted, $0.delivered, $0.failed, $0.queued) = (110, 83, 6, 21)
                ($0.oldestSeconds, $0.requests, $0.requestsFailed) = (12.4, 7, 2)
            }, at: start + .seconds(10))
        let values = UpstreamHistory.Series.allCases.map { history.texts($0, last: 1) }
        #expect(values == [["10"], ["3"], ["1"], ["21"], ["12"], ["7"], ["2"], ["null"], ["null"], ["null"]])
        #expect(history.to == start + .seconds(10))
    }

    @Test func durations_areThoseOfTheStepAlone() {
        for _ in 0..<1000 { durations.observe(4) }
        var history = UpstreamHistory(sample(), at: start)
        for _ in 0..<100 { durations.observe(0.2) }
        waits.observe(3, times: 10)
        history.add(sample(), at: start + .seconds(10))
        history.add(sample(), at: start + .seconds(20))
        // Between 100 and 250 ms, and between 2048 and 4096 ms.
        #expect(history.texts(.requestP50Ms, last: 2) == ["175.0", "null"])
        #expect(history.texts(.requestP99Ms, last: 2) == ["248.5", "null"])
        #expect(history.texts(.waitP99Ms, last: 2) == ["4075.5", "null"])
    }

    @Test func hour_isKept_inLessThan16KiB() {
        var history = UpstreamHistory(accepted(0), at: start)
        for step in 1...400 { history.add(accepted(step * step), at: start + .seconds(10 * step)) }
        #expect(history.steps == 360)
        #expect(history.texts(.accepted, last: 360).first == "81")
        #expect(history.texts(.accepted, last: 1) == ["799"])
        #expect(UpstreamHistory.maxSteps * UpstreamHistory.Series.allCases.count * 4 < 15 << 10)
    }

    /// Samples come a little late or early.
    @Test func steps_stayTenSeconds_whateverTheTimerDoes() {
        var history = UpstreamHistory(accepted(0), at: start)
        for step in 1...50 {
            let late = Duration.milliseconds(step % 2 == 0 ? 900 : -900)
            history.add(accepted(step), at: start + .seconds(10 * step) + late)
            #expect(history.nextAt == start + .seconds(10 * step + 10))
        }
        #expect(history.texts(.accepted, last: 50) == [String](repeating: "1", count: 50))
    }

    @Test func missedSteps_areEmpty_andTheNextHasWhatHappened() {
        var history = UpstreamHistory(sample { $0.queued = 3 }, at: start)
        history.add(sample { ($0.accepted, $0.queued) = (5, 8) }, at: start + .seconds(40))
        #expect(history.texts(.accepted, last: 4) == ["0", "0", "0", "5"])
        #expect(history.texts(.queued, last: 4) == ["3", "3", "3", "8"])
        history.add(accepted(6), at: start + .seconds(86_400))
        #expect(history.steps == 360)
        #expect(history.texts(.accepted, last: 2) == ["0", "1"])
    }

    @Test func history_beginsAgain_whenTheClockIsSetBack() {
        var history = UpstreamHistory(accepted(0), at: start)
        history.add(accepted(1), at: start + .seconds(10))
        history.add(accepted(5), at: start - .seconds(3600))
        #expect(history.steps == 0)
        history.add(accepted(7), at: start - .seconds(3590))
        #expect(history.texts(.accepted, last: 1) == ["2"])
    }

    @Test func drainRate_isThatOfTheLastMinute_includingTheStepThatGoesOn() {
        var history = UpstreamHistory(sample { ($0.delivered, $0.failed) = (100, 7) }, at: start)
        #expect(history.drainRate(delivered: 102, failed: 8, at: start) == 3)
        #expect(history.drainRate(delivered: 102, failed: 8, at: start + .seconds(6)) == 0.5)
        // Far more than a minute ago.
        history.add(sample { ($0.delivered, $0.failed) = (10_000, 7) }, at: start + .seconds(10))
        for step in 2...7 {
            let delivered = 10_000 + 20 * (step - 1)
            history.add(sample { ($0.delivered, $0.failed) = (delivered, 7) }, at: start + .seconds(10 * step))
        }
        #expect(history.drainRate(delivered: 10_120, failed: 7, at: start + .seconds(70)) == 2)
        #expect(history.drainRate(delivered: 10_133, failed: 14, at: start + .seconds(75)) == 140.0 / 65)
        // The clock was set back since the last step.
        #expect(history.drainRate(delivered: 10_120, failed: 7, at: start) == 120)
    }

    @Test func since_selectsTheStepsThatEndedLater() {
        var history = UpstreamHistory(accepted(0), at: start)
        for step in 1...6 { history.add(accepted(step), at: start + .seconds(10 * step)) }
        func steps(_ seconds: Int) -> Int { history.steps(since: start + .seconds(seconds)) }
        #expect(
            [steps(-100), steps(0), steps(9), steps(10), steps(55), steps(60), steps(1000)] == [6, 6, 6, 5, 1, 0, 0])
        #expect(history.steps(since: nil) == 6 && history.steps(since: nil, atMost: 2) == 2)
    }
}

/// The histories of all upstreams.
@Suite struct GatewayHistoryTests {
    private let start = Timestamp(milliseconds: 1_700_000_000_000)

    private func name(_ number: Int) -> UpstreamName { UpstreamName("up\(number)")! }

    private func samples(_ count: Int, accepted: Int) -> [UpstreamName: UpstreamHistory.Sample] {
        Dictionary(uniqueKeysWithValues: (0..<count).map { (name($0), UpstreamHistory.Sample(accepted: accepted)) })
    }

    @Test func allUpstreams_endTogether_alsoOneThatWasAdded() {
        let history = GatewayHistory(at: start)
        history.add(samples(1, accepted: 0), commits: BucketCounts(), at: start)
        history.add(samples(1, accepted: 1), commits: BucketCounts(), at: start + .seconds(10))
        #expect(history.pause(at: start + .seconds(12)) == .seconds(8))
        history.add(samples(2, accepted: 3), commits: BucketCounts(), at: start + .seconds(20))
        history.add(samples(2, accepted: 7), commits: BucketCounts(), at: start + .seconds(30))
        let text = history.json(since: nil) { _ in true }
        #expect(text.contains(#""step":10,"from":"\#(start)","to":"\#(start + .seconds(30))""#))
        #expect(text.contains(#""up0":{"accepted":[1,2,4]"#) && text.contains(#""up1":{"accepted":[4]"#))
        // One that is gone is forgotten.
        history.add(samples(1, accepted: 7), commits: BucketCounts(), at: start + .seconds(40))
        #expect(!history.json(since: nil) { _ in true }.contains("up1"))
        #expect(history.json(since: start + .seconds(30)) { _ in true }.contains(#""accepted":[0]"#))
    }

    @Test func response_hasAtMostAMebibyte_withTheMostUpstreams() {
        let history = GatewayHistory(at: start)
        for step in 0...40 {
            history.add(samples(255, accepted: step << 31), commits: BucketCounts(), at: start + .seconds(10 * step))
        }
        let text = history.json(since: nil) { _ in true }
        #expect(text.utf8.count < 700 << 10)
        #expect(text.contains(#""from":"\#(start + .seconds(160))""#), "\(text.prefix(120))")
        #expect(history.json(since: nil) { $0 == self.name(7) }.contains(#""from":"\#(start)""#))
    }

    @Test func commits_areThoseOfTheLastMinute() {
        let (history, commits) = (GatewayHistory(at: start), Histogram(bounds: Histogram.durationBounds))
        for _ in 0..<100 { commits.observe(5) }
        history.add([:], commits: commits.counts, at: start)
        #expect(history.recentCommits(commits.counts).quantile(0.5) == nil)
        for step in 1...7 {
            commits.observe(0.002)
            history.add([:], commits: commits.counts, at: start + .seconds(10 * step))
        }
        let p50 = history.recentCommits(commits.counts).quantile(0.5)
        #expect(p50.map { $0 < 0.0025 } == true)
    }
}
