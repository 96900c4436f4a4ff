import PosternCore
public import PosternHTTP

/// The gateway's side of HTTP: refuses what needs no body to be refused, and hands the rest to a handler.
public final class GatewayHandler: HTTPHandler {
    let gateway: Gateway
    private let router: Router
    private let ingest: IngestHandler
    private let messages: MessageHandler
    private let upstreams: UpstreamHandler
    private let resources: ResourceHandler
    private let probes: ProbeHandler

    public init(_ gateway: Gateway) {
        self.gateway = gateway
        router = Router(gateway: gateway)
        ingest = IngestHandler(gateway)
        messages = MessageHandler(gateway)
        upstreams = UpstreamHandler(gateway)
        resources = ResourceHandler(gateway)
        probes = ProbeHandler(gateway)
    }

    public func admit(_ head: RequestHead) -> Admittance {
        switch router.route(head) {
        case .failure(let problem): return refuse(router.problem(problem), head, route: .unknown)
        case .success(let route):
            if let problem = spoiledQuery(of: route, head) { return refuse(problem, head, route: route.template) }
            let problem = ContentCoding.refusal(of: head) ?? (route.isIngest ? ingest.refusal(of: head) : nil)
            if let problem { return refuse(problem, head, route: route.template) }
            return .accept(maxBodyBytes: gateway.limits.maxBodyBytes, note: route)
        }
    }

    private func refuse(_ problem: Problem, _ head: RequestHead, route: RouteTemplate) -> Admittance {
        gateway.meter(route).count(problem.status)
        return .refuse(problem.response(to: head))
    }

    private func spoiledQuery(of route: Route, _ head: RequestHead) -> Problem? {
        guard let query = head.query, let known = route.parameters else { return nil }
        guard isPercentEncoded(query[...].utf8) else {
            return Problem(
                slug: .badRequest, status: 400, detail: "The query has a % without two digits, or is no UTF-8 decoded.")
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
        guard let route = request.note as? Route else { preconditionFailure("admitted without a route") }
        let reply = Reply(
            head: request.head, responder: responder, meter: gateway.meter(route), since: request.receivedAt,
            time: gateway.time)
        switch ContentCoding.unwrap(request, maxBytes: gateway.limits.maxBodyBytes) {
        case .request(let request): dispatch(route, request, reply)
        case .refused(let problem): reply.send(problem)
        }
    }

    private func dispatch(_ route: Route, _ request: IncomingRequest, _ reply: Reply) {
        switch route {
        case .ingest(let target, let kind): ingest.payloads(of: target, kind, request, reply)
        case .envelopes: ingest.envelopes(request, reply)
        case .messages: messages.list(reply)
        case .message(let id):
            request.head.method == "DELETE" ? messages.cancel(id, reply) : messages.show(id, reply)
        case .retry(let id): messages.retry(id, reply)
        case .retryMany: messages.retryMany(request, reply)
        case .upstreams: upstreams.list(reply)
        case .upstream(let target): upstreams.show(target, reply)
        case .steer(let target, let steering): upstreams.steer(target, steering, reply)
        case .batch(let target, let batch): upstreams.show(batch, of: target, reply)
        case .resource(let found): resources.answer(found, request, reply)
        case .live: probes.live(reply)
        case .ready: probes.ready(reply)
        case .metrics: probes.metrics(reply)
        case .document: probes.document(reply)
        }
    }
}

/// The way back to a client, which also counts and times the answer.
struct Reply: Sendable {
    let head: RequestHead
    private let responder: Responder
    private let meter: Meter
    private let since: MonotonicInstant
    private let time: any TimeSource

    init(head: RequestHead, responder: Responder, meter: Meter, since: MonotonicInstant, time: any TimeSource) {
        self.head = head
        self.responder = responder
        self.meter = meter
        self.since = since
        self.time = time
    }

    func send(_ response: HTTPResponse) {
        meter.count(response.status, took: time.instant - since)
        responder.respond(response)
    }

    /// As above, of a status that is known before; see `Responder.respond(rendering:)`.
    func send(_ status: Int, rendering render: @escaping @Sendable () -> HTTPResponse) {
        meter.count(status, took: time.instant - since)
        responder.respond(rendering: render)
    }

    func send(_ problem: Problem) { send(problem.response(to: head)) }
}
