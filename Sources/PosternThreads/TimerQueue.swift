private import DequeModule
import PosternCore
import Synchronization

/// Runs jobs at their time, one after the other, on a thread of its own. A job must be short. Any thread may call.
public final class TimerQueue: Sendable {
    fileprivate struct Job: Sendable {
        let due: MonotonicInstant
        let run: @Sendable () -> Void
    }

    private let timers: Timers
    private let threads: any Threads
    private let running: Mutex<(any RunningLoop)?>

    public init(name: String, on threads: any Threads) throws(SystemLimitError) {
        timers = Timers(name: name)
        self.threads = threads
        let started = try threads.start(timers)
        running = Mutex(started)
    }

    deinit { stop() }

    /// Ends the thread, and drops the jobs that are not due.
    public func stop() {
        timers.stop()
        running.withLock { $0.take() }?.join()
    }

    /// Jobs with the same time run in the order of these calls.
    public func run(after delay: Duration, _ job: @escaping @Sendable () -> Void) {
        timers.inbox.put(Job(due: threads.instant + delay, run: job))
    }

    /// Runs `step` after `delay` and then after each pause, as long as it returns true.
    public func `repeat`<State: Sendable>(
        _ state: State, after delay: Duration = .zero, every pause: Duration,
        _ step: @escaping @Sendable (inout State) -> Bool
    ) {
        run(after: delay) { [self] in
            var state = state
            if step(&state) { `repeat`(state, after: pause, every: pause, step) }
        }
    }

    /// The jobs that wait. It outlives the queue by the job that is running.
    private final class Timers: Loop, @unchecked Sendable {
        // @unchecked: `waiting` belongs to the thread that turns.
        let name: String
        let inbox = Inbox<Job>()
        let isStopped = Atomic<Bool>(false)
        /// The earliest first. Most jobs are due after all others, and a deque moves the shorter side.
        private var waiting: Deque<Job> = []

        init(name: String) { self.name = name }

        func stop() {
            isStopped.store(true, ordering: .releasing)
            inbox.nudge()
        }

        func turn(at now: MonotonicInstant) -> MonotonicInstant? {
            for job in inbox.takeAll() { waiting.insert(job, at: waiting.firstIndex(after: job.due)) }
            while let job = waiting.first, job.due <= now, !isStopped.load(ordering: .acquiring) {
                waiting.removeFirst()
                job.run()
            }
            guard isStopped.load(ordering: .acquiring) else { return waiting.first?.due ?? .distantFuture }
            waiting = []
            return nil
        }

        func wait(until deadline: MonotonicInstant) -> Bool { inbox.wait(until: deadline) }
    }
}

extension Deque<TimerQueue.Job> {
    /// Where a job that is due at `due` is inserted, behind those that are due at the same time: they run first.
    fileprivate func firstIndex(after due: MonotonicInstant) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if self[middle].due > due { high = middle } else { low = middle + 1 }
        }
        return low
    }
}
