import PosternCore
import Synchronization

/// Whether the store takes changes, and if not, why. The writer's thread changes it, any thread reads it.
final class StoreHealth: Sendable {
    enum Condition: Int, Sendable {
        case sound
        /// Rejects messages; deliveries and deletions go on.
        case full
        /// Rejects everything until the store was checked.
        case failed
        /// Rejects everything for good.
        case lost
    }

    private let current = Atomic<Int>(Condition.sound.rawValue)
    private let error = Mutex<StoreError?>(nil)

    var condition: Condition { Condition(rawValue: current.load(ordering: .acquiring)) ?? .sound }

    /// Why the store does not take messages, or the error of the last commit; nil if all is well.
    var trouble: StoreError? { error.withLock { $0 } }

    /// Why nothing at all may be written; nil if it may.
    var refusal: StoreError? {
        switch condition {
        case .sound, .full: nil
        case .failed, .lost: trouble ?? .failed(detail: "the store failed before")
        }
    }

    /// Returns false if that was known, or something worse.
    func becomes(_ condition: Condition, because reason: StoreError) -> Bool {
        guard condition.rawValue > self.condition.rawValue else { return false }
        error.withLock { $0 = reason }
        current.store(condition.rawValue, ordering: .releasing)
        return true
    }

    func recovered() {
        current.store(Condition.sound.rawValue, ordering: .releasing)
        error.withLock { $0 = nil }
    }

    /// A commit failed by itself; the next one that succeeds ends that.
    func note(_ reason: StoreError) {
        if condition == .sound { error.withLock { $0 = reason } }
    }

    func committed() {
        if condition == .sound { error.withLock { $0 = nil } }
    }
}
