public import PosternCore

/// What a queued message waits for, and when it is sent next.
public struct WaitStatus: Sendable, Equatable {
    public var waitingFor: WaitingFor?
    /// The time of the next planned attempt of this very message; nil if only an event can bring it about.
    public var nextAttemptAt: Timestamp?

    public init(waitingFor: WaitingFor? = nil, nextAttemptAt: Timestamp? = nil) {
        self.waitingFor = waitingFor
        self.nextAttemptAt = nextAttemptAt
    }
}

/// What the store and the queue know of a queued message.
public struct QueuedMessageFacts: Sendable {
    public var isInFlight = false
    /// Whether its lane waits for a credential.
    public var isParked = false
    /// What a plan, or the endpoint, of its lane waits for.
    public var laneWaitsFor: WaitingFor?
    public var laneWaitsUntil: Timestamp?
    public var nextAttemptAt: Timestamp?
    /// Whether `nextAttemptAt` is that of a retry rather than a schedule.
    public var isRetry = false

    public init() {}
}

extension UpstreamSnapshot {
    /// The one derivation of why a message waits. What lies nearest to the message comes first: that of an upstream-wide
    /// wait is stated only for messages that could be sent otherwise.
    ///
    /// - Parameter isHeldUp: whether an earlier message of its lane is not done; asked only if that matters.
    public func wait(of facts: QueuedMessageFacts, now: Timestamp, isHeldUp: () -> Bool) -> WaitStatus {
        let due = facts.nextAttemptAt.flatMap { $0 > now ? $0 : nil }
        if facts.isInFlight { return WaitStatus() }
        if isPaused || isDisabled { return WaitStatus(waitingFor: .pause) }
        // Settings are missing.
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
        if let due { return WaitStatus(waitingFor: facts.isRetry ? .retry : .schedule, nextAttemptAt: due) }
        if let token, !token.isValid {
            return WaitStatus(
                waitingFor: token.credentialsRefused ? .credentials : .token, nextAttemptAt: token.retryAt)
        }
        return WaitStatus()
    }
}
