import PosternCore
import PosternThreads
import Synchronization

/// Answers appends whose commit takes too long: its outcome is not known yet. What the commit says later is dropped.
final class AnswerDeadlines: Loop, @unchecked Sendable {
    // @unchecked: `known` belongs to the thread that turns.
    typealias Completion = @Sendable (Result<AppendReceipt, AppendError>) -> Void

    let name = "postern-answers"
    private let timeout: Duration
    private let threads: any Threads
    private let running = Mutex<(any RunningLoop)?>(nil)
    private let added = Mutex(Added())
    private let nudges = Inbox<Never>()
    private let isStopping = Atomic<Bool>(false)
    private var known: ArraySlice<Pending> = []

    private struct Added {
        var appends: [Pending] = []
        /// Whether the loop waits for nothing else.
        var isIdle = true
    }

    /// An append that is to be answered once.
    private final class Pending: Sendable {
        let deadline: MonotonicInstant
        private let completion: Mutex<Completion?>

        init(_ completion: @escaping Completion, by deadline: MonotonicInstant) {
            self.completion = Mutex(completion)
            self.deadline = deadline
        }

        var isAnswered: Bool { completion.withLock { $0 == nil } }
        func answer(_ result: Result<AppendReceipt, AppendError>) { completion.withLock { $0.take() }?(result) }
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
    func add(_ completion: @escaping Completion) -> Completion {
        let pending = Pending(completion, by: threads.instant + timeout)
        let wasIdle = added.withLock { added in
            added.appends.append(pending)
            defer { added.isIdle = false }
            return added.isIdle
        }
        if wasIdle { nudges.nudge() }
        return { pending.answer($0) }
    }

    func wait(until deadline: MonotonicInstant) -> Bool { nudges.wait(until: deadline) }

    /// Deadlines are in the order of the appends, and most appends are answered long before theirs: so this turns about once in
    /// a timeout, whatever the rate.
    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        _ = nudges.takeAll()
        guard !isStopping.load(ordering: .acquiring) else { return nil }
        added.withLock { added in
            known += added.appends
            added.appends = []
        }
        // Without effect on those that are answered.
        let isOver = { (append: Pending) in append.isAnswered || append.deadline <= now }
        for append in known.prefix(while: isOver) {
            append.answer(.failure(.store(.unresolved(detail: "no answer to the commit within \(timeout)"))))
        }
        known = known.drop(while: isOver)
        guard known.isEmpty else { return known[known.startIndex].deadline }
        return added.withLock { added in
            added.isIdle = added.appends.isEmpty
            return added.isIdle ? .distantFuture : now
        }
    }
}
