/// What a route requires of its caller (design, section 3.5).
public enum RouteAccess: Sendable, Equatable {
    /// A key with this scope. Scopes do not include each other.
    case scope(Scope)
    /// Any key, whatever its scopes.
    case anyKey
    /// No key: the route discloses nothing, or checks its callers itself.
    case open
    /// A key with the scope `write`, whether or not any is configured, also as the password of Basic (RFC 7617).
    case password
    /// What the platform requires of its SDKs, whether or not keys are configured.
    case platform

    public enum Scope: String, Sendable, CaseIterable {
        /// Handing in messages, tokens, and credentials; proxied calls.
        case write
        /// Looking at messages, upstreams, and metrics.
        case read
        /// Steering upstreams and messages.
        case admin
    }
}
