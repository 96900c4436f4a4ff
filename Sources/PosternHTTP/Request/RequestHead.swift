/// Request line and headers.
public final class RequestHead: Sendable {
    /// A token, as sent: methods are case-sensitive.
    public let method: String
    /// The path as it was sent: not decoded, without the query.
    public let path: String
    /// Nil if the target has no `?`.
    public let query: RequestQuery?
    let version: HTTPVersion
    /// The other end of the connection, which may be a proxy.
    public let peer: PeerAddress
    /// Verified once per connection.
    public let clientCertificate: ClientCertificate
    /// The client's `X-Request-Id` if it is 1 to 128 visible ASCII characters, otherwise a fresh one.
    public let requestID: String
    /// The same for all requests of a connection.
    public let connectionMemory: ConnectionMemory
    private let fields: HeaderFields

    init(
        _ head: consuming RequestReader.Head, peer: PeerAddress, clientCertificate: ClientCertificate = .notRequested,
        memory: ConnectionMemory = ConnectionMemory()
    ) {
        method = head.line.method
        path = head.line.target.path
        query = head.line.target.query.map { RequestQuery($0) }
        version = head.line.version
        self.peer = peer
        self.clientCertificate = clientCertificate
        requestID = head.framing.requestID ?? RequestID.fresh()
        connectionMemory = memory
        fields = head.fields
    }

    /// The value of the header called `name`, whatever its case. Several lines of that name are joined by commas to one
    /// list. If the field is not a list, such a request was rejected.
    public func header(_ name: String) -> String? { fields.value(of: name) }

    /// Calls `body` with the value of the header called `lowercaseName`, as sent; does not call it if there is none. Only
    /// for fields that are not lists, of which there is one line at most.
    public func withHeader(_ lowercaseName: StaticString, _ body: (UnsafeBufferPointer<UInt8>) -> Void) {
        fields.withValue(of: lowercaseName, body)
    }

    /// Whether the header called `lowercaseName` is `lowercaseValue`, ASCII letters compared without their case.
    public func hasHeader(_ lowercaseName: StaticString, _ lowercaseValue: StaticString) -> Bool {
        var isEqual = false
        withHeader(lowercaseName) { isEqual = $0.spells(lowercaseValue) }
        return isEqual
    }

    /// The values of the header lines called `name`, whatever its case, in their order.
    public func headers(_ name: String) -> [String] { fields.values(of: name) }

    /// The header lines whose name begins with `prefix`, whatever its case, in their order: the name in lower case, and
    /// the value as sent, which may be no text of UTF-8.
    public func headers(withPrefix prefix: String) -> [(name: String, value: [UInt8])] {
        fields.lines(withPrefix: prefix)
    }

    /// All headers in their order, with duplicates.
    public var headers: [(name: String, value: String)] { fields.all }
}
