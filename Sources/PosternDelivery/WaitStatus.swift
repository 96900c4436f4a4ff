public import PosternCore
public import PosternStore
import PosternUpstream

/// What a queued message waits for, and when it is sent next.
public struct WaitStatus: Sendable, Equatable {
    /// Nil while the message is in flight.
    public var waitingFor: WaitReason?
    /// The time of the next planned attempt of this message; nil if it depends on an event.
    public var nextAttemptAt: Timestamp?

    public init(waitingFor: WaitReason? = nil, nextAttemptAt: Timestamp? = nil) {
        self.waitingFor = waitingFor
        self.nextAttemptAt = nextAttemptAt
    }
}

extension UpstreamSnapshot {
    /// The only derivation of why a message waits. The reason nearest to the message takes precedence: an upstream-wide
    /// wait is reported only for messages that could be sent otherwise.
    ///
    /// - Parameter isHeldUp: Whether an earlier message of its lane is not settled. Evaluated only if that matters.
    public func wait(of facts: QueuedFacts, now: Timestamp, isHeldUp: () -> Bool) -> WaitStatus {
        let due = facts.nextAttemptAt.flatMap { $0 > now ? $0 : nil }
        if facts.isInFlight { return WaitStatus() }
        if isPaused || isDisabled { return WaitStatus(waitingFor: .pause) }
        // Whatever happens until then, it is not sent before its time.
        if let due, !facts.isRetry { return WaitStatus(waitingFor: .schedule, nextAttemptAt: due) }
        // Required settings are missing.
        if circuit == .closed, hold == .credentials { return WaitStatus(waitingFor: .credentials) }
        if facts.isParked { return WaitStatus(waitingFor: .token) }
        if let reason = facts.laneWaitsFor, facts.laneWaitsUntil.map({ $0 > now }) ?? true {
            return WaitStatus(
                waitingFor: reason, nextAttemptAt: facts.laneWaitsUntil.flatMap { $0 == .never ? nil : $0 })
        }
        if isHeldUp() { return WaitStatus(waitingFor: .order) }
        if circuit != .closed {
            return WaitStatus(
                waitingFor: hold == .credentials ? .credentials : .circuit,
                nextAttemptAt: [due, reopensAt].compactMap { $0 }.max().flatMap { $0 > now ? $0 : nil })
        }
        if let due { return WaitStatus(waitingFor: .retry, nextAttemptAt: due) }
        if let token, !token.isValid {
            return WaitStatus(
                waitingFor: token.credentialsRefused ? .credentials : .token, nextAttemptAt: token.retryAt)
        }
        // When its own turn comes depends on the messages before it.
        let paced = [pacedUntil, facts.kind.flatMap { pacedKinds[$0] }].compactMap(\.self).max()
        if let paced, paced > now { return WaitStatus(waitingFor: .rate) }
        return WaitStatus()
    }
}
