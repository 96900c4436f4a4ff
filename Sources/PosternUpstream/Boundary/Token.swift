public import PosternCore

/// A credential that an upstream issues for a limited time.
public struct Token: Sendable, Equatable {
    /// The value, verbatim as it is sent in the header.
    public let value: String
    /// When to refresh the token: before it expires.
    public let renewAt: Timestamp
    /// Nil if it does not expire.
    public let expiresAt: Timestamp?

    public init(value: String, renewAt: Timestamp, expiresAt: Timestamp?) {
        self.value = value
        self.renewAt = renewAt
        self.expiresAt = expiresAt
    }
}

/// How to obtain an upstream's token. The delivery fetches it, waits for it, and shares it among senders.
public protocol TokenSource: Sendable {
    var tokenRequest: UpstreamRequest { get }
    /// Reads the response. Throws a `Token.Failure` if it contains no token.
    func token(from response: UpstreamResponse, now: Timestamp) throws(Token.Failure) -> Token
}

extension Token {
    /// The response to a token request contains no token.
    public struct Failure: Error, Sendable, Equatable {
        /// The credentials are wrong; an operator has to correct them.
        public let credentialsRefused: Bool
        /// The text for the log and `lastError`, in the words of the type. It contains nothing of the response, the token,
        /// or the credentials.
        public let detail: String

        public init(credentialsRefused: Bool, detail: String) {
            self.credentialsRefused = credentialsRefused
            self.detail = detail
        }
    }
}
