import Synchronization

/// What a handler remembers of a connection from one request to the next. Any thread.
public final class ConnectionMemory: Sendable {
    private let slot = Mutex<(any AnyObject & Sendable)?>(nil)

    public init() {}

    /// Nil until the handler sets it; released with the connection, at the latest.
    public var value: (any AnyObject & Sendable)? {
        get { slot.withLock { $0 } }
        set {
            // The former value is released without the lock.
            _ = slot.withLock { slot in
                defer { slot = newValue }
                return slot
            }
        }
    }
}
