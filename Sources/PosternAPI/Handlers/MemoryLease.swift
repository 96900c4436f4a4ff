import PosternCore
import Synchronization

/// Memory of a request that outlives the call that received it. Given back by `end`, or with the last reference.
final class MemoryLease: Sendable {
    private let budget: ByteBudget
    private let bytes: Atomic<Int>

    /// Takes `bytes` even if there is no room, because they are in use already.
    init(_ bytes: Int, of budget: ByteBudget) {
        self.budget = budget
        self.bytes = Atomic(bytes)
        budget.takeAnyway(bytes)
    }

    /// Nil if there is no room for `bytes`.
    init?(_ bytes: Int, ifFreeIn budget: ByteBudget) {
        guard budget.take(bytes) else { return nil }
        self.budget = budget
        self.bytes = Atomic(bytes)
    }

    deinit { end() }

    /// Takes more if there is room.
    func grow(by more: Int) -> Bool {
        guard budget.take(more, besides: bytes.load(ordering: .relaxed)) else { return false }
        bytes.wrappingAdd(more, ordering: .relaxed)
        return true
    }

    func end() { budget.give(bytes.exchange(0, ordering: .relaxed)) }
}
