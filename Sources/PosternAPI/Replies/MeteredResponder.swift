import Logging
import PosternCore
import PosternHTTP
import PosternUpstream

/// Sends the response to a client, and counts, times, and logs it.
struct MeteredResponder: Sendable {
    let request: APIRequest
    /// Nil unless the request has an `Idempotency-Key` that applies.
    var idempotent: IdempotentRequest?
    /// The messages that it has stored.
    var ids: [MessageID] = []
    /// Whether the request only asks what it would change.
    var isPreview = false
    private let bytes: Int
    private let responder: Responder
    /// When the last byte had arrived.
    private let since: MonotonicInstant

    var head: RequestHead { request.head }
    /// Nil if the request required no key.
    var caller: Caller? { request.caller }

    /// - Parameter bytes: The size of the body as it arrived.
    init(_ request: APIRequest, _ responder: Responder, bytes: Int) {
        self.request = request
        self.bytes = bytes
        self.responder = responder
        since = request.handler.context.time.instant
    }

    func send(_ response: HTTPResponse) {
        record(response.status)
        responder.respond(withLimits(response))
    }

    /// Sends a response whose status is known before its body; see `Responder.respond(rendering:)`.
    func send(_ status: Int, rendering render: @escaping @Sendable () -> HTTPResponse) {
        record(status)
        responder.respond { withLimits(render()) }
    }

    /// Sends a response whose body is the stream that `make` returns.
    func stream(_ response: HTTPResponse, _ make: (Responder) -> any ResponseStream) {
        record(response.status)
        responder.stream(withLimits(response), make(responder))
    }

    /// Logs which key did what, and from where.
    private func logAction() {
        request.handler.context.logger.notice(
            "operator action",
            metadata: [
                "request": "\(head.method) \(head.path)", "request.id": "\(head.requestID)", "client": "\(head.peer)",
                "key": "\(caller?.key.name ?? "none")",
            ])
    }

    private func withLimits(_ response: HTTPResponse) -> HTTPResponse {
        guard let caller, caller.isLimited, !request.isRelayed else { return response }
        var response = response
        response.headers += caller.limitHeaders
        return response
    }

    /// - Parameter isCarriedOut: Whether the request has taken effect, although its response is a problem.
    func send(_ problem: Problem, isCarriedOut: Bool = false) {
        record(problem.status, problem.slug, isCarriedOut: isCarriedOut)
        request.match.call?.count(SDKRefusal(problem).outcome)
        let response = request.match.call?.site.response(to: problem) ?? problem.response(to: head)
        responder.respond(withLimits(response))
    }

    /// Sends the problem of a request whose messages were not read, which therefore counts as one message.
    func refuse(_ problem: Problem) {
        if !request.isDryRun { request.match.countRefusal(problem.slug, in: request.handler.context.metrics) }
        send(problem)
    }

    /// Calls `action` if the client hangs up before the response is sent.
    func onHangUp(_ action: @escaping @Sendable () -> Void) { responder.onHangUp(action) }

    /// The client has hung up while its request was carried out: counts the request under 499, which is never sent.
    func abandon() {
        record(499, isCarriedOut: true)
        responder.hangUp()
    }

    /// Sends a response that takes the place of the 202 that was stored with the messages.
    func sendFinal(_ response: HTTPResponse) {
        guard let idempotent else { return send(response) }
        idempotent.replace(with: response, in: request.handler.context.outbox) { send(response) }
    }

    private func record(_ status: Int, _ slug: ProblemSlug? = nil, isCarriedOut: Bool = false) {
        idempotent?.end()
        guard !request.isRelayed else { return }
        let (match, handler) = (request.match, request.handler)
        let now = handler.context.time.instant
        match.metrics.count(status, took: now - since)
        handler.log.answered(
            status: status,
            .init(
                head: head, route: match.metrics.route, status: status, slug: slug, key: caller?.key.name, bytes: bytes,
                duration: now - request.receivedAt, ids: ids))
        // A request that changes nothing leaves no such line.
        if match.route.isSteering, !isPreview, status < 400 || isCarriedOut { logAction() }
    }
}
