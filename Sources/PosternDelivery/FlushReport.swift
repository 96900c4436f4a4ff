public import PosternCore

/// How many messages a flush delivered, and how many it could not.
public struct FlushReport: Sendable, Equatable {
    /// The last message that the flush covers.
    public let through: MessageID
    /// The covered messages that reached a final state since the flush began.
    public internal(set) var delivered = 0
    /// The covered messages that reached another final state.
    public internal(set) var failed = 0
    /// Whether there was a token at its end; nil if the upstream requires none.
    public internal(set) var token: TokenCheck?
    /// Why covered messages could not be sent; nil if sending succeeded, or if nothing was sent.
    public internal(set) var error: AttemptError?

    /// The covered messages that the upstream has taken or refused.
    public var sent: Int { delivered + failed }

    init(through: MessageID) { self.through = through }
}

/// What is known of an upstream's credentials.
public enum TokenCheck: String, Sendable, CaseIterable {
    /// There is a token.
    case ok
    /// The token endpoint rejected the credentials, or some of them are not configured.
    case unauthorized
    /// The token endpoint did not respond, or its response contained no token.
    case unreachable
}
