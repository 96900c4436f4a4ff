import Glibc
import PosternCore
public import PosternThreads

/// How long a test waits for what has to happen. It ends a test that would otherwise hang, and decides nothing: a machine
/// that does other work at the same time takes minutes for what usually takes milliseconds.
public let longestWait = Duration.seconds(300)

/// Polls until `condition` holds. Returns false if it does not in time; the caller then fails the test.
public func eventually(
    within patience: Duration = longestWait, every pause: Duration = .milliseconds(5),
    _ condition: () throws -> Bool
) rethrows -> Bool {
    let end = ContinuousClock.now + patience
    while try !condition() {
        guard ContinuousClock.now < end else { return false }
        usleep(UInt32(pause.components.attoseconds / 1_000_000_000_000) + UInt32(pause.components.seconds) * 1_000_000)
    }
    return true
}

extension Threads {
    /// What `begin` hands to its completion. A test of real threads waits for it with a deadline.
    public func result<Value: Sendable, Failure: Error>(
        of begin: (@escaping @Sendable (Result<Value, Failure>) -> Void) throws -> Void
    ) throws -> Value {
        let results = Inbox<Result<Value, Failure>>()
        try begin { results.put($0) }
        return try receive(from: results)[0].get()
    }

    /// The next elements of `inbox`, at least `count`, waited for with a deadline.
    public func receive<Element>(_ count: Int = 1, from inbox: Inbox<Element>) throws -> [Element] {
        let deadline = instant + longestWait
        var received: [Element] = []
        while received.count < count {
            guard instant < deadline else { throw NothingCame() }
            received += take(from: inbox, until: deadline)
        }
        return received
    }
}

private struct NothingCame: Error {}
