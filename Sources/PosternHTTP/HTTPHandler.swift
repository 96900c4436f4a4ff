public import PosternCore

/// What a server asks about each request. Both methods run on a worker thread of the server, which serves no other
/// connection meanwhile: they must not block.
public protocol HTTPHandler: Sendable {
    /// Called once the headers are in, before any of the body is read.
    func admit(_ head: RequestHead) -> Admittance
    /// Called when the body is complete. `responder` may answer at once or later, from any thread.
    func answer(_ request: IncomingRequest, _ responder: Responder)
    /// Headers that are added to the response to this request, also if the server itself refuses it. If `admit` accepted
    /// it before that, for example because its body turned out to be too large, `refused` is the note.
    func commonHeaders(for head: RequestHead, refused: (any Sendable)?) -> [(name: String, value: String)]
}

extension HTTPHandler {
    public func commonHeaders(
        for head: RequestHead, refused: (any Sendable)?
    ) -> [(name: String, value: String)] { [] }
}

/// Whether a request may send its body.
public enum Admittance: Sendable {
    /// A longer body is refused with 413. `note` comes back with the request: what was found out already.
    case accept(maxBodyBytes: Int, note: (any Sendable)? = nil)
    /// Answered at once; the connection is closed if a body was announced.
    case refuse(HTTPResponse)
}

/// A complete request.
public struct IncomingRequest: Sendable {
    public let head: RequestHead
    /// As sent: chunks joined. A content coding is the handler's to undo.
    public var body: [UInt8]
    /// When the last byte was there.
    public let receivedAt: MonotonicInstant
    /// What `admit` wished to have back.
    public let note: (any Sendable)?
}
