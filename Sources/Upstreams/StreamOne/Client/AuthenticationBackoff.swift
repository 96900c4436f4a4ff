import PosternCore
import Synchronization

/// Pauses for authentications, because failed ones lead to longer blocks (Assumptions A3, A4). Any thread.
final class AuthenticationBackoff: Sendable {
    enum Subject: Hashable, Sendable {
        /// The configured user or application, outside sessions.
        case actor
        /// Logins from an end user's address.
        case address(String)
        /// Calls in a session.
        case session(String)
        /// Reports of a wrong clock.
        case clock
    }

    private let lengths: Pause.Lengths
    private let pauses = Mutex<[Subject: Pause]>([:])
    private static let maxSubjects = 10_000

    init(_ lengths: Pause.Lengths) { self.lengths = lengths }

    /// The current pause.
    func pause(of subject: Subject, now: Timestamp) -> Pause? {
        pauses.withLock { $0[subject].flatMap { $0.isOver(at: now, lengths) ? nil : $0 } }
    }

    /// Begins a pause, or the next longer one if an earlier one has ended.
    @discardableResult func begin(_ subject: Subject, _ reason: Pause.Reason, now: Timestamp) -> Pause {
        pauses.withLock { pauses in
            // At this point, the call has been signed again already.
            let pause = Pause.after(
                pauses[subject], reason, now: now, lengths: lengths, firstStep: reason == .authentication ? 1 : 0)
            if pauses.count >= Self.maxSubjects { pauses = pauses.filter { !$0.value.isOver(at: now, lengths) } }
            // If none of them has ended, a client is trying many addresses, and one more is not recorded.
            if pauses.count < Self.maxSubjects || pauses[subject] != nil { pauses[subject] = pause }
            return pause
        }
    }

    /// Adopts a pause that the queue has begun.
    func begin(_ subject: Subject, as pause: Pause) { pauses.withLock { $0[subject] = pause } }

    /// The platform has accepted an authentication. Returns the pause that ends with that, or has ended before.
    @discardableResult func end(_ subject: Subject) -> Pause? { pauses.withLock { $0.removeValue(forKey: subject) } }
}
