internal import PosternCore
import Synchronization

/// Runs jobs at their time, one after the other, on a thread of its own.
final class Timer: Sendable {
    private struct Job: Sendable {
        let due: MonotonicInstant
        let run: @Sendable () -> Void
    }
    private let inbox = Inbox<Job>()
    private let isStopped = Atomic<Bool>(false)
    private let thread = Mutex<OwnThread?>(nil)

    func start() {
        let started = OwnThread(name: "fault-timer") { [self] in loop() }
        thread.withLock { $0 = started }
    }

    /// Ends the thread and drops the jobs that are not due.
    func stop() {
        isStopped.store(true, ordering: .relaxed)
        inbox.nudge()
        thread.withLock { $0.take() }?.join()
    }

    func run(after delay: Duration, _ job: @escaping @Sendable () -> Void) {
        inbox.put(Job(due: SystemTime().instant + delay, run: job))
    }

    /// Runs `step` after `delay` and then after each pause, as long as it returns true.
    func `repeat`<State: Sendable>(
        _ state: State, after delay: Duration = .zero, every pause: Duration,
        _ step: @escaping @Sendable (inout State) -> Bool
    ) {
        run(after: delay) { [self] in
            var state = state
            if step(&state) { `repeat`(state, after: pause, every: pause, step) }
        }
    }

    private func loop() {
        var waiting: [Job] = []
        while !isStopped.load(ordering: .relaxed) {
            waiting += inbox.takeAll(waitingUntil: waiting.map(\.due).min())
            let now = SystemTime().instant
            let due = waiting.filter { $0.due <= now }
            waiting.removeAll { $0.due <= now }
            for job in due.sorted(by: { $0.due < $1.due }) { job.run() }
        }
        _ = inbox.takeAll()
    }
}
