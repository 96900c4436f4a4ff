public import PosternCore

/// Work that is done in turns. A turn takes what has arrived, does what is due, and returns when the next one is due.
///
/// A loop has no thread. `Threads` drives it: in the gateway on a thread of its own, in a test by hand. One thread at a
/// time calls the functions. Input from other threads has to end `wait`.
public protocol Loop: AnyObject, Sendable {
    /// The name of its thread.
    var name: String { get }

    /// Called once, before the first turn, by the thread that turns.
    func begin()

    /// - Parameter now: The time by the clock that `wait` goes by.
    /// - Returns: The time of the next turn if nothing arrives before; nil if the loop has ended.
    func turn(at now: MonotonicInstant) -> MonotonicInstant?

    /// Blocks until something has arrived, or until `deadline`. Returns whether something has.
    func wait(until deadline: MonotonicInstant) -> Bool
}

extension Loop {
    /// Does nothing by default.
    public func begin() {}
}

/// A loop that is being driven.
public protocol RunningLoop: AnyObject, Sendable {
    /// Waits until the loop has ended, which the caller has requested before. Returns at once if called from one of its
    /// own turns.
    func join()
}

/// What drives loops, and what other code waits with. The gateway has `DedicatedThreads`; a test can turn all loops on
/// one thread, in virtual time and in any order.
public protocol Threads: Sendable {
    /// The clock that loops wait by.
    var instant: MonotonicInstant { get }

    /// Drives `loop` until it ends.
    func start(_ loop: any Loop) throws(SystemLimitError) -> any RunningLoop

    /// Returns once `inbox` has an element or was nudged, or `deadline` is reached. Not for use inside turns of loops.
    func wait<Element>(for inbox: Inbox<Element>, until deadline: MonotonicInstant)

    /// The time after which a loop turns although nothing is due: `usual`, or longer where virtual time skips idle
    /// periods.
    func idleTime(_ usual: Duration) -> Duration
}

extension Threads {
    public func idleTime(_ usual: Duration) -> Duration { usual }

    /// Waits, and then takes all elements of `inbox`.
    public func take<Element>(
        from inbox: Inbox<Element>, until deadline: MonotonicInstant = .distantFuture
    ) -> [Element] {
        wait(for: inbox, until: deadline)
        return inbox.takeAll()
    }
}

/// A thread for each loop, by the machine's clock.
public struct DedicatedThreads: Threads {
    public init() {}

    public var instant: MonotonicInstant { SystemTime().instant }

    public func start(_ loop: any Loop) throws(SystemLimitError) -> any RunningLoop {
        try DedicatedThread(name: loop.name) { [self] in drive(loop) }
    }

    /// Turns `loop` on the calling thread until it ends.
    public func drive(_ loop: any Loop) {
        loop.begin()
        while let next = loop.turn(at: instant) { _ = loop.wait(until: next) }
    }

    public func wait<Element>(for inbox: Inbox<Element>, until deadline: MonotonicInstant) {
        _ = inbox.wait(until: deadline)
    }
}
