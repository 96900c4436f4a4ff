import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// How long messages lie before they are claimed, over an hour of simulated time and a store that commits like a disk.
@Suite(.eachEngine) struct SimulatedHourTests {
    @Test(arguments: [10, 200, 2000])
    func messages_areClaimedInTime_atEveryRate(perSecond: Int) {
        var hour = ClaimSimulation<QueueMailbox>(perSecond: perSecond, seconds: 3600)
        hour.run()
        #expect(hour.claimed > perSecond * 3590)
        #expect(hour.percentile(99) <= hour.wait + 50, "\(hour.percentile(99)) ms")
        #expect(hour.percentile(100) <= hour.wait + 50, "\(hour.percentile(100)) ms")
    }

    /// The simulation can fail: with the flag that a claim could leave behind, messages lie for seconds.
    @Test func simulation_findsMessagesThatLie_withTheFlagOfFirstArrival() {
        var run = ClaimSimulation<FlagOfFirstArrival>(perSecond: 200, seconds: 300)
        run.run()
        #expect(run.percentile(99) > 1000, "\(run.percentile(99)) ms")
    }
}

/// A writer that gathers and commits, and a worker that claims; times in microseconds.
struct ClaimSimulation<Value: WakeValue> {
    /// Milliseconds that messages collect.
    let wait = 50
    private(set) var claimed = 0
    private let interval: Int
    private let end: Int
    private var value = Value()
    private var random = SplitMix64(state: 1)
    private let limits = BatchLimits(maxMessages: 500, maxBytes: 1 << 20)

    // The writer: when its next step is due, and what that is.
    private var nextArrival = 0
    private var stored = 0
    private var writerAt = 0
    private var announces: (through: Int, count: Int)?
    /// When each message was committed; those before `claimed` are no longer needed.
    private var committedAt: [Int] = []

    // The worker.
    private var workerAt = 0
    private var isReading = false
    private var wakesUp = false
    private var sleeps = false
    /// The longest time that a worker sleeps if nothing wakes it.
    private let heartbeat = 5_000_000

    /// Delays by the millisecond.
    private var delays = [Int](repeating: 0, count: 10_000)

    init(perSecond: Int, seconds: Int) {
        interval = 1_000_000 / perSecond
        end = seconds * 1_000_000
    }

    mutating func run() {
        while min(writerAt, workerAt) < end {
            if writerAt <= workerAt { write() } else { work() }
        }
    }

    /// The milliseconds within which so many percent of the messages were claimed.
    func percentile(_ percent: Int) -> Int {
        var left = (claimed * percent + 99) / 100
        for (delay, count) in delays.enumerated() {
            left -= count
            if left <= 0 { return delay }
        }
        return delays.count
    }

    private mutating func draw(_ range: Range<Int>) -> Int { Int.random(in: range, using: &random) }

    private func instant(_ time: Int) -> MonotonicInstant { MonotonicInstant(nanoseconds: Int64(time) * 1000 + 1) }

    /// One commit, or the announcement of the last one.
    private mutating func write() {
        let now = writerAt
        if let (through, count) = announces {
            announces = nil
            if count > 0,
                value.announce(
                    Array(Int64(through - count + 1)...Int64(through)), at: instant(now), limits: limits)
            {
                wakesUp = true
                if sleeps { workerAt = min(workerAt, now) }
            }
            writerAt = max(now, nextArrival) + draw(2000..<12_000)
        } else {
            var count = 0
            while nextArrival <= now {
                count += 1
                nextArrival += draw(0..<interval * 2) + 1
            }
            for _ in 0..<count { committedAt.append(now) }
            stored += count
            if count > 0 { announces = (stored, count) }
            writerAt = now + draw(0..<2000)
        }
    }

    /// Checks whether a message can be claimed, or ends a claim.
    private mutating func work() {
        let now = workerAt
        if isReading {
            // The snapshot is of a moment before.
            let last = min(committedAt.count, claimed + limits.maxMessages)
            for id in claimed..<last { delays[min((now - committedAt[id]) / 1000, delays.count - 1)] += 1 }
            value.lookEnds(
                through: Int64(last), count: last - claimed, reachedEnd: last - claimed < limits.maxMessages,
                at: instant(now))
            claimed = last
            isReading = false
            workerAt = now + draw(0..<500)
            return
        }
        wakesUp = false
        sleeps = false
        switch value.readiness(limits: limits, wait: .milliseconds(wait), at: instant(now)) {
        case .now:
            _ = value.lookBegins()
            isReading = true
            workerAt = now + draw(100..<3000)
        case .collecting(let until):
            workerAt = max(now + 1, Int(until.nanoseconds / 1000) + 1)
            sleeps = true
        case .due, .nothing:
            workerAt = now + heartbeat
            sleeps = true
        }
    }
}
