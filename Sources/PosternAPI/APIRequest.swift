import PosternCompression
import PosternCore
import PosternHTTP
import PosternStore
import PosternUpstream

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
    /// The largest body, after decompression.
    let maxBodyBytes: Int
    /// Its body, until its caller has proven who it is; nil for a route that requires a key.
    let unprovenBody: MemoryLease?
    /// When its headers had arrived.
    let receivedAt: MonotonicInstant
    /// How long the response is delayed, because the request has a wrong key that it does not need.
    private let delay: Duration
    /// Whether another node has received it, which counts and logs it.
    let isRelayed: Bool

    /// Throws the problem if the request can be rejected before its body is read.
    init(
        _ head: RequestHead, _ match: RouteMatch, _ caller: Caller?, _ handler: GatewayHandler,
        at receivedAt: MonotonicInstant, delay: Duration = .zero, isRelayed: Bool = false
    ) throws(Problem) {
        var query = QueryReader(head.query, of: match.route)
        isDryRun = match.route.body.holdsMessages && query.flag("dryRun")
        if !match.route.readsQuery { try query.check() }
        self.query = query
        coding = try ContentCoding(head)
        let body = match.route.body
        form = body.form(head)
        if body.holdsMessages { try handler.handlers.ingest.checkReadiness(for: form, of: body) }
        if let call = match.call { try handler.handlers.sdk.checkReadiness(for: call, from: head.peer) }
        maxBodyBytes = match.call?.site.endpoints.settings.maxBodyBytes ?? handler.context.limits.maxBodyBytes
        let types = match.route.mediaTypes
        if !types.isEmpty, !types.contains(where: { accepts($0, head.header("Accept")) }) {
            throw Problem(
                slug: .notAcceptable, status: 406,
                detail: "Responses are \(types.joined(separator: " or ")); `Accept` excludes it.")
        }
        if match.route.checksItsCallers {
            guard
                let lease = MemoryLease(
                    Self.announcedBytes(head, upTo: maxBodyBytes), ifFreeIn: handler.context.unprovenBodies)
            else { throw .overloaded }
            unprovenBody = lease
        } else {
            unprovenBody = nil
        }
        self.head = head
        self.match = match
        self.caller = caller
        self.handler = handler
        self.receivedAt = receivedAt
        self.delay = delay
        self.isRelayed = isRelayed
    }

    var refusalHeaders: [(name: String, value: String)] { caller?.limitHeaders ?? [] }

    func wasRefused(with status: Int, _ slug: ProblemSlug) {
        if !isDryRun { match.countRefusal(slug, in: handler.context.metrics) }
        match.call?.count(SDKRefusal(slug).outcome)
        handler.record(status, slug, head, match.metrics, caller, since: receivedAt)
    }

    func answer(_ body: [UInt8], _ responder: Responder) {
        guard delay > .zero else { return proceed(body, responder) }
        handler.run(after: delay) { [self] in proceed(body, responder) }
    }

    private func proceed(_ body: [UInt8], _ responder: Responder) {
        let responder = MeteredResponder(self, responder, bytes: body.count)
        guard isUnproven, coding == .gzip, !body.isEmpty else { return take(body, responder) }
        // A few kilobytes of gzip may take as long as a body of the largest size.
        let context = handler.context
        let memory = MemoryLease(body.count + maxBodyBytes, of: context.memory)
        let job = UnprovenWork.Job(maxBodyBytes, for: origin) { [self] job in
            defer { withExtendedLifetime(memory) {} }
            if job.isCancelled { responder.abandon() } else { take(body, responder) }
        }
        responder.onHangUp { context.unproven.cancel(job) }
        if !context.unproven.start(job) { responder.refuse(.overloaded) }
    }

    /// How much memory the body may take. Small ones do not count.
    private static func announcedBytes(_ head: RequestHead, upTo most: Int) -> Int {
        let length = head.header("Content-Length").flatMap { Int($0) }.map { min($0, most) }
        let bytes = length ?? (head.header("Transfer-Encoding") == nil ? 0 : most)
        return bytes > UnprovenWork.smallBytes ? bytes : 0
    }

    private var isUnproven: Bool { unprovenBody != nil }

    var origin: UnprovenWork.Origin { .init(route: match.route.template.text, address: head.peer) }

    private func take(_ body: [UInt8], _ responder: MeteredResponder) {
        do throws(Problem) {
            // An SDK sends its whole buffer at once, in which much is repeated.
            let decoded = try coding.decoded(body, maxBytes: maxBodyBytes, maxRatio: match.call == nil ? nil : .max)
            // A body without a media type is taken as JSON.
            if match.route.body == .json, !decoded.isEmpty, form != .json, head.header("Content-Type") != nil {
                throw Problem(
                    slug: .unsupportedMediaType, status: 415, detail: "Send application/json, in UTF-8.",
                    headers: [("Accept", "application/json")])
            }
            let context = handler.context
            if !isRelayed, match.route.needsOwner, case let queue = match.queue(in: context),
                context.outbox.mustRelay(queue)
            {
                responder.relay(decoded, to: queue)
            } else {
                match.respond(decoded, responder)
            }
        } catch {
            responder.refuse(error)
        }
    }

    /// The most that reading and parsing may take. A compressed body is taken for one that is compressed as far as is
    /// accepted.
    func memory(forBody bytes: Int) -> Int {
        switch coding {
        case .identity: bytesNeeded(forDecoded: bytes)
        case .gzip:
            bytes + bytesNeeded(forDecoded: Gzip.maxBytes(from: bytes, maxBytes: maxBodyBytes))
        }
    }

    /// An open route parses nothing before it knows its caller.
    private func bytesNeeded(forDecoded bytes: Int) -> Int { isUnproven ? bytes : Self.memoryToParse(bytes) }

    /// The memory that a body of that many bytes and parsing it may take (`postern_json.cpp`): the promise is 8 times the
    /// body. Small bodies are parsed in the buffers that a thread has.
    static func memoryToParse(_ bytes: Int) -> Int { bytes > 64 << 10 ? 8 * bytes : bytes }
}

extension Problem {
    /// - Parameter form: How `body` was read.
    init(_ fault: JSONError, in body: [UInt8], form: BodyForm = .json) {
        var text = fault.description(in: body)
        if form == .lines {
            text += ", on line \(fault.position(in: body).line)"
        } else if fault.reason == .trailing, body[..<fault.offset].last == UInt8(ascii: "\n") {
            text += "; send texts on separate lines as application/x-ndjson"
        }
        self.init(invalidJSON: text, offset: fault.offset)
    }

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
