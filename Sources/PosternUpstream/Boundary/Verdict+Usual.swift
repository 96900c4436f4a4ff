public import PosternCore

extension Verdict {
    /// The meaning of a status unless a type's specification says otherwise. A type overrides what differs.
    ///
    /// | status | verdict |
    /// |---|---|
    /// | 2xx | delivered |
    /// | 401, 402, 403 | hold, until the credentials or the account are others, or other messages are accepted |
    /// | 408, 420, 421, 425, 429, 449, 5xx | again later, not before `Retry-After`; after 421 on a new connection |
    /// | 460, 499 | the same: an intermediary reports that its client has hung up |
    /// | 3xx, 404, 405, 406, 415 | hold, until the URL is another, or other messages are accepted |
    /// | 407 | hold: a proxy requires credentials |
    /// | 411, 414, 417, 426, 428, 431, 463, 464, 494 to 497 | hold: every request has this form, whatever it carries |
    /// | 413 and any other 4xx | halve the batch; one message alone is refused |
    ///
    /// A number that is not an HTTP status was sent by an intermediary, so the batch is sent again.
    public static func usual(for response: UpstreamResponse, now: Timestamp) -> Verdict {
        let status = response.status
        return switch status {
        case 200..<300: .delivered()
        case 401, 403: .holdUpstream(.credentials, detail: "HTTP \(status): the client was rejected")
        case 402: .holdUpstream(.credentials, detail: "HTTP 402: the account of these credentials has to be paid")
        case _ where response.isDeferral: .retry(after: response.retryAfter(now: now))
        case 300..<400 where response.redirectTarget != nil:
            .holdUpstream(.configuration, detail: response.outline())
        case 300..<400, 404, 405, 406, 415:
            .holdUpstream(.configuration, detail: "HTTP \(status): there is no such endpoint at this URL")
        case 407: .holdUpstream(.configuration, detail: "HTTP 407: a proxy requires credentials")
        case 411, 414, 417, 426, 428, 431, 463, 464, 494...497:
            .holdUpstream(
                .configuration, detail: "HTTP \(status): the form of the request was rejected, not its payload")
        case 400..<500: .split(reason: response.excerpt)
        default: .retry(after: response.retryAfter(now: now))
        }
    }
}

extension UpstreamResponse {
    /// Whether the status asks for a later request, or comes from an intermediary whose client seemed to have hung up:
    /// 420 and 449 are older forms of 429, 460 and 499 are those of load balancers. 421 means that the connection leads to
    /// the wrong server, so that the transport does not use it again.
    public var isDeferral: Bool { [408, 420, 421, 425, 429, 449, 460, 499].contains(status) }

    /// The status and the beginning of the body. `AnyUpstream` masks secrets in it and shortens it.
    public var excerpt: String {
        let text = body.isEmpty ? "" : ": \(String(decoding: body.prefix(2048), as: UTF8.self))"
        return "HTTP \(status)\(text)"
    }
}
