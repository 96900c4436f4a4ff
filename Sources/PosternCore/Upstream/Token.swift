/// A credential that an upstream hands out for a while.
public struct Token: Sendable, Equatable {
    /// Verbatim, as it goes into the header.
    public let value: String
    /// When to have a new one; before it expires.
    public let renewAt: Timestamp
    public let expiresAt: Timestamp?

    public init(value: String, renewAt: Timestamp, expiresAt: Timestamp?) {
        self.value = value
        self.renewAt = renewAt
        self.expiresAt = expiresAt
    }
}

/// How to obtain an upstream's token. Fetching, waiting and sharing it among senders is the delivery's.
public protocol TokenSource: Sendable {
    var tokenRequest: UpstreamRequest { get }
    /// Reads the answer. Throws what to do about one that holds no token.
    func token(from response: UpstreamResponse, now: Timestamp) throws(TokenRefusal) -> Token
}

/// A token request that was answered without a token.
public struct TokenRefusal: Error, Sendable, Equatable {
    /// The credentials are wrong; only an operator can help.
    public let credentialsRefused: Bool
    public let detail: String

    public init(credentialsRefused: Bool, detail: String) {
        self.credentialsRefused = credentialsRefused
        self.detail = detail
    }
}
