import Synchronization

/// Runs jobs at their time, one after the other, on a thread of its own, which starts with the first job. A job must be
/// short. Any thread may call.
public final class TimerQueue: Sendable {
    fileprivate struct Job: Sendable {
        let due: MonotonicInstant
        let run: @Sendable () -> Void
    }

    /// What the thread works on; it outlives the queue by the job that is running.
    private final class Loop: Sendable {
        let inbox = Inbox<Job>()
        let isStopped = Atomic<Bool>(false)

        func run() {
            // The latest first, so that what is due is at the end.
            var waiting: [Job] = []
            while !isStopped.load(ordering: .acquiring) {
                for job in inbox.takeAll(waitingUntil: waiting.last?.due) {
                    waiting.insert(job, at: waiting.firstIndex(notAfter: job.due))
                }
                let now = SystemTime().instant
                while let job = waiting.last, job.due <= now, !isStopped.load(ordering: .acquiring) {
                    waiting.removeLast()
                    job.run()
                }
            }
            _ = inbox.takeAll()
        }
    }

    private let name: String
    private let loop = Loop()
    private let thread = Mutex<OwnThread?>(nil)

    public init(name: String) { self.name = name }

    deinit { stop() }

    /// Ends the thread, and drops the jobs that are not due.
    public func stop() {
        loop.isStopped.store(true, ordering: .releasing)
        loop.inbox.nudge()
        guard let thread = thread.withLock({ $0.take() }), !thread.isCurrent else { return }
        thread.join()
    }

    public func run(after delay: Duration, _ job: @escaping @Sendable () -> Void) {
        loop.inbox.put(Job(due: SystemTime().instant + delay, run: job))
        guard !loop.isStopped.load(ordering: .acquiring) else { return }
        thread.withLock { thread in
            if thread == nil { thread = OwnThread(name: name) { [loop] in loop.run() } }
        }
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
}

extension [TimerQueue.Job] {
    /// Where a job that is due at `due` is inserted, before those that are due at the same time: they run first.
    fileprivate func firstIndex(notAfter due: MonotonicInstant) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if self[middle].due > due { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
