import PosternCompression
import PosternCore
import PosternHTTP

/// The content coding of a body (RFC 9110, section 8.4): gzip, or none. It is removed in the same way for every
/// request.
enum ContentCoding {
    case identity, gzip

    /// Throws for a coding that is not supported.
    init(_ head: RequestHead) throws(Problem) {
        switch head.header("Content-Encoding")?.lowercased() {
        case nil, "", "identity": self = .identity
        case "gzip", "x-gzip": self = .gzip
        default:
            throw Problem(
                slug: .unsupportedMediaType, status: 415, detail: "The only supported Content-Encoding is gzip.",
                headers: [("Accept-Encoding", "gzip")])
        }
    }

    /// Returns the decoded body, of at most `maxBytes`.
    ///
    /// - Parameter maxRatio: Of the decoded body to `body`; nil: the usual one.
    func decoded(_ body: [UInt8], maxBytes: Int, maxRatio: Int? = nil) throws(Problem) -> [UInt8] {
        guard self == .gzip, !body.isEmpty else { return body }
        do throws(GzipError) {
            return try Gzip.decompress(body, maxBytes: maxBytes, maxRatio: maxRatio ?? Gzip.maxRatio)
        } catch {
            switch error {
            case .tooLarge, .ratioTooHigh:
                throw Problem(slug: .payloadTooLarge, status: 413, detail: "\(error).")
            case .damaged, .truncated, .trailingBytes:
                throw Problem(slug: .badRequest, status: 400, detail: "\(error).")
            }
        }
    }
}
