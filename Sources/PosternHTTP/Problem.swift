import PosternCore

/// An error as `application/problem+json` (RFC 9457).
public struct Problem: Sendable {
    /// The last part of `type`, `urn:postern:problem:<slug>`.
    public enum Slug: String, Sendable, CaseIterable {
        case invalidJSON = "invalid-json"
        case invalidPayload = "invalid-payload"
        case unknownUpstream = "unknown-upstream"
        case unknownKind = "unknown-kind"
        case unauthorized
        case forbidden
        case notFound = "not-found"
        case methodNotAllowed = "method-not-allowed"
        case notAcceptable = "not-acceptable"
        case conflict
        case unknownSession = "unknown-session"
        case payloadTooLarge = "payload-too-large"
        case unsupportedMediaType = "unsupported-media-type"
        case rateLimited = "rate-limited"
        case outboxFull = "outbox-full"
        case diskFull = "disk-full"
        case overloaded
        case shuttingDown = "shutting-down"
        case idempotencyMismatch = "idempotency-mismatch"
        case `internal`
        /// Not HTTP as RFC 9112 has it, or a request this server never takes.
        case badRequest = "bad-request"
        case headerTooLarge = "header-too-large"
        /// The answer to `Prefer: wait` when the upstream refused.
        case deliveryFailed = "delivery-failed"

        /// The same for every occurrence, as RFC 9457 asks.
        public var title: String {
            let words = rawValue.split(separator: "-").joined(separator: " ")
            return switch self {
            case .invalidJSON: "Invalid JSON"
            case .internal: "Internal error"
            default: words.prefix(1).uppercased() + words.dropFirst()
            }
        }
    }

    public var slug: Slug
    public var status: Int
    public var title: String
    /// What is wrong with this request and what to do; never a payload or a credential.
    public var detail: String
    /// Further members, each as JSON, e.g. `("errors", "[…]")`.
    public var members: [(name: String, json: String)]
    /// Further headers, e.g. `Retry-After`.
    public var headers: [(name: String, value: String)]
    /// Close the connection after the answer.
    public var close: Bool

    /// `title` is the slug's own when nil.
    public init(
        slug: Slug, status: Int, title: String? = nil, detail: String, members: [(name: String, json: String)] = [],
        headers: [(name: String, value: String)] = [], close: Bool = false
    ) {
        self.slug = slug
        self.status = status
        self.title = title ?? slug.title
        self.detail = detail
        self.members = members
        self.headers = headers
        self.close = close
    }

    /// The answer to the request of `head`: `instance` is its path.
    public func response(to head: RequestHead) -> HTTPResponse {
        response(instance: head.path, requestID: head.requestID)
    }

    public func response(instance: String, requestID: String) -> HTTPResponse {
        var json = "{\"type\":\"urn:postern:problem:\(slug.rawValue)\",\"title\":\(JSONEscapes.quoted(title))"
        json += ",\"status\":\(status),\"detail\":\(JSONEscapes.quoted(detail))"
        json += ",\"instance\":\(JSONEscapes.quoted(instance)),\"requestId\":\(JSONEscapes.quoted(requestID))"
        for member in members { json += ",\(JSONEscapes.quoted(member.name)):\(member.json)" }
        return HTTPResponse(
            status: status, headers: [("Content-Type", "application/problem+json")] + headers,
            body: Array((json + "}").utf8), close: close)
    }
}
