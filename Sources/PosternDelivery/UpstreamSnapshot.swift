public import PosternCore
public import PosternStore
public import PosternUpstream

/// The status of an upstream, as last published by its worker.
public struct UpstreamSnapshot: Sendable, Equatable {
    /// One word for the status, derived from the other values; see `health`.
    public enum Health: String, Sendable, CaseIterable {
        case up, degraded, down, unauthorized, misconfigured, paused, disabled
    }

    /// Whether the gateway does not deliver to it: it is disabled, or no longer configured.
    var isDisabled = false
    /// Nil unless an operator has paused it.
    public var pause: Pause?
    public var isPaused: Bool { pause != nil }
    /// The number of requests in flight.
    public var inFlight = 0
    /// The circuit of the upstream as a whole, not those of its endpoints.
    public var circuit: Circuit.State = .closed
    /// The number of failures in a row.
    public var failures = 0
    /// Why an operator has to intervene for the upstream as a whole; nil if that is not necessary.
    public var hold: Verdict.HoldReason?
    /// Endpoints that wait although the upstream does not.
    public var endpoints: [EndpointWait] = []
    /// When the next request may be sent, as far as the rate of the upstream is limited; nil if one may be now.
    public var pacedUntil: Timestamp?
    /// The same for the kinds that have reached a limit of their own.
    public var pacedKinds: [Kind: Timestamp] = [:]
    /// Requests per second at present; nil if they are not limited.
    public var rateLimit: Double?
    /// Messages per second; nil if they are not limited.
    public var messageLimit: Double?
    /// Present if the upstream requires tokens.
    public var token: TokenStatus?
    /// Nil if no request has succeeded in the life of the store.
    public var lastSuccessAt: Timestamp?
    /// The last failed attempt of any endpoint; kept when a later one succeeds.
    public var lastError: AttemptError?

    /// An endpoint that waits although the upstream does not.
    public struct EndpointWait: Sendable, Equatable {
        public var name: String
        /// What its messages wait for: `circuit`, `credentials` or `guard`.
        public var waitingFor: WaitReason
        /// Nil while the endpoint is probed.
        public var until: Timestamp?
        public var lastError: AttemptError?
    }

    /// The status of the token, without the token itself.
    public struct TokenStatus: Sendable, Equatable {
        /// Whether there is a token to send with.
        public var isValid: Bool
        /// Nil if there is no token, or if it reports no expiry.
        public var expiresAt: Timestamp?
        /// The number of fetches in a row that returned none.
        public var failures = 0
        /// Whether the last fetch failed because of the credentials.
        var credentialsRefused = false
        /// When the next fetch is made after one that failed.
        var retryAt: Timestamp?
    }

    public init() {}

    /// An upstream that is not configured.
    public static let disabled: Self = {
        var snapshot = Self()
        snapshot.isDisabled = true
        return snapshot
    }()

    /// When the upstream may be tried again; nil while it may be now.
    public var reopensAt: Timestamp? { if case .open(let until) = circuit { until } else { nil } }

    /// The only derivation of an upstream's health, from the other values.
    public var health: Health {
        if isDisabled { return .disabled }
        if isPaused { return .paused }
        let lacksToken = token.map { !$0.isValid && $0.failures > 0 } ?? false
        if hold == .credentials || lacksToken && token?.credentialsRefused == true { return .unauthorized }
        if circuit != .closed, hold == .configuration { return .misconfigured }
        if circuit != .closed || lacksToken { return .down }
        return failures > 0 || !endpoints.isEmpty || (token?.failures ?? 0) > 0 ? .degraded : .up
    }
}
