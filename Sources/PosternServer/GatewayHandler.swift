import PosternCore
public import PosternHTTP
import Synchronization

/// The gateway's side of HTTP: rejects what can be rejected without the body, and passes the rest to a handler.
public final class GatewayHandler: HTTPHandler {
    private let gateway: Gateway
    private let handlers: Handlers
    /// Made again after a reload.
    private let router: Mutex<Router>
    private let unroutedMetrics: RouteMetrics
    private let callers: CallerPolicy
    private let log: RequestLog

    public init(_ gateway: Gateway, callers: CallerPolicy = CallerPolicy()) {
        self.gateway = gateway
        self.callers = callers
        log = RequestLog(gateway.logger)
        handlers = Handlers(gateway)
        router = Mutex(Router(handlers))
        unroutedMetrics = RouteMetrics("unknown", metrics: gateway.metrics)
    }

    /// Call after upstreams have been replaced: their kinds and routes may be others now.
    public func refreshUpstreams() {
        gateway.refreshUpstreams()
        let fresh = Router(handlers)
        router.withLock { $0 = fresh }
    }

    public func admit(_ head: RequestHead) -> Admittance {
        let match = router.withLock { $0 }.match(head.method, head.path)
        if let problem = callers.refusal(of: head) {
            return refuse(problem, head, (try? match.get())?.metrics ?? unroutedMetrics)
        }
        switch match {
        case .failure(let problem): return refuse(problem.problem(in: gateway), head, unroutedMetrics)
        case .success(let match):
            if let problem = refusal(of: head, for: match.route) { return refuse(problem, head, match.metrics) }
            let limit = gateway.limits.maxBodyBytes
            return .accept(
                maxBodyBytes: match.route.body == .none ? min(limit, Route.discardedBodyBytes) : limit, note: match)
        }
    }

    private func refuse(_ problem: Problem, _ head: RequestHead, _ metrics: RouteMetrics) -> Admittance {
        metrics.count(problem.status)
        log.rejected(head, route: metrics.route, status: problem.status, slug: problem.slug)
        return .refuse(problem.response(to: head))
    }

    private func refusal(of head: RequestHead, for route: Route) -> Problem? {
        queryProblem(head, for: route) ?? ContentCoding.refusal(of: head)
            ?? (route.body == .messages ? handlers.ingest.refusal(of: head) : nil)
            ?? (route.respondsInJSON && !acceptsJSON(head.header("Accept")) ? Self.notAcceptable : nil)
    }

    private static let notAcceptable = Problem(
        slug: .notAcceptable, status: 406, detail: "Responses are application/json; `Accept` excludes it.")

    private func queryProblem(_ head: RequestHead, for route: Route) -> Problem? {
        guard let query = head.query, let known = route.query else { return nil }
        guard isPercentEncoded(query[...].utf8) else {
            return Problem(
                slug: .badRequest, status: 400, detail: "The query is not valid percent-encoded UTF-8.")
        }
        let names = head.queryPairs.map(\.name)
        if let stranger = names.first(where: { !known.contains($0) }) {
            let hint = known.isEmpty ? "It takes none." : "It takes: \(known.joined(separator: ", "))."
            return Problem(
                slug: .badRequest, status: 400, detail: "This path has no query parameter \(stranger). \(hint)")
        }
        guard Set(names).count < names.count else { return nil }
        return Problem(slug: .badRequest, status: 400, detail: "The query has a parameter twice.")
    }

    public func answer(_ request: IncomingRequest, _ responder: Responder) {
        guard let match = request.note as? RouteMatch else { preconditionFailure("admitted without a route") }
        let reply = Reply(
            head: request.head, responder: responder, metrics: match.metrics, log: log, since: request.receivedAt,
            time: gateway.time)
        switch ContentCoding.unwrap(request, maxBytes: gateway.limits.maxBodyBytes) {
        case .refused(let problem): reply.send(problem)
        case .request(let unwrapped):
            if match.route.body == .json, let problem = mediaTypeProblem(unwrapped) { return reply.send(problem) }
            let needed = Self.memoryToParse(unwrapped.body.count)
            guard gateway.limits.memory.take(needed, besides: request.body.count) else {
                return reply.send(.overloaded)
            }
            defer { gateway.limits.memory.give(needed) }
            match.respond(unwrapped, reply)
        }
    }

    /// What reading a body of that many bytes may take on top of it: a parser that finds a value in every second byte
    /// needs this much. Small bodies do not count.
    private static func memoryToParse(_ bytes: Int) -> Int { bytes > 64 << 10 ? 13 * bytes : 0 }

    /// A body without a media type is taken as JSON.
    private func mediaTypeProblem(_ request: IncomingRequest) -> Problem? {
        guard !request.body.isEmpty, request.head.header("Content-Type") != nil, BodyForm(request.head) != .json
        else { return nil }
        return Problem(
            slug: .unsupportedMediaType, status: 415, detail: "Send application/json, in UTF-8.",
            headers: [("Accept", "application/json")])
    }
}

/// The handlers to which the route table refers.
final class Handlers: Sendable {
    let gateway: Gateway
    let ingest: IngestHandler
    let messages: MessageHandler
    let upstreams: UpstreamHandler
    let resources: ResourceHandler
    let probes: ProbeHandler

    init(_ gateway: Gateway) {
        self.gateway = gateway
        ingest = IngestHandler(gateway)
        messages = MessageHandler(gateway)
        upstreams = UpstreamHandler(gateway)
        resources = ResourceHandler(gateway)
        probes = ProbeHandler(gateway)
    }
}

/// The way back to a client, which also counts, times and logs the response.
struct Reply: Sendable {
    let head: RequestHead
    private let responder: Responder
    private let metrics: RouteMetrics
    private let log: RequestLog
    private let since: MonotonicInstant
    private let time: any TimeSource

    init(
        head: RequestHead, responder: Responder, metrics: RouteMetrics, log: RequestLog, since: MonotonicInstant,
        time: any TimeSource
    ) {
        self.head = head
        self.responder = responder
        self.metrics = metrics
        self.log = log
        self.since = since
        self.time = time
    }

    func send(_ response: HTTPResponse) {
        record(response.status)
        responder.respond(response)
    }

    /// As above, of a status that is known before; see `Responder.respond(rendering:)`.
    func send(_ status: Int, rendering render: @escaping @Sendable () -> HTTPResponse) {
        record(status)
        responder.respond(rendering: render)
    }

    func send(_ problem: Problem) {
        record(problem.status, problem.slug)
        responder.respond(problem.response(to: head))
    }

    /// Has `action` called if the client hangs up before it is answered.
    func onHangUp(_ action: @escaping @Sendable () -> Void) { responder.onHangUp(action) }

    /// The client has hung up: counts the request under 499, which is never sent.
    func abandon() {
        record(499)
        responder.hangUp()
    }

    private func record(_ status: Int, _ slug: ProblemSlug? = nil) {
        let duration = time.instant - since
        metrics.count(status, took: duration)
        log.answered(head, route: metrics.route, status: status, slug: slug, took: duration)
    }
}

extension Problem {
    static var overloaded: Problem {
        Problem(
            slug: .overloaded, status: 503,
            detail: "Too many large requests are in flight; nothing was stored. Send it again in a moment.",
            headers: [("Retry-After", "1")])
    }
}
