import Logging
import PosternCore
public import PosternDelivery
import PosternEvents
public import PosternHTTP
import PosternMetrics
import PosternThreads
import PosternStore
import PosternUpstream
import Synchronization

/// The gateway's side of HTTP: rejects what can be rejected without the body, and passes the rest to a handler. It
/// serves the main listener; `admin` is for the one of the operators.
public final class GatewayHandler: HTTPHandler {
    let context: APIContext
    let handlers: Handlers
    private let hasAdminListener: Bool
    /// Re-created after a reload.
    private let routers: Mutex<Routers>
    private let unroutedMetrics: RouteMetrics
    private let callers: CallerPolicy
    let log: RequestLog
    let gatekeeper: Gatekeeper
    /// The number of delayed responses to failed authentications.
    private let delayedRefusals = Atomic<Int>(0)
    private static let maxDelayedRefusals = 256

    private struct Routers {
        let main: Router
        /// Nil if there is no separate listener for operators.
        let admin: Router?
        /// For what another node has received on either listener.
        let all: Router

        init(_ handlers: Handlers, hasAdminListener: Bool) {
            all = Router(handlers)
            main = Router(handlers, of: hasAdminListener ? .main : nil)
            admin = hasAdminListener ? Router(handlers, of: .admin) : nil
        }
    }

    /// - Parameter hasAdminListener: Whether the routes for operators are served by `admin` alone.
    public init(_ context: APIContext, callers: CallerPolicy = CallerPolicy(), hasAdminListener: Bool = false) {
        self.hasAdminListener = hasAdminListener
        self.context = context
        self.callers = callers
        log = RequestLog(context.logger)
        handlers = Handlers(context)
        gatekeeper = Gatekeeper(context.keys)
        routers = Mutex(Routers(handlers, hasAdminListener: hasAdminListener))
        unroutedMetrics = RouteMetrics("unknown", metrics: context.metrics)
        for status in [400, 401, 403, 404, 405, 431, 505] { _ = context.metrics.requests("unknown", String(status)) }
        for slug in ProblemSlug.refusingMessages { _ = context.metrics.refused("unknown", slug.rawValue) }
    }

    /// Call after upstreams have been replaced: their kinds and routes may have changed.
    ///
    /// - Parameter upstreams: All upstreams, if some were added or removed.
    public func refreshUpstreams(_ upstreams: [ServedUpstream]? = nil) {
        context.refreshUpstreams(upstreams)
        let fresh = Routers(handlers, hasAdminListener: hasAdminListener)
        routers.withLock { $0 = fresh }
    }

    /// Replaces the active keys. If the list is empty, no caller needs a key.
    public func replaceKeys(_ keys: [APIKey], opensMetrics: Bool) {
        context.keys.replace(with: keys, at: context.time.instant)
        context.stream.endRevoked()
        gatekeeper.setOpensMetrics(opensMetrics)
    }

    /// The handler of the listener for operators.
    public var admin: any HTTPHandler {
        precondition(hasAdminListener, "the main listener serves all routes")
        return AdminHandler(main: self)
    }

    private struct AdminHandler: HTTPHandler {
        let main: GatewayHandler
        func admit(_ head: RequestHead) -> HeaderDecision {
            main.admit(head, main.routers.withLock { $0.admin ?? $0.main })
        }
        func wasRefused(_ request: UnreadRequest) { main.wasRefused(request) }
        func response(to problem: Problem, path: String, requestID: String) -> HTTPResponse {
            problem.response(instance: path, requestID: requestID)
        }
        func commonHeaders(for head: RequestHead?) -> [(name: String, value: String)] {
            main.commonHeaders(for: head)
        }
    }

    /// Of all listeners.
    var relayedRouter: Router { routers.withLock { $0.all } }

    /// Decides, from the headers alone, whether the body is read. Called on the connection's worker thread.
    public func admit(_ head: RequestHead) -> HeaderDecision { admit(head, routers.withLock { $0.main }) }

    /// Below the prefix of SDKs, in the form of their platform.
    public func response(to problem: Problem, path: String, requestID: String) -> HTTPResponse {
        response(to: problem, path: path, requestID: requestID, routers.withLock { $0.main })
    }

    private func response(to problem: Problem, path: String, requestID: String, _ router: Router) -> HTTPResponse {
        router.form(of: path)?.response(to: problem) ?? problem.response(instance: path, requestID: requestID)
    }

    /// Counts and logs the request like one for an unknown path.
    public func wasRefused(_ request: UnreadRequest) {
        unroutedMetrics.count(request.status)
        log.rejected(request, route: unroutedMetrics.route)
    }

    public func commonHeaders(for head: RequestHead?) -> [(name: String, value: String)] {
        callers.commonHeaders(for: head)
    }

    private func admit(_ head: RequestHead, _ router: Router) -> HeaderDecision {
        let now = context.time.instant
        let routing = router.match(head.method, head.path)
        let match = try? routing.get()
        let metrics = match?.metrics ?? unroutedMetrics
        func refuse(_ problem: Problem, _ caller: Caller?, delay: Duration = .zero) -> HeaderDecision {
            count(problem, of: match)
            match?.call?.count(SDKRefusal(problem).outcome)
            var response = response(to: problem, path: head.path, requestID: head.requestID, router)
            response.headers += caller?.limitHeaders ?? []
            return self.refuse(response, problem.slug, head, metrics, caller, since: now, delay: delay)
        }
        let checksHost = gatekeeper.checksHost(of: head, match, at: context.time.now)
        if let problem = callers.refusal(of: head, checksHost: checksHost) {
            return refuse(problem, nil, delay: gatekeeper.delayOfWrongKey(head, match, at: context.time.now, now))
        }
        if let permission = callers.preflight(head) {
            metrics.count(permission.status)
            return .refuse(permission)
        }
        // A path below the prefix of SDKs is none of the gateway's own, which a stranger would have to guess.
        if case .failure(let problem) = routing, head.clientCertificate != .missing,
            let form = router.form(of: head.path)
        {
            let problem = problem.problem(in: context, for: nil)
            let answer = form.answer(toUnrouted: handlers.sdk.request(head), problem)
            return self.refuse(
                HTTPResponse(answer), problem.slug, head, metrics, nil, since: now,
                delay: answer.isOfStranger ? gatekeeper.failed(from: head.peer, at: now) : .zero)
        }
        let caller: Caller?
        var delay = Duration.zero
        switch gatekeeper.decide(head, match, time: context.time, at: now) {
        case .pass(let found, let wait): (caller, delay) = (found, wait)
        case .refuse(let problem, let known, let delay): return refuse(problem, known, delay: delay)
        }
        do throws(Problem) {
            switch routing {
            case .failure(let problem): throw problem.problem(in: context, for: caller)
            case .success(let match):
                if let call = match.call, let answer = handlers.sdk.refusal(of: head, to: call) {
                    let delay = answer.isOfStranger ? gatekeeper.failed(from: head.peer, at: now) : .zero
                    return self.refuse(
                        HTTPResponse(answer), .unauthorized, head, metrics, nil, since: now, delay: delay)
                }
                let request = try APIRequest(head, match, caller, self, at: now, delay: delay)
                let limit = request.maxBodyBytes
                return .accept(
                    maxBodyBytes: match.route.body == .none ? min(limit, Route.discardedBodyBytes) : limit, request)
            }
        } catch {
            return refuse(error, caller)
        }
    }

    /// Whether the response to a probe says why: to a caller with a key, and on the machine itself, unless a web page
    /// asks that has pointed its name there. Without keys, everything is open to anyone.
    func explainsProbes(to head: RequestHead, _ caller: Caller?) -> Bool {
        context.keys.isEmpty || caller != nil || callers.isOfThisMachine(head)
    }

    /// Counts a refused request for storing messages, also one that names an unknown upstream or kind.
    private func count(_ problem: Problem, of match: RouteMatch?) {
        if let match {
            match.countRefusal(problem.slug, in: context.metrics)
        } else if [.unknownUpstream, .unknownKind].contains(problem.slug) {
            context.metrics.refused("unknown", problem.slug.rawValue).add()
        }
    }

    private func refuse(
        _ response: HTTPResponse, _ slug: ProblemSlug, _ head: RequestHead, _ metrics: RouteMetrics, _ caller: Caller?,
        since: MonotonicInstant, delay: Duration
    ) -> HeaderDecision {
        if delay > .zero, hasSmallBody(head) {
            return .accept(
                maxBodyBytes: Route.discardedBodyBytes,
                DelayedRejection(
                    response: response, slug: slug, head: head, metrics: metrics, since: since, delay: delay,
                    handler: self))
        }
        record(response.status, slug, head, metrics, caller, since: since)
        return .refuse(response)
    }

    /// Whether a refused body can be read to its end. Otherwise the refusal closes the connection, which slows its
    /// client down as well.
    private func hasSmallBody(_ head: RequestHead) -> Bool {
        head.header("Transfer-Encoding") == nil
            && head.header("Content-Length").map { Int($0).map { $0 <= Route.discardedBodyBytes } ?? false } ?? true
    }

    /// Counts and logs a request that no handler gets. `since`: when its headers had arrived.
    func record(
        _ status: Int, _ slug: ProblemSlug, _ head: RequestHead, _ metrics: RouteMetrics, _ caller: Caller?,
        since: MonotonicInstant
    ) {
        metrics.count(status)
        log.rejected(
            .init(
                head: head, route: metrics.route, status: status, slug: slug, key: caller?.key.name,
                duration: context.time.instant - since))
    }

    /// Calls `action` when a failed authentication from that address may be answered.
    func whenFailed(from address: PeerAddress, _ action: @escaping @Sendable () -> Void) {
        run(after: gatekeeper.failed(from: address, at: context.time.instant), action)
    }

    /// Calls `action` after the delay, or at once if there is none, or too many wait already.
    func run(after delay: Duration, _ action: @escaping @Sendable () -> Void) {
        guard delay > .zero else { return action() }
        let count = delayedRefusals.wrappingAdd(1, ordering: .relaxed).newValue
        guard count <= Self.maxDelayedRefusals else {
            delayedRefusals.wrappingSubtract(1, ordering: .relaxed)
            return action()
        }
        context.timer.run(after: delay) { [self] in
            delayedRefusals.wrappingSubtract(1, ordering: .relaxed)
            action()
        }
    }

    /// A refusal that a failed authentication has delayed.
    private struct DelayedRejection: AdmittedRequest {
        let response: HTTPResponse
        let slug: ProblemSlug
        let head: RequestHead
        let metrics: RouteMetrics
        let since: MonotonicInstant
        let delay: Duration
        let handler: GatewayHandler

        func answer(_ body: [UInt8], _ responder: Responder) {
            handler.run(after: delay) {
                handler.record(response.status, slug, head, metrics, nil, since: since)
                responder.respond(response)
            }
        }

        func wasRefused(with status: Int, _ slug: ProblemSlug) {
            handler.record(status, slug, head, metrics, nil, since: since)
        }
    }
}

/// The handlers to which the route table refers.
final class Handlers: Sendable {
    let context: APIContext
    let ingest: IngestHandler
    let messages: MessageHandler
    let upstreams: UpstreamHandler
    let upstreamRoutes: UpstreamRouteHandler
    let sdk: SDKHandler
    let probes: ProbeHandler
    let console = ConsoleHandler()
    let keys: KeyHandler
    let stream: StreamHandler
    let operations: OperationHandler
    let replays: ReplayHandler
    let nodes: NodeListHandler

    init(_ context: APIContext) {
        self.context = context
        ingest = IngestHandler(context: context)
        messages = MessageHandler(context: context)
        upstreams = UpstreamHandler(context: context)
        upstreamRoutes = UpstreamRouteHandler(context: context)
        sdk = SDKHandler(context: context)
        probes = ProbeHandler(context: context)
        keys = KeyHandler(context: context)
        stream = StreamHandler(context: context)
        operations = OperationHandler(context: context)
        replays = ReplayHandler(context: context)
        nodes = NodeListHandler(context: context)
    }
}
