public import PosternCore
public import PosternUpstream

/// A key that callers may present. Only its digest is known.
public struct APIKey: Sendable, Equatable {
    public typealias Scope = RouteAccess.Scope

    /// Identifies the key in log lines; the key itself is never logged.
    public var name: String
    /// SHA-256 of the key's text: 32 bytes. Empty if the key is a client certificate alone.
    public var sha256: [UInt8]
    /// The common name of verified client certificates that are accepted instead of the key. Nil: none is accepted.
    public var certificateName: String?
    /// What the holder may do; scopes do not include each other.
    public var scopes: Set<Scope>
    /// Nil means all of them.
    var upstreams: Set<UpstreamName>?
    /// The rate limits of all requests with this key together.
    var limits: RateLimits
    /// How many of its messages are sent for one of another key with the weight 1, where those of different keys take turns:
    /// 1 to 100.
    public var weight: Int
    /// Nil means never.
    public var expiresAt: Timestamp?

    public init(
        name: String, sha256: [UInt8], certificateName: String? = nil, scopes: Set<Scope>,
        upstreams: Set<UpstreamName>? = nil, limits: RateLimits = RateLimits(), weight: Int = 1,
        expiresAt: Timestamp? = nil
    ) {
        self.name = name
        self.sha256 = sha256
        self.certificateName = certificateName
        self.scopes = scopes
        self.upstreams = upstreams
        self.limits = limits
        self.weight = weight
        self.expiresAt = expiresAt
    }

    /// Whether its holder may post messages for this upstream.
    public func mayPost(to upstream: UpstreamName) -> Bool {
        scopes.contains(.write) && upstreams?.contains(upstream) ?? true
    }
}

/// How much the holder of a key may send.
public struct RateLimits: Sendable, Equatable {
    /// 0 means no limit.
    public var requestsPerSecond: Double
    /// 0 means no limit.
    public var messagesPerSecond: Double
    /// The burst that is allowed of either. 0 means as much as one second allows.
    public var burst: Int

    public init(requestsPerSecond: Double = 0, messagesPerSecond: Double = 0, burst: Int = 0) {
        self.requestsPerSecond = requestsPerSecond
        self.messagesPerSecond = messagesPerSecond
        self.burst = burst
    }
}
