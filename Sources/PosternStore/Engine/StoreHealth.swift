import PosternCore
import Synchronization

/// Whether the store accepts changes, and if not, why. The writer's thread changes it; any thread reads it.
final class StoreHealth: Sendable {
    enum Condition: Int, Sendable {
        case sound
        /// Rejects messages; deliveries and deletions continue.
        case full
        /// Rejects everything, at once, until the database can be reached.
        case unavailable
        /// Rejects everything until the store has been checked.
        case failed
        /// Rejects everything permanently.
        case lost
    }

    private let current = Atomic<Int>(Condition.sound.rawValue)
    private let error = Mutex<StoreError?>(nil)

    var condition: Condition { Condition(rawValue: current.load(ordering: .acquiring)) ?? .sound }

    /// Why the store does not accept messages, or the error of the last commit; nil if there is no problem.
    var failure: StoreError? { error.withLock { $0 } }

    /// Why nothing may be written; nil if writing is possible.
    var refusal: StoreError? {
        switch condition {
        case .sound, .full: nil
        case .unavailable, .failed, .lost: failure ?? .failed(detail: "the store failed before")
        }
    }

    /// Returns false if this state, or a worse one, was known already.
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

    /// A single commit failed. The next one that succeeds clears this.
    func record(_ reason: StoreError) {
        if condition == .sound { error.withLock { $0 = reason } }
    }

    func committed() {
        if condition == .sound { error.withLock { $0 = nil } }
    }
}
