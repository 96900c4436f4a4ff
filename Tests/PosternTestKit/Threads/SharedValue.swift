import Synchronization

/// A value that a closure on another thread passes to the test.
public final class SharedValue<Value: Sendable>: Sendable {
    private let stored: Mutex<Value>
    public init(_ value: Value) { stored = Mutex(value) }
    public var value: Value { stored.withLock { $0 } }
    public func set(_ value: Value) { stored.withLock { $0 = value } }
}
