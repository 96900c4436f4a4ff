public import PosternCore

/// An error as `application/problem+json` (RFC 9457).
public struct Problem: Error {
    public var slug: ProblemSlug
    /// 400 to 599.
    public var status: Int
    /// The same for every occurrence of the slug, by default.
    var title: String
    /// What is wrong with this request and what to do. Never contains a payload or a credential.
    public var detail: String
    /// Further members, each as JSON, for example `("errors", "[…]")`.
    var members: [(name: String, json: String)]
    /// Further headers, for example `Retry-After`.
    public var headers: [(name: String, value: String)]
    /// Whether to close the connection after the response.
    public var close: Bool

    /// If `title` is nil, it is that of the slug.
    public init(
        slug: ProblemSlug, status: Int, title: String? = nil, detail: String,
        members: [(name: String, json: String)] = [],
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

    /// The response to the request of `head`; `instance` is its path.
    public func response(to head: RequestHead) -> HTTPResponse {
        response(instance: head.path, requestID: head.requestID)
    }

    /// `instance` is the path of the request; `requestID` is added as a member.
    public func response(instance: String, requestID: String) -> HTTPResponse {
        var json = "{\"type\":\"urn:postern:problem:\(slug.rawValue)\",\"title\":\(JSONEscapes.quoted(title))"
        json += ",\"status\":\(status),\"detail\":\(JSONEscapes.quoted(detail))"
        json += ",\"instance\":\(JSONEscapes.quoted(instance)),\"requestId\":\(JSONEscapes.quoted(requestID))"
        for member in members { json += ",\(JSONEscapes.quoted(member.name)):\(member.json)" }
        return HTTPResponse(
            status: status, headers: [("Content-Type", "application/problem+json")] + headers,
            body: Array((json + "}\n").utf8), close: close)
    }
}
