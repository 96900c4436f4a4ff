import PosternCore
import Synchronization

/// A few threads for work that blocks or takes long: reading the store, hashing a password. The first starts at once, so
/// that no work is without one; the others start when there is work for them. Any thread may call.
public final class BlockingExecutor: Sendable {
    public typealias Work = @Sendable () -> Void

    private let name: String
    private let most: Int
    private let threads: any Threads
    private let queue = Queue()
    private let started: Mutex<[any RunningLoop]>
    private let reportShortage: @Sendable (SystemLimitError) -> Void
    private let hasReported = Atomic<Bool>(false)

    /// - Parameters:
    ///   - name: The name of the threads. If there are several, a number is appended to each.
    ///   - most: The maximum number of threads that work at a time.
    ///   - reportShortage: Called the first time that one of the others cannot be started; those that run do its work.
    public init(
        name: String, atATime most: Int, on threads: any Threads,
        reportShortage: @escaping @Sendable (SystemLimitError) -> Void = { _ in }
    ) throws(SystemLimitError) {
        self.name = name
        self.most = most
        self.threads = threads
        self.reportShortage = reportShortage
        let first = try threads.start(Worker(name: most == 1 ? name : "\(name)-0", queue: queue))
        started = Mutex([first])
    }

    deinit { stop() }

    /// Enqueues work behind all other work.
    public func run(_ work: @escaping Work) { run(work, isUrgent: false) }

    /// Enqueues work before all other work. For quick work.
    public func runSoon(_ work: @escaping Work) { run(work, isUrgent: true) }

    /// The number of pieces of work that no thread has begun.
    public var waiting: Int { queue.state.withLock { $0.urgent.count + $0.normal.count } }

    private func run(_ work: @escaping Work, isUrgent: Bool) {
        guard queue.add(work, isUrgent: isUrgent) else { return }
        started.withLock { started in
            // None are left after the stop.
            guard !started.isEmpty, started.count < most else { return }
            do throws(SystemLimitError) {
                started.append(try threads.start(Worker(name: "\(name)-\(started.count)", queue: queue)))
            } catch {
                if !hasReported.exchange(true, ordering: .relaxed) { reportShortage(error) }
            }
        }
    }

    /// Ends the threads once all work that was submitted is done.
    public func stop() {
        queue.end()
        for thread in started.withLock({ started in
            defer { started = [] }
            return started
        }) {
            thread.join()
        }
    }

    /// What the workers share.
    private final class Queue: Sendable {
        struct State {
            var urgent: [Work] = []
            var normal: [Work] = []
            /// Wakes the workers that have nothing to do.
            var idle: [Inbox<Void>] = []
            var hasEnded = false

            mutating func next() -> Work? {
                if !urgent.isEmpty { return urgent.removeFirst() }
                return normal.isEmpty ? nil : normal.removeFirst()
            }
        }
        let state = Mutex(State())

        /// Returns whether no worker was free to take it.
        func add(_ work: @escaping Work, isUrgent: Bool) -> Bool {
            let idle = state.withLock { state in
                if isUrgent { state.urgent.append(work) } else { state.normal.append(work) }
                return state.idle.popLast()
            }
            idle?.nudge()
            return idle == nil
        }

        func end() {
            let idle = state.withLock { state in
                state.hasEnded = true
                defer { state.idle = [] }
                return state.idle
            }
            for worker in idle { worker.nudge() }
        }
    }

    /// Does one piece of work per turn.
    private final class Worker: Loop {
        let name: String
        private let queue: Queue
        private let wakeUp = Inbox<Void>()

        init(name: String, queue: Queue) {
            self.name = name
            self.queue = queue
        }

        func turn(at now: MonotonicInstant) -> MonotonicInstant? {
            _ = wakeUp.takeAll()
            let (work, hasEnded) = queue.state.withLock { state in
                let work = state.next()
                if work == nil, !state.hasEnded, !state.idle.contains(where: { $0 === wakeUp }) {
                    state.idle.append(wakeUp)
                }
                return (work, state.hasEnded)
            }
            guard let work else { return hasEnded ? nil : .distantFuture }
            work()
            return .distantPast
        }

        func wait(until deadline: MonotonicInstant) -> Bool { wakeUp.wait(until: deadline) }
    }
}
