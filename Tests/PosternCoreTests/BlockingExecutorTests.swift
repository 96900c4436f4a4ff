import PosternCore
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(10))) struct BlockingExecutorTests {
    /// What threads have done, in its order.
    private final class Record: Sendable {
        private let inbox = Inbox<String>()
        func add(_ name: String) { inbox.put(name) }

        func first(_ count: Int) -> [String] {
            var names: [String] = []
            while names.count < count { names += inbox.takeAll(waitingUntil: SystemTime().instant + .seconds(20)) }
            return names
        }
    }

    @Test func work_runsInItsOrder_urgentWorkFirst() {
        let executor = BlockingExecutor(name: "test-order", threads: 1)
        let (begun, gate, record) = (Inbox<Void>(), Inbox<Void>(), Record())
        executor.run {
            begun.put(())
            _ = gate.takeAll(waitingUntil: nil)
        }
        _ = begun.takeAll(waitingUntil: nil)
        executor.run { record.add("first") }
        executor.run { record.add("second") }
        executor.runSoon { record.add("urgent") }
        #expect(executor.waiting == 3)
        gate.put(())
        #expect(record.first(3) == ["urgent", "first", "second"])
    }

    @Test func work_runsSideBySide_onAsManyThreadsAsAllowed() {
        let executor = BlockingExecutor(name: "test-side", threads: 3)
        let (record, gate) = (Record(), (0..<3).map { _ in Inbox<Void>() })
        for number in 0..<3 {
            executor.run {
                record.add("begun")
                _ = gate[number].takeAll(waitingUntil: nil)
            }
        }
        #expect(record.first(3) == ["begun", "begun", "begun"])
        executor.run { record.add("fourth") }
        #expect(executor.waiting == 1)
        gate[1].put(())
        #expect(record.first(1) == ["fourth"])
        for gate in gate { gate.put(()) }
    }

    @Test func idleThread_takesTheNextWork() {
        let executor = BlockingExecutor(name: "test-idle", threads: 2)
        let record = Record()
        for number in 0..<200 {
            executor.run { record.add("\(number)") }
            #expect(record.first(1) == ["\(number)"])
        }
    }

    @Test func stop_waitsForAllWorkThatWasHandedIn() {
        let executor = BlockingExecutor(name: "test-stop", threads: 2)
        let done = Mutex(0)
        for _ in 0..<100 { executor.run { done.withLock { $0 += 1 } } }
        executor.stop()
        #expect(done.withLock { $0 } == 100)
    }
}

@Suite(.timeLimit(.minutes(10))) struct TimerQueueTests {
    @Test func jobs_runInTheOrderOfTheirTimes() {
        let timer = TimerQueue(name: "test-timer")
        let order = Inbox<Int>()
        for delay in [30, 10, 20, 10] { timer.run(after: .milliseconds(delay)) { order.put(delay) } }
        var delays: [Int] = []
        while delays.count < 4 { delays += order.takeAll(waitingUntil: SystemTime().instant + .seconds(20)) }
        #expect(delays == [10, 10, 20, 30])
    }

    @Test func repetition_endsWhenItsStepSaysSo() {
        let timer = TimerQueue(name: "test-timer")
        let steps = Inbox<Int>()
        timer.repeat(0, every: .milliseconds(1)) { count in
            count += 1
            steps.put(count)
            return count < 3
        }
        var counts: [Int] = []
        while counts.count < 3 { counts += steps.takeAll(waitingUntil: SystemTime().instant + .seconds(20)) }
        #expect(counts == [1, 2, 3])
    }

    @Test func stop_dropsWhatIsNotDue() {
        let timer = TimerQueue(name: "test-timer")
        let runs = Inbox<Void>()
        timer.run(after: .seconds(3600)) { runs.put(()) }
        timer.stop()
        #expect(runs.isEmpty)
    }
}
