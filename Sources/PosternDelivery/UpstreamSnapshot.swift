public import PosternCore

/// How an upstream is, as its worker last saw it.
public struct UpstreamSnapshot: Sendable, Equatable {
    public enum Health: String, Sendable, CaseIterable { case up, degraded, down, unauthorized, paused }

    public var health: Health = .up
    public var isPaused = false
    /// Requests under way.
    public var inFlight = 0
    public var circuit: Circuit.State = .closed
    /// Failures in a row.
    public var failures = 0
    public var hold: HoldReason?
    public var token: TokenStatus?
    public var lastSuccessAt: Timestamp?
    public var lastError: AttemptError?

    public struct TokenStatus: Sendable, Equatable {
        public var isValid: Bool
        public var expiresAt: Timestamp?
    }

    public init() {}

    /// When the upstream may be tried again; nil while it may be now.
    public var reopensAt: Timestamp? { if case .open(let until) = circuit { until } else { nil } }
}
