import PosternCore

/// What an answer of Seer's means (the specification's "Interpreting responses").
struct SeerAnswer {
    private let response: UpstreamResponse
    private let now: Timestamp

    init(_ response: UpstreamResponse, now: Timestamp) {
        self.response = response
        self.now = now
    }

    var judgement: Judgement {
        switch response.status {
        // All were taken, whatever the body says (Assumption 9).
        case 200...299: Judgement(.delivered(), notice: hasUnexpectedBody ? "a report was answered with a body" : nil)
        case 401: Judgement(.refreshToken)
        case 403: Judgement(.holdUpstream(.credentials, detail: "answered 403: the client is not let in"))
        case 300...399, 404, 405, 406, 415:
            Judgement(.holdUpstream(.configuration, detail: "answered \(response.status): nothing takes reports there"))
        case 408, 425, 429: Judgement(.retry(after: response.retryAfter(now: now)))
        case 400...499: Judgement(.split(reason: refusal))
        // 5xx, and numbers that mean nothing.
        default: Judgement(.retry(after: response.retryAfter(now: now)))
        }
    }

    private var hasUnexpectedBody: Bool {
        let body = response.body.filter { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        return !body.isEmpty && body != Array("{}".utf8)
    }

    /// Kept with the dead letter: no more of the body than a person reads.
    private var refusal: String {
        let body = String(decoding: response.body.prefix(1200), as: UTF8.self)
        guard !body.isEmpty else { return "answered \(response.status)" }
        return "answered \(response.status): \(body.count > 300 ? body.prefix(300) + "…" : body)"
    }
}
