import Synchronization

/// A few threads for work that blocks or takes long: reading the store, hashing a password. They start when there is
/// work for them. Any thread may call.
public final class BlockingExecutor: Sendable {
    public typealias Work = @Sendable () -> Void

    private let name: String
    private let threads: Int
    private let queue = Queue()
    private let started = Mutex<[OwnThread]>([])

    /// - Parameters:
    ///   - name: of the threads; if there are several, each has its number behind it.
    ///   - threads: the most that work at a time.
    public init(name: String, threads: Int) {
        self.name = name
        self.threads = threads
    }

    deinit { stop() }

    public func run(_ work: @escaping Work) { run(work, isUrgent: false) }

    /// Before all work that waits; for what is quick.
    public func runSoon(_ work: @escaping Work) { run(work, isUrgent: true) }

    /// The number of pieces of work that no thread has begun.
    public var waiting: Int { queue.state.withLock { $0.urgent.count + $0.normal.count } }

    private func run(_ work: @escaping Work, isUrgent: Bool) {
        guard queue.add(work, isUrgent: isUrgent) else { return }
        started.withLock { started in
            guard started.count < threads else { return }
            let number = started.count
            started.append(
                OwnThread(name: threads == 1 ? name : "\(name)-\(number)") { [queue] in queue.loop() })
        }
    }

    /// Ends the threads once all work that was handed in is done.
    public func stop() {
        queue.end()
        for thread in started.withLock({ exchange(&$0) }) where !thread.isCurrent { thread.join() }
    }

    private func exchange(_ threads: inout [OwnThread]) -> [OwnThread] {
        defer { threads = [] }
        return threads
    }

    /// What the threads share.
    private final class Queue: Sendable {
        struct State {
            var urgent: [Work] = []
            var normal: [Work] = []
            /// The threads that wait, by what wakes them.
            var idle: [Inbox<Void>] = []
            var hasEnded = false

            mutating func next() -> Work? {
                if !urgent.isEmpty { return urgent.removeFirst() }
                return normal.isEmpty ? nil : normal.removeFirst()
            }
        }
        let state = Mutex(State())

        /// Returns whether no thread was free to take it.
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
            for thread in idle { thread.nudge() }
        }

        func loop() {
            let wakeUp = Inbox<Void>()
            while true {
                let (work, hasEnded) = state.withLock { state in
                    let work = state.next()
                    if work == nil, !state.hasEnded { state.idle.append(wakeUp) }
                    return (work, state.hasEnded)
                }
                if let work {
                    work()
                } else if hasEnded {
                    return
                } else {
                    _ = wakeUp.takeAll(waitingUntil: nil)
                }
            }
        }
    }
}
