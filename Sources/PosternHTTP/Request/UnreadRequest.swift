public import PosternCore

/// A request that the server rejected before its headers were complete.
public struct UnreadRequest: Sendable {
    /// The client's `X-Request-Id` if it arrived before the fault and is valid, otherwise a fresh one.
    public let id: String
    /// Nil if the request line is not valid, or had not arrived.
    public let method: String?
    /// The other end of the connection, which may be a proxy.
    public let peer: PeerAddress
    /// The status of the response.
    public let status: Int
    /// The kind of the problem that the response describes.
    public let slug: ProblemSlug
}
