public import PosternCore

/// Handles the requests of a server. Its methods run on a worker thread, which serves no other connection meanwhile, so
/// they must not block.
public protocol HTTPHandler: Sendable {
    /// Called once the headers are in, before any of the body is read.
    func admit(_ head: RequestHead) -> HeaderDecision
    /// Called instead of `admit` if the server itself rejects a request before its headers are complete.
    func wasRefused(_ request: UnreadRequest)
    /// The response to a request that the server itself refuses. `path` is as it was sent; empty if it was not read.
    func response(to problem: Problem, path: String, requestID: String) -> HTTPResponse
    /// Headers that are added to the response to this request, also if the server itself refuses it, unless the response
    /// has them. `head` is nil if the server could not read it.
    func commonHeaders(for head: RequestHead?) -> [(name: String, value: String)]
}

extension HTTPHandler {
    /// Does nothing by default.
    public func wasRefused(_ request: UnreadRequest) {}
    /// A problem document by default.
    public func response(to problem: Problem, path: String, requestID: String) -> HTTPResponse {
        problem.response(instance: path, requestID: requestID)
    }
    /// None by default.
    public func commonHeaders(for head: RequestHead?) -> [(name: String, value: String)] { [] }
}

/// Whether a request may send its body.
public enum HeaderDecision: Sendable {
    /// A longer body is rejected with 413.
    case accept(maxBodyBytes: Int, any AdmittedRequest)
    /// The response is sent at once; the connection is closed if a body was announced.
    case refuse(HTTPResponse)
}

/// A request whose headers were accepted. Its methods run on the same threads as those of `HTTPHandler`.
public protocol AdmittedRequest: Sendable {
    /// Called when the body is complete. `body` is as sent, with its chunks joined; a content coding is left to this
    /// method. `responder` may be used at once or later, from any thread.
    func answer(_ body: [UInt8], _ responder: Responder)
    /// How much of the memory budget a body of that many bytes takes, from its headers until `answer` returns. Not less
    /// for a longer body.
    func memory(forBody bytes: Int) -> Int
    /// Headers that are added if the server itself refuses the body, for example because it is too large.
    var refusalHeaders: [(name: String, value: String)] { get }
    /// Called instead of `answer` if the server itself refuses the body. `slug` is that of the problem it sends.
    func wasRefused(with status: Int, _ slug: ProblemSlug)
}

extension AdmittedRequest {
    /// That of the body alone by default.
    public func memory(forBody bytes: Int) -> Int { bytes }
    /// None by default.
    public var refusalHeaders: [(name: String, value: String)] { [] }
    /// Does nothing by default.
    public func wasRefused(with status: Int, _ slug: ProblemSlug) {}
}
