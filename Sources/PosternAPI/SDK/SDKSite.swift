import PosternCore
import PosternHTTP
import PosternMetrics
import PosternUpstream

/// The SDK endpoints of an upstream, as they are served between two reloads. Any thread.
final class SDKSite: Sendable {
    let upstream: ConfiguredUpstream
    let endpoints: SDKEndpoints
    private let paths: SDKPaths
    let calls: [Call]

    /// A row of the route table, and its series.
    final class Call: Sendable {
        let site: SDKSite.Form
        let sdk: SDKRoute
        let route: Route
        private let templates: [UpstreamRoute.PathTemplate]
        private let outcomes: [Series: Counter]

        private struct Series: Hashable {
            let call: String
            let outcome: SDKAnswer.Outcome
        }

        init(_ sdk: SDKRoute, _ site: SDKSite.Form, _ metrics: Metrics) {
            var site = site
            site.withoutRoom = sdk.withoutRoom
            self.site = site
            self.sdk = sdk
            route = Route(sdk, of: site.upstream.name)
            templates = sdk.templates
            var outcomes: [Series: Counter] = [:]
            for call in [sdk.call] + sdk.furtherCalls {
                for outcome in SDKAnswer.Outcome.allCases {
                    outcomes[Series(call: call, outcome: outcome)] = metrics.sdkRequests(
                        "\(site.upstream.name)", call, outcome.rawValue)
                }
            }
            self.outcomes = outcomes
        }

        func count(_ outcome: SDKAnswer.Outcome) { outcomes[Series(call: sdk.call, outcome: outcome)]?.add() }
        func count(_ answer: SDKAnswer) {
            outcomes[Series(call: answer.call ?? sdk.call, outcome: answer.outcome)]?.add()
        }

        func parameters(matching path: [Substring]) -> [String: String]? {
            for template in templates {
                if let parameters = template.parameters(matching: path) { return parameters }
            }
            return nil
        }

        /// Whether all that it does is to store messages.
        var storesMessages: Bool { if case .store = sdk.response { true } else { false } }

        /// Whether it brings messages, so that a refusal counts as that of one. A call of StreamOne is none unless it is queued.
        var bringsMessages: Bool {
            switch (sdk.response, sdk.access) {
            case (.store, _): true
            case (.perform, .head): sdk.method != .get
            case (.perform, _), (.answer, _): false
            }
        }
    }

    /// Nil if the upstream has none.
    init?(_ upstream: ConfiguredUpstream, _ metrics: Metrics) {
        guard let endpoints = upstream.adapter.sdk else { return nil }
        self.upstream = upstream
        self.endpoints = endpoints
        paths = SDKPaths(endpoints)
        let form = Form(upstream, endpoints)
        calls = endpoints.routes.map { Call($0, form, metrics) }
    }

    func contains(_ path: [Substring]) -> Bool { paths.contains(path) }

    /// How a request for the path is refused before its route is known.
    func form(of path: [Substring]) -> Form {
        var form = form
        form.withoutRoom = paths.answerWithoutRoom(path)
        return form
    }

    private func match(
        of call: Call, _ parameters: [String: String], _ handlers: Handlers, _ metrics: RouteMetrics
    ) -> RouteMatch {
        RouteMatch(call.route, metrics, subject: .upstream(upstream.name), call: call) {
            handlers.sdk.answer(call, parameters, $0, $1)
        }
    }

    /// Those of the calls for POST whose path has no parameters, by their paths as SDKs usually send them.
    func usualMatches(_ handlers: Handlers, _ metrics: [String: RouteMetrics]) -> [String: RouteMatch] {
        var matches: [String: RouteMatch] = [:]
        for call in calls where call.sdk.method == .post && !call.sdk.template.contains("{") {
            guard let metrics = metrics[call.route.template.text] else { continue }
            let paths =
                ["\(endpoints.prefix)/\(call.sdk.template)"] + (call.sdk.isAtRoot ? ["/\(call.sdk.template)"] : [])
            for path in paths { matches[path] = match(of: call, [:], handlers, metrics) }
        }
        return matches
    }

    func match(_ method: String, _ path: [Substring], _ handlers: Handlers, _ metrics: [String: RouteMetrics])
        -> Result<RouteMatch, RoutingProblem>
    {
        let below = paths.rest(of: path)
        let wanted = method == "HEAD" ? "GET" : method
        var others: Set<String> = []
        for call in calls {
            let atRoot = call.sdk.isAtRoot ? call.parameters(matching: path) : nil
            guard let parameters = atRoot ?? below.flatMap({ call.parameters(matching: $0) }) else { continue }
            guard call.sdk.method.rawValue == wanted, let metrics = metrics[call.route.template.text] else {
                others.formUnion(call.sdk.method == .get ? ["GET", "HEAD"] : [call.sdk.method.rawValue])
                continue
            }
            return .success(match(of: call, parameters, handlers, metrics))
        }
        return .failure(others.isEmpty ? .notFound() : .methodNotAllowed(others.sorted().joined(separator: ", ")))
    }
}

extension SDKSite {
    /// How an upstream's platform refuses.
    struct Form: Sendable {
        let upstream: ConfiguredUpstream
        let endpoints: SDKEndpoints
        /// See `SDKRoute.withoutRoom`.
        var withoutRoom: SDKAnswer?

        init(_ upstream: ConfiguredUpstream, _ endpoints: SDKEndpoints) {
            self.upstream = upstream
            self.endpoints = endpoints
        }

        func answer(to reason: SDKRefusal) -> SDKAnswer {
            endpoints.answer(to: reason, withoutRoom: withoutRoom)
        }

        /// The answer to a request that no route fits.
        func answer(toUnrouted request: SDKRequest, _ problem: Problem) -> SDKAnswer {
            endpoints.unrouted(request, SDKRefusal(problem))
        }

        /// The refusal of a request, in the place of a problem document.
        func response(to problem: Problem) -> HTTPResponse {
            endpoints.response(to: problem, withoutRoom: withoutRoom)
        }
    }

    var form: Form { Form(upstream, endpoints) }
}

extension HTTPResponse {
    init(_ answer: SDKAnswer) {
        self.init(status: answer.status, headers: answer.headers, body: answer.body, close: answer.isDropped)
        isDropped = answer.isDropped
    }
}

extension SDKRefusal {
    init(_ problem: Problem) {
        self.init(problem.slug, allow: problem.headers.first { $0.name == "Allow" }?.value ?? "")
    }

    init(_ slug: ProblemSlug, allow: String = "") {
        self =
            switch slug {
            case .notFound, .unknownUpstream, .unknownKind: .notFound
            case .methodNotAllowed: .methodNotAllowed(allow)
            case .unauthorized: .unauthorized
            case .forbidden: .forbidden
            case .payloadTooLarge, .headerTooLarge: .tooLarge
            case .badRequest, .invalidJSON, .invalidPayload, .notAcceptable, .conflict, .unknownSession,
                .unsupportedMediaType, .idempotencyMismatch:
                .malformed
            case .rateLimited, .outboxFull, .diskFull, .storeFailed, .storeLost, .storeUnavailable, .overloaded,
                .shuttingDown, .deliveryFailed, .internal:
                .noRoom
            }
    }
}
