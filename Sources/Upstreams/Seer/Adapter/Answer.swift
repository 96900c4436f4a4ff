import PosternCore
import PosternUpstream

/// What a response of Seer means, where it differs from the default (the specification's "Interpreting responses").
struct Answer {
    private let response: UpstreamResponse
    private let now: Timestamp

    init(_ response: UpstreamResponse, now: Timestamp) {
        self.response = response
        self.now = now
    }

    var judgement: Judgement {
        switch response.status {
        // All were accepted, whatever the body contains (Assumption 9).
        case 200...299: Judgement(.delivered(), notice: hasUnexpectedBody ? "the response to a report has a body" : nil)
        case 401: Judgement(.refreshToken)
        default: Judgement(.usual(for: response, now: now))
        }
    }

    private var hasUnexpectedBody: Bool {
        let body = response.body.filter { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        return !body.isEmpty && body != Array("{}".utf8)
    }
}
