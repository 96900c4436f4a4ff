import Logging
import PosternCore
public import PosternHTTP
import Synchronization

/// The gateway's side of HTTP: rejects what can be rejected without the body, and passes the rest to a handler. It serves
/// the main listener; `admin` is for the one of the operators.
public final class GatewayHandler: HTTPHandler {
    private let gateway: Gateway
    private let handlers: Handlers
    private let hasAdminListener: Bool
    /// Made again after a reload.
    private let routers: Mutex<Routers>
    private let unroutedMetrics: RouteMetrics
    private let callers: CallerPolicy
    private let log: RequestLog
    private let gatekeeper: Gatekeeper
    /// Refusals that wait for their time.
    private let delayedRefusals = Atomic<Int>(0)
    private static let mostDelayedRefusals = 256

    private struct Routers {
        let main: Router
        /// Nil without a listener of its own.
        let admin: Router?

        init(_ handlers: Handlers, hasAdminListener: Bool) {
            main = Router(handlers, of: hasAdminListener ? .main : nil)
            admin = hasAdminListener ? Router(handlers, of: .admin) : nil
        }
    }

    /// - Parameter hasAdminListener: Whether the routes for operators are served by `admin` alone.
    public init(_ gateway: Gateway, callers: CallerPolicy = CallerPolicy(), hasAdminListener: Bool = false) {
        self.hasAdminListener = hasAdminListener
        self.gateway = gateway
        self.callers = callers
        log = RequestLog(gateway.logger)
        handlers = Handlers(gateway)
        gatekeeper = Gatekeeper(gateway.keys)
        routers = Mutex(Routers(handlers, hasAdminListener: hasAdminListener))
        unroutedMetrics = RouteMetrics("unknown", metrics: gateway.metrics)
    }

    /// Call after upstreams have been replaced: their kinds and routes may be others now.
    public func refreshUpstreams() {
        gateway.refreshUpstreams()
        let fresh = Routers(handlers, hasAdminListener: hasAdminListener)
        routers.withLock { $0 = fresh }
    }

    /// Puts these keys in force. If the list is empty, no caller needs a key.
    public func adopt(_ keys: [APIKey], opensMetrics: Bool) {
        gateway.keys.replace(with: keys, at: gateway.time.instant)
        gatekeeper.setOpensMetrics(opensMetrics)
    }

    /// What serves the listener for operators.
    public var admin: any HTTPHandler {
        precondition(hasAdminListener, "the main listener serves all routes")
        return AdminHandler(gateway: self)
    }

    private struct AdminHandler: HTTPHandler {
        let gateway: GatewayHandler
        func admit(_ head: RequestHead) -> Admittance {
            gateway.admit(head, gateway.routers.withLock { $0.admin ?? $0.main })
        }
        func answer(_ request: IncomingRequest, _ responder: Responder) { gateway.answer(request, responder) }
        func commonHeaders(for head: RequestHead, refused: (any Sendable)?) -> [(name: String, value: String)] {
            gateway.commonHeaders(for: head, refused: refused)
        }
    }

    public func admit(_ head: RequestHead) -> Admittance { admit(head, routers.withLock { $0.main }) }

    public func commonHeaders(
        for head: RequestHead, refused: (any Sendable)?
    ) -> [(name: String, value: String)] {
        let limits = (refused as? AdmittedRequest)?.caller?.limitHeaders ?? []
        return callers.responseHeaders(for: head) + limits
    }

    private func admit(_ head: RequestHead, _ router: Router) -> Admittance {
        let routing = router.match(head.method, head.path)
        let match = try? routing.get()
        let metrics = match?.metrics ?? unroutedMetrics
        if let problem = callers.refusal(of: head, checksHost: gateway.keys.isEmpty) {
            return refuse(problem, head, metrics, nil)
        }
        if let permission = callers.preflight(head) {
            metrics.count(permission.status)
            return .refuse(permission)
        }
        let caller: Caller?
        switch gatekeeper.decide(head, match, time: gateway.time) {
        case .pass(let found): caller = found
        case .refuse(let problem, let known, let delay):
            return refuse(problem, head, metrics, known, delay: delay)
        }
        switch routing {
        case .failure(let problem): return refuse(problem.problem(in: gateway, for: caller), head, metrics, caller)
        case .success(let match):
            if let problem = refusal(of: head, for: match.route) { return refuse(problem, head, metrics, caller) }
            let limit = gateway.limits.maxBodyBytes
            return .accept(
                maxBodyBytes: match.route.body == .none ? min(limit, Route.discardedBodyBytes) : limit,
                note: AdmittedRequest(match, caller))
        }
    }

    private func refuse(
        _ problem: Problem, _ head: RequestHead, _ metrics: RouteMetrics, _ caller: Caller?, delay: Duration = .zero
    ) -> Admittance {
        if delay > .zero, hasSmallBody(head),
            delayedRefusals.load(ordering: .relaxed) < Self.mostDelayedRefusals
        {
            delayedRefusals.wrappingAdd(1, ordering: .relaxed)
            return .accept(
                maxBodyBytes: Route.discardedBodyBytes, note: DelayedRefusal(problem, metrics, delay: delay))
        }
        metrics.count(problem.status)
        log.rejected(head, route: metrics.route, status: problem.status, slug: problem.slug)
        var response = problem.response(to: head)
        response.headers += caller?.limitHeaders ?? []
        return .refuse(response)
    }

    /// Whether a refused body can be read to its end. Otherwise the refusal closes the connection, which slows its
    /// client down as well.
    private func hasSmallBody(_ head: RequestHead) -> Bool {
        head.header("Transfer-Encoding") == nil
            && head.header("Content-Length").map { Int($0).map { $0 <= Route.discardedBodyBytes } ?? false } ?? true
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
        if let refusal = request.note as? DelayedRefusal { return send(refusal, to: request.head, responder) }
        guard let admitted = request.note as? AdmittedRequest else { preconditionFailure("admitted without a route") }
        let match = admitted.match
        let reply = Reply(
            head: request.head, responder: responder, match: match, caller: admitted.caller, log: log,
            since: request.receivedAt, gateway: gateway)
        switch ContentCoding.unwrap(request, maxBytes: gateway.limits.maxBodyBytes) {
        case .refused(let problem): reply.send(problem)
        case .request(let unwrapped):
            if match.route.body == .json, let problem = mediaTypeProblem(unwrapped) { return reply.send(problem) }
            let needed = Self.memoryToParse(unwrapped.body.count)
            guard gateway.memory.take(needed, besides: request.body.count) else {
                return reply.send(.overloaded)
            }
            defer { gateway.memory.give(needed) }
            match.respond(unwrapped, reply)
        }
    }

    /// What reading a body of that many bytes may take on top of it (`postern_json.cpp`); the promise is 8 times the body
    /// altogether. Small bodies do not count.
    private static func memoryToParse(_ bytes: Int) -> Int { bytes > 64 << 10 ? 7 * bytes : 0 }

    private func send(_ refusal: DelayedRefusal, to head: RequestHead, _ responder: Responder) {
        gateway.timer.run(after: refusal.delay) { [self] in
            delayedRefusals.wrappingSubtract(1, ordering: .relaxed)
            refusal.metrics.count(refusal.problem.status)
            log.rejected(
                head, route: refusal.metrics.route, status: refusal.problem.status, slug: refusal.problem.slug)
            responder.respond(refusal.problem.response(to: head))
        }
    }

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
    let keys: KeyHandler

    init(_ gateway: Gateway) {
        self.gateway = gateway
        ingest = IngestHandler(gateway)
        messages = MessageHandler(gateway)
        upstreams = UpstreamHandler(gateway)
        resources = ResourceHandler(gateway)
        probes = ProbeHandler(gateway)
        keys = KeyHandler(gateway)
    }
}

/// The way back to a client, which also counts, times and logs the response.
struct Reply: Sendable {
    let head: RequestHead
    /// Nil if the request required no key.
    let caller: Caller?
    private let responder: Responder
    private let match: RouteMatch
    private let log: RequestLog
    private let since: MonotonicInstant
    private let gateway: Gateway

    init(
        head: RequestHead, responder: Responder, match: RouteMatch, caller: Caller?, log: RequestLog,
        since: MonotonicInstant,
        gateway: Gateway
    ) {
        self.head = head
        self.caller = caller
        self.responder = responder
        self.match = match
        self.log = log
        self.since = since
        self.gateway = gateway
    }

    func send(_ response: HTTPResponse) {
        record(response.status)
        responder.respond(withLimits(response))
    }

    /// As above, of a status that is known before; see `Responder.respond(rendering:)`.
    func send(_ status: Int, rendering render: @escaping @Sendable () -> HTTPResponse) {
        record(status)
        responder.respond { withLimits(render()) }
    }

    /// Logs which key did what, and from where.
    private func note() {
        gateway.logger.notice(
            "steered",
            metadata: [
                "request": "\(head.method) \(head.path)", "request.id": "\(head.requestID)", "client": "\(head.peer)",
                "key": "\(caller?.key.name ?? "none")",
            ])
    }

    private func withLimits(_ response: HTTPResponse) -> HTTPResponse {
        guard let caller, caller.isLimited else { return response }
        var response = response
        response.headers += caller.limitHeaders
        return response
    }

    func send(_ problem: Problem) {
        record(problem.status, problem.slug)
        responder.respond(withLimits(problem.response(to: head)))
    }

    /// Has `action` called if the client hangs up before it is answered.
    func onHangUp(_ action: @escaping @Sendable () -> Void) { responder.onHangUp(action) }

    /// The client has hung up: counts the request under 499, which is never sent.
    func abandon() {
        record(499)
        responder.hangUp()
    }

    private func record(_ status: Int, _ slug: ProblemSlug? = nil) {
        let duration = gateway.time.instant - since
        match.metrics.count(status, took: duration)
        log.answered(head, route: match.metrics.route, status: status, slug: slug, took: duration)
        if match.route.isSteering, status < 400 { note() }
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
