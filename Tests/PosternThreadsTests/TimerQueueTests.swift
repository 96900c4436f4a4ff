import PosternCore
import PosternTestKit
import PosternThreads
import Testing

@Suite(.timeLimit(.minutes(10))) struct TimerQueueTests {
    @Test func jobs_runAtTheirTime_inOrder() throws {
        let threads = ManualThreads()
        let timer = try TimerQueue(name: "timer", on: threads)
        let ran = SharedValue<[Int]>([])
        for (number, seconds) in [3, 1, 2, 1, 3, 0].enumerated() {
            timer.run(after: .seconds(seconds)) { ran.set(ran.value + [number]) }
        }
        threads.advance(by: .seconds(1))
        #expect(ran.value == [5, 1, 3])
        threads.advance(by: .seconds(2))
        #expect(ran.value == [5, 1, 3, 2, 0, 4])
        timer.stop()
    }

    @Test func repetition_endsWhenItsStepSaysSo() throws {
        let timer = try TimerQueue(name: "test-timer", on: DedicatedThreads())
        let steps = Inbox<Int>()
        timer.repeat(0, every: .milliseconds(1)) { count in
            count += 1
            steps.put(count)
            return count < 3
        }
        var counts: [Int] = []
        while counts.count < 3 { counts += steps.takeAll(waitingUntil: SystemTime().instant + longestWait) }
        #expect(counts == [1, 2, 3])
    }

    @Test func stop_dropsWhatIsNotDue() throws {
        let timer = try TimerQueue(name: "test-timer", on: DedicatedThreads())
        let runs = Inbox<Void>()
        timer.run(after: .seconds(3600)) { runs.put(()) }
        timer.stop()
        #expect(runs.isEmpty)
    }
}

@Suite(.enabled(if: Timing.isMeasured)) struct TimerQueueTimingTests {
    /// As many clients may wait at a time. If each job moved all others, eight times as many would take 64 times as long.
    @Test func manyJobs_costLittleEach() throws {
        func cost(of jobs: Int) throws -> Duration {
            let threads = ManualThreads()
            let timer = try TimerQueue(name: "timer", on: threads)
            let count = SharedValue(0)
            let cost = Timing.processorTime {
                for number in 1...jobs {
                    timer.run(after: .milliseconds(30_000 + number)) { count.set(count.value + 1) }
                    if number.isMultiple(of: 1000) { threads.advance(by: .nanoseconds(1)) }
                }
                threads.advance(by: .seconds(300))
            }
            #expect(count.value == jobs)
            timer.stop()
            return cost
        }
        // Side by side, so that whatever else the machine does meets both.
        let ratios = try (0..<3).map { _ in
            let few = try cost(of: 25_000)
            return try cost(of: 200_000) / few
        }
        #expect(ratios.min() ?? .infinity < 24, "\(ratios)")
    }
}
