internal import CCurl
import PosternCore
import PosternUpstream

extension TransferFailure {
    /// `bytesSent` counts what was passed to the system for the request. From the first byte on, the upstream may have
    /// received the request: whether the rest has left the machine is not known.
    init(_ code: CURLcode, bytesSent: Int, detail: String) {
        self.init(Self.reason(of: code, bytesSent: bytesSent), mayHaveArrived: bytesSent > 0, detail: detail)
    }

    static func cancelled(mayHaveArrived: Bool, because reason: String) -> Self {
        Self(.cancelled, mayHaveArrived: mayHaveArrived, detail: "Cancelled because \(reason)")
    }

    private static func reason(of code: CURLcode, bytesSent: Int) -> Reason {
        switch code {
        case CURLE_OPERATION_TIMEDOUT: .timeout
        case CURLE_OUT_OF_MEMORY where bytesSent == 0: .lackedResources
        // For a response that is not HTTP at all, libcurl reports "unsupported protocol", HTTP/0.9.
        case CURLE_WEIRD_SERVER_REPLY, CURLE_BAD_CONTENT_ENCODING,
            CURLE_UNSUPPORTED_PROTOCOL where bytesSent > 0:
            .garbled
        default: bytesSent > 0 ? .interrupted : .unreachable
        }
    }
}
