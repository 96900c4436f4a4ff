import PosternCore
import PosternThreads
import Synchronization

/// Answers jobs whose commit takes too long: its outcome is not known yet. What the commit says later is dropped.
final class AnswerDeadlines: Loop, @unchecked Sendable {
    // @unchecked: `known` belongs to the thread that turns.
    let name = "postern-answers"
    private let timeout: Duration
    private let threads: any Threads
    private let running = Mutex<(any RunningLoop)?>(nil)
    private let added = Mutex(Added())
    private let nudges = Inbox<Never>()
    private let isStopping = Atomic<Bool>(false)
    private var known: ArraySlice<Pending> = []

    private struct Added {
        var jobs: [Pending] = []
        /// Whether the loop waits for nothing else.
        var isIdle = true
    }

    /// A job that is to be answered once.
    private final class Pending: Sendable {
        let deadline: MonotonicInstant
        /// Nil once it is answered.
        private let failure: Mutex<(@Sendable () -> Void)?>

        init(by deadline: MonotonicInstant, failure: @escaping @Sendable () -> Void) {
            self.failure = Mutex(failure)
            self.deadline = deadline
        }

        var isAnswered: Bool { failure.withLock { $0 == nil } }
        func fail() { failure.withLock { $0.take() }?() }
        /// Returns whether this is the first answer.
        func answer() -> Bool { failure.withLock { $0.take() } != nil }
    }

    init(after timeout: Duration, by threads: any Threads) { (self.timeout, self.threads) = (timeout, threads) }

    func start() throws(SystemLimitError) {
        let started = try threads.start(self)
        running.withLock { $0 = started }
    }

    func stop() {
        isStopping.store(true, ordering: .releasing)
        nudges.nudge()
        running.withLock { $0.take() }?.join()
    }

    /// Returns what to call instead of `completion`.
    func add<Success, Failure: Error>(
        _ completion: @escaping @Sendable (Result<Success, Failure>) -> Void,
        failingWith failure: @escaping @Sendable (StoreError) -> Failure
    ) -> @Sendable (Result<Success, Failure>) -> Void {
        let pending = Pending(by: threads.instant + timeout) { [timeout] in
            completion(.failure(failure(.unresolved(detail: "no answer to the commit within \(timeout)"))))
        }
        let wasIdle = added.withLock { added in
            added.jobs.append(pending)
            defer { added.isIdle = false }
            return added.isIdle
        }
        if wasIdle { nudges.nudge() }
        return { if pending.answer() { completion($0) } }
    }

    func wait(until deadline: MonotonicInstant) -> Bool { nudges.wait(until: deadline) }

    /// Deadlines are in the order of the jobs, and most jobs are answered long before theirs: so this turns about once in
    /// a timeout, whatever the rate.
    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        _ = nudges.takeAll()
        guard !isStopping.load(ordering: .acquiring) else { return nil }
        added.withLock { added in
            known += added.jobs
            added.jobs = []
        }
        // Without effect on those that are answered.
        let isOver = { (job: Pending) in job.isAnswered || job.deadline <= now }
        known.prefix(while: isOver).forEach { $0.fail() }
        known = known.drop(while: isOver)
        guard known.isEmpty else { return known[known.startIndex].deadline }
        return added.withLock { added in
            added.isIdle = added.jobs.isEmpty
            return added.isIdle ? .distantFuture : now
        }
    }
}
