import Synchronization

/// A value that a transaction leaves for its completion. Both run on the writer's thread, one after the other.
public final class Outcome<Value: Sendable>: Sendable {
    private let stored: Mutex<Value>
    public init(_ value: Value) { stored = Mutex(value) }
    public var value: Value { stored.withLock { $0 } }
    public func set(_ value: Value) { stored.withLock { $0 = value } }
}
