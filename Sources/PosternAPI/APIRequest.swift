import PosternCore
import PosternHTTP
import PosternJSON

/// A request whose headers are valid: its caller, its route, and the format of its body. Each is determined once.
final class APIRequest: AdmittedRequest {
    let head: RequestHead
    let match: RouteMatch
    /// Nil if the request required no key.
    let caller: Caller?
    private let coding: ContentCoding
    /// Nil for a media type that is not read as JSON, or if none is given.
    let form: BodyForm?
    /// Its errors were reported, unless the route reads the query itself.
    let query: QueryReader
    /// Whether messages are only validated and shown.
    let isDryRun: Bool
    let handler: GatewayHandler
    /// When its headers had arrived.
    let receivedAt: MonotonicInstant

    /// Throws the problem if the request can be rejected before its body is read.
    init(
        _ head: RequestHead, _ match: RouteMatch, _ caller: Caller?, _ handler: GatewayHandler,
        at receivedAt: MonotonicInstant
    ) throws(Problem) {
        var query = QueryReader(head.query, of: match.route)
        isDryRun = match.route.body.holdsMessages && query.flag("dryRun")
        if !match.route.readsQuery { try query.check() }
        self.query = query
        coding = try ContentCoding(head)
        let body = match.route.body
        form = body.form(head)
        if body.holdsMessages { try handler.handlers.ingest.checkReadiness(for: form, of: body) }
        if let mediaType = match.route.mediaType, !accepts(mediaType, head.header("Accept")) {
            throw Problem(
                slug: .notAcceptable, status: 406, detail: "Responses are \(mediaType); `Accept` excludes it.")
        }
        self.head = head
        self.match = match
        self.caller = caller
        self.handler = handler
        self.receivedAt = receivedAt
    }

    var refusalHeaders: [(name: String, value: String)] { caller?.limitHeaders ?? [] }

    func wasRefused(with status: Int, _ slug: ProblemSlug) {
        if !isDryRun { match.countRefusal(slug, in: handler.context.metrics) }
        handler.record(status, slug, head, match.metrics, caller, since: receivedAt)
    }

    func answer(_ body: [UInt8], _ responder: Responder) {
        let reply = MeteredResponder(self, responder, bytes: body.count)
        let (limits, memory) = (handler.context.limits, handler.context.memory)
        do throws(Problem) {
            let decoded = try coding.decoded(body, maxBytes: limits.maxBodyBytes)
            // A body without a media type is taken as JSON.
            if match.route.body == .json, !decoded.isEmpty, form != .json, head.header("Content-Type") != nil {
                throw Problem(
                    slug: .unsupportedMediaType, status: 415, detail: "Send application/json, in UTF-8.",
                    headers: [("Accept", "application/json")])
            }
            let needed = Self.memoryToParse(decoded.count)
            guard memory.take(needed, besides: body.count) else { throw .overloaded }
            defer { memory.give(needed) }
            match.respond(decoded, reply)
        } catch {
            reply.refuse(error)
        }
    }

    /// The memory that parsing a body of that many bytes may take in addition to it (`postern_json.cpp`). The promise
    /// is 8 times the body altogether. Small bodies do not count.
    private static func memoryToParse(_ bytes: Int) -> Int { bytes > 64 << 10 ? 7 * bytes : 0 }
}

extension Problem {
    init(_ fault: JSONError) { self.init(invalidJSON: "\(fault)", offset: fault.offset) }

    /// - Parameter fault: Names the byte at `offset`, too.
    init(invalidJSON fault: String, offset: Int) {
        self.init(
            slug: .invalidJSON, status: 400, detail: "The body is not acceptable JSON: \(fault).",
            members: [("offset", String(offset))])
    }

    static var overloaded: Problem {
        Problem(
            slug: .overloaded, status: 503,
            detail: "Too many large requests are in flight; nothing was stored. Send the request again later.",
            headers: [("Retry-After", "1")])
    }
}
