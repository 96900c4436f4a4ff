import PosternCompression
import PosternCore
import PosternHTTP

/// What a body is wrapped in (RFC 9110, section 8.4): gzip, or nothing. Undone for every request alike.
enum ContentCoding {
    case identity, gzip

    /// Nil for a coding that is not taken.
    init?(_ head: RequestHead) {
        guard let value = head.header("Content-Encoding"), !value.isEmpty else {
            self = .identity
            return
        }
        switch value.lowercased() {
        case "identity": self = .identity
        case "gzip", "x-gzip": self = .gzip
        default: return nil
        }
    }

    /// Said before the body is read.
    static func refusal(of head: RequestHead) -> Problem? {
        guard ContentCoding(head) == nil else { return nil }
        return Problem(
            slug: .unsupportedMediaType, status: 415, detail: "The only Content-Encoding taken is gzip.",
            headers: [("Accept-Encoding", "gzip")])
    }

    enum Unwrapped {
        case request(IncomingRequest)
        case refused(Problem)
    }

    /// `request` with the body that was meant, of at most `maxBytes`.
    static func unwrap(_ request: IncomingRequest, maxBytes: Int) -> Unwrapped {
        guard ContentCoding(request.head) == .gzip, !request.body.isEmpty else { return .request(request) }
        var request = request
        do throws(GzipError) {
            request.body = try Gzip.decompress(request.body, maxBytes: maxBytes)
            return .request(request)
        } catch {
            switch error {
            case .tooLarge, .ratioTooHigh:
                return .refused(Problem(slug: .payloadTooLarge, status: 413, detail: "\(error)."))
            case .damaged, .truncated, .trailingBytes:
                return .refused(Problem(slug: .badRequest, status: 400, detail: "\(error)."))
            }
        }
    }
}
