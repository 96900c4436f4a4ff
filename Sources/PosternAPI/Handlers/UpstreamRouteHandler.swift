import Logging
import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternThreads
import PosternUpstream

/// The routes of an upstream's type in addition to ingest: `Traits.routes`.
struct UpstreamRouteHandler: Sendable {
    let context: APIContext

    func answer(_ match: MatchedUpstreamRoute, _ body: [UInt8], _ responder: MeteredResponder) {
        let head = responder.head
        let request = UpstreamRouteRequest(
            parameters: match.parameters,
            query: Dictionary(head.query?.pairs.map { ($0.name, $0.value) } ?? [], uniquingKeysWith: { $1 }),
            queryText: head.query?.text ?? "", headers: head.headers.map { ($0.name, $0.value) }, body: body,
            receivedAt: context.time.now)
        let upstream = match.upstream
        switch match.route.response {
        case .read(let respond):
            context.readers.run { [self] in
                do throws(StoreError) {
                    let answer = try context.outbox.withState(of: upstream.queue.number) {
                        respond(request, $0)
                    }
                    send(answer, responder)
                } catch {
                    context.logger.error("cannot read the store", metadata: ["error": "\(error)"])
                    responder.send(Problem(reading: error))
                }
            }
        case .change(let respond): change(respond, request, of: upstream, responder)
        case .perform(let respond):
            perform(respond, request, of: upstream, isOpen: responder.request.match.route.checksItsCallers, responder)
        }
    }

    private func perform(
        _ respond:
            @escaping @Sendable (UpstreamRouteRequest, any UpstreamRouteContext) async throws(UpstreamRouteResponse) ->
            UpstreamRouteResponse,
        _ request: UpstreamRouteRequest, of upstream: ConfiguredUpstream, isOpen: Bool, _ responder: MeteredResponder
    ) {
        // Parsing goes on after this call, which is when the server and `APIRequest` release what they have reserved. On
        // an open route, nothing is parsed before the caller has proven who it is.
        let bytes = request.body.count
        let memory = MemoryLease(isOpen ? bytes : APIRequest.memoryToParse(bytes), of: context.memory)
        let services = RouteContext(
            upstream: upstream, context: context, traceParent: TraceParent(responder.head)?.text,
            request: responder.request,
            memory: memory)
        let work: @Sendable () async -> Void = { [self] in
            let answer: UpstreamRouteResponse
            do throws(UpstreamRouteResponse) {
                answer = try await respond(request, services).shown(by: upstream.adapter.mask)
            } catch {
                answer = error.shown(by: upstream.adapter.mask)
            }
            if Task.isCancelled { responder.abandon() } else { send(answer, responder) }
        }
        // Unstructured, because the connection's thread cannot wait for it. The task starts on this thread, so an
        // answer that needs no waiting, such as a cached one, costs no change of threads. A large request would keep
        // the thread too long: reading its arguments, encoding, and signing them. A caller that has to prove who it is
        // is checked for what costs little first.
        let task =
            bytes <= Self.maxOnThisThread || isOpen
            ? Task.immediate(executorPreference: context.taskExecutor, operation: work)
            : Task(executorPreference: context.taskExecutor, operation: work)
        responder.onHangUp { task.cancel() }
    }

    private static let maxOnThisThread = 64 << 10

    private func change(
        _ respond: @escaping @Sendable (UpstreamRouteRequest, any UpstreamState) -> UpstreamRouteChange,
        _ request: UpstreamRouteRequest, of upstream: ConfiguredUpstream, _ responder: MeteredResponder
    ) {
        context.outbox.change(of: upstream.queue) { state in
            let change = respond(request, state)
            return (change.changes, change.answer)
        } completion: { [self] result in
            switch result {
            case .success(let answer): send(answer, responder)
            case .failure(let error): responder.send(Problem(error))
            }
        }
    }

    private func send(
        _ answer: UpstreamRouteResponse, _ responder: MeteredResponder, headers: [(name: String, value: String)] = []
    ) {
        switch answer {
        case .json(let text, let status, let more):
            responder.send(.json(status, text, headers: headers + Self.sorted(more)))
        case .forwarded(let body, let more):
            responder.send(
                HTTPResponse(
                    status: 200, headers: [("Content-Type", "application/json")] + headers + Self.sorted(more),
                    body: body))
        case .empty(let status): responder.send(HTTPResponse(status: status, headers: headers))
        case .problem(let slug, let status, let detail, let faults):
            responder.send(
                Problem(
                    slug: slug, status: status, detail: detail,
                    members: faults.isEmpty ? [] : faults.members, headers: headers))
        case .invalidJSON(let fault, let offset):
            var problem = Problem(invalidJSON: fault, offset: offset)
            problem.headers += headers
            responder.send(problem)
        case .later(let answer, let after):
            // Rounded up: a second too early would only be refused again.
            let seconds = max(1, (after.wholeMilliseconds + 999) / 1000)
            send(answer, responder, headers: headers + [("Retry-After", String(seconds))])
        }
    }

    private static func sorted(_ headers: [String: String]) -> [(name: String, value: String)] {
        headers.sorted { $0.key < $1.key }.map { (name: $0.key, value: $0.value) }
    }
}

/// A route of an upstream that matches a request.
struct MatchedUpstreamRoute {
    let upstream: ConfiguredUpstream
    let route: UpstreamRoute
    let parameters: [String: String]
}

extension UpstreamRouteResponse {
    /// A problem may quote the upstream's response.
    fileprivate func shown(by mask: SecretMask) -> UpstreamRouteResponse {
        switch self {
        case .problem(let slug, let status, let detail, let faults):
            .problem(slug: slug, status: status, detail: mask.excerpt(detail), faults: faults)
        case .later(let answer, let after): .later(answer.shown(by: mask), after: after)
        case .json, .forwarded, .empty, .invalidJSON: self
        }
    }
}
