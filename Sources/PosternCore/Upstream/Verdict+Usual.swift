extension Verdict {
    /// What a status means where the specification of a type says nothing else. A type overrides what differs.
    ///
    /// | status | verdict |
    /// |---|---|
    /// | 2xx | delivered |
    /// | 401, 403 | hold, until the credentials are others |
    /// | 408, 425, 429, 5xx | again later, not before `Retry-After` |
    /// | 3xx, 404, 405, 406, 415 | hold, until the URL is another |
    /// | 413 and any other 4xx | halve the batch; one message alone is refused |
    ///
    /// A number that is no status of HTTP comes from something in between, so the batch goes again.
    public static func usual(for response: UpstreamResponse, now: Timestamp) -> Verdict {
        let status = response.status
        return switch status {
        case 200..<300: .delivered()
        case 401, 403: .holdUpstream(.credentials, detail: "answered \(status): the client is not let in")
        case 408, 425, 429: .retry(after: response.retryAfter(now: now))
        case 300..<400, 404, 405, 406, 415:
            .holdUpstream(.configuration, detail: "answered \(status): nothing takes requests at this URL")
        case 400..<500: .split(reason: "answered \(response.excerpt)")
        default: .retry(after: response.retryAfter(now: now))
        }
    }
}

extension UpstreamResponse {
    /// The status and the begin of the body. `RegisteredUpstream` masks it, and cuts it to what a person reads.
    fileprivate var excerpt: String {
        body.isEmpty ? "\(status)" : "\(status): \(String(decoding: body.prefix(2048), as: UTF8.self))"
    }
}
