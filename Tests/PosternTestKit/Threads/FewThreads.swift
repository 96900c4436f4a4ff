import Glibc
public import PosternCore
public import PosternThreads
import Synchronization

/// Threads of the machine, of which the system gives only some.
public final class FewThreads: Threads {
    private let left: Mutex<Int>

    /// - Parameter count: How many can be started.
    public init(_ count: Int) { left = Mutex(count) }

    public var instant: MonotonicInstant { DedicatedThreads().instant }

    public func start(_ loop: any Loop) throws(SystemLimitError) -> any RunningLoop {
        let isLeft = left.withLock { left in
            left -= 1
            return left >= 0
        }
        guard isLeft else { throw .thread(loop.name, EAGAIN) }
        return try DedicatedThreads().start(loop)
    }

    public func wait<Element>(for inbox: Inbox<Element>, until deadline: MonotonicInstant) {
        DedicatedThreads().wait(for: inbox, until: deadline)
    }
}
