import Synchronization

/// A number that only grows. Any thread.
public final class Counter: Sendable {
    private let total = Atomic<Int>(0)
    init() {}
    /// `amount` is not negative.
    public func add(_ amount: Int = 1) { total.wrappingAdd(amount, ordering: .relaxed) }
    public var value: Int { total.load(ordering: .relaxed) }
}
