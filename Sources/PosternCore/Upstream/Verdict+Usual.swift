extension Verdict {
    /// The meaning of a status unless a type's specification says otherwise. A type overrides what differs.
    ///
    /// | status | verdict |
    /// |---|---|
    /// | 2xx | delivered |
    /// | 401, 403 | hold, until the credentials are others |
    /// | 408, 425, 429, 5xx | again later, not before `Retry-After` |
    /// | 3xx, 404, 405, 406, 415 | hold, until the URL is another |
    /// | 413 and any other 4xx | halve the batch; one message alone is refused |
    ///
    /// A number that is not an HTTP status was sent by an intermediary, so the batch is sent again.
    public static func usual(for response: UpstreamResponse, now: Timestamp) -> Verdict {
        let status = response.status
        return switch status {
        case 200..<300: .delivered()
        case 401, 403: .holdUpstream(.credentials, detail: "HTTP \(status): the client was rejected")
        case 408, 425, 429: .retry(after: response.retryAfter(now: now))
        case 300..<400, 404, 405, 406, 415:
            .holdUpstream(.configuration, detail: "HTTP \(status): there is no such endpoint at this URL")
        case 400..<500: .split(reason: "HTTP \(response.excerpt)")
        default: .retry(after: response.retryAfter(now: now))
        }
    }
}

extension UpstreamResponse {
    /// The status and the beginning of the body. `RegisteredUpstream` masks secrets in it and shortens it.
    fileprivate var excerpt: String {
        body.isEmpty ? "\(status)" : "\(status): \(String(decoding: body.prefix(2048), as: UTF8.self))"
    }
}
