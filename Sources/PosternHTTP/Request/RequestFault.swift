import PosternCore

/// Why a request is rejected by its form alone. The connection is closed, because what follows cannot be framed.
enum RequestFault: Error, Equatable {
    /// Not valid HTTP (RFC 9112). The associated value is a sentence without its full stop.
    case malformed(String)
    case headTooLarge
    /// Neither HTTP/1.0 nor 1.1.
    case unknownVersion
    /// The body has more than this many bytes.
    case bodyTooLarge(limit: Int)

    var problem: Problem {
        switch self {
        case .malformed(let reason):
            Problem(slug: .badRequest, status: 400, detail: "Not valid HTTP: \(reason).", close: true)
        case .headTooLarge:
            Problem(
                slug: .headerTooLarge, status: 431,
                detail: "Request line and headers may have at most \(HTTPServerSettings.maxHeaderBytes) bytes.",
                close: true)
        case .unknownVersion:
            Problem(slug: .badRequest, status: 505, detail: "Send HTTP/1.1.", close: true)
        case .bodyTooLarge(let limit):
            Problem(
                slug: .payloadTooLarge, status: 413,
                detail: "The body may have at most \(limit) bytes. Send it in smaller parts.", close: true)
        }
    }
}
