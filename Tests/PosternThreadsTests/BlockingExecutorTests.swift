import Glibc
import PosternCore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(10))) struct BlockingExecutorTests {
    /// Records what threads have done, in order.
    private final class Record: Sendable {
        private let inbox = Inbox<String>()
        func add(_ name: String) { inbox.put(name) }

        func first(_ count: Int) -> [String] {
            var names: [String] = []
            while names.count < count { names += inbox.takeAll(waitingUntil: SystemTime().instant + longestWait) }
            return names
        }
    }

    @Test func work_runsInItsOrder_urgentWorkFirst() throws {
        let executor = try BlockingExecutor(name: "test-order", atATime: 1, on: DedicatedThreads())
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

    @Test func work_runsSideBySide_onAsManyThreadsAsAllowed() throws {
        let executor = try BlockingExecutor(name: "test-side", atATime: 3, on: DedicatedThreads())
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

    @Test func idleThread_takesTheNextWork() throws {
        let executor = try BlockingExecutor(name: "test-idle", atATime: 2, on: DedicatedThreads())
        let record = Record()
        for number in 0..<200 {
            executor.run { record.add("\(number)") }
            #expect(record.first(1) == ["\(number)"])
        }
    }

    @Test func work_isDoneByTheThreadsThatRun_ifNoOtherCanBeStarted() throws {
        let shortages = Inbox<SystemLimitError>()
        let executor = try BlockingExecutor(name: "test-few", atATime: 3, on: FewThreads(1)) { shortages.put($0) }
        let record = Record()
        for number in 1...3 { executor.run { record.add("\(number)") } }
        #expect(record.first(3) == ["1", "2", "3"])
        executor.stop()
        #expect(shortages.takeAll().count <= 1)
    }

    @Test func shortageOfThreads_isReportedOnce() throws {
        let shortages = Inbox<SystemLimitError>()
        let executor = try BlockingExecutor(name: "test-few", atATime: 3, on: FewThreads(1)) { shortages.put($0) }
        let (begun, gate) = (Inbox<Void>(), Inbox<Void>())
        executor.run {
            begun.put(())
            _ = gate.takeAll(waitingUntil: nil)
        }
        _ = begun.takeAll(waitingUntil: nil)
        for _ in 1...3 { executor.run {} }
        gate.put(())
        executor.stop()
        #expect(shortages.takeAll() == [.thread("test-few-1", EAGAIN)])
    }

    @Test func executorWithoutAThread_isNotMade() {
        #expect(throws: SystemLimitError.self) {
            try BlockingExecutor(name: "test-none", atATime: 3, on: FewThreads(0))
        }
        #expect(throws: SystemLimitError.self) { try TimerQueue(name: "test-none", on: FewThreads(0)) }
    }

    @Test func stop_waitsForAllWorkThatWasHandedIn() throws {
        let executor = try BlockingExecutor(name: "test-stop", atATime: 2, on: DedicatedThreads())
        let done = Mutex(0)
        for _ in 0..<100 { executor.run { done.withLock { $0 += 1 } } }
        executor.stop()
        #expect(done.withLock { $0 } == 100)
    }
}

/// The same on the test's own thread.
@Suite struct ManualTurnsTests {
    private let threads = ManualThreads()

    @Test func jobs_runInVirtualTime() throws {
        let timer = try TimerQueue(name: "test-timer", on: threads)
        let order = Inbox<Int>()
        for delay in [30, 10, 20] { timer.run(after: .seconds(delay)) { order.put(delay) } }
        threads.advance(by: .seconds(19))
        #expect(order.takeAll() == [10])
        #expect(threads.take(from: order, until: threads.instant + .seconds(5)) == [20])
        #expect(threads.take(from: order, until: threads.instant + .seconds(5)) == [])
        timer.stop()
        #expect(threads.names.isEmpty)
    }

    @Test func work_runsInTurns_andStopDoesTheRest() throws {
        let executor = try BlockingExecutor(name: "test-reads", atATime: 2, on: threads)
        let done = Inbox<Int>()
        for number in 1...4 { executor.run { done.put(number) } }
        #expect(threads.names == ["test-reads-0", "test-reads-1"])
        #expect(done.isEmpty)
        threads.turn("test-reads-1")
        #expect(done.takeAll() == [1])
        executor.stop()
        #expect(done.takeAll() == [2, 3, 4])
        #expect(threads.names.isEmpty)
    }
}
