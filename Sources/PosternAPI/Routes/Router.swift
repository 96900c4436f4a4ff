import PosternCore
import PosternHTTP
import PosternMetrics
import PosternStore
import PosternUpstream

/// Finds the route of a request in the route table, or the problem with it.
final class Router: Sendable {
    private let context: APIContext
    private let handlers: Handlers
    private let common: [Route]
    /// The routes of an upstream's type, by the upstream's name.
    private let upstreamRoutes: [String: [Route]]
    /// Where SDKs are served.
    private let sites: [SDKSite]
    /// By template: two methods of one path share a label.
    private let metrics: [String: RouteMetrics]
    /// Most requests go to the paths that accept messages, so these are matched beforehand.
    private let ingests: [String: RouteMatch]

    /// - Parameter listener: Whose routes are found. Nil means all.
    init(_ handlers: Handlers, of listener: Route.Listener? = nil) {
        let context = handlers.context
        func served(_ routes: [Route]) -> [Route] {
            routes.filter { route in
                (listener.map { route.listeners.contains($0) } ?? true) && (context.servesConsole || !route.isConsole)
            }
        }
        common = served(Route.common)
        let upstreamRoutes = Dictionary(
            uniqueKeysWithValues: context.upstreams.map { upstream in
                (upstream.name.description, served(upstream.adapter.traits.routes.map { Route($0) }))
            })
        sites = listener == .admin ? [] : context.upstreams.compactMap { SDKSite($0, context.metrics) }
        let routes = common + upstreamRoutes.values.joined() + sites.flatMap { $0.calls.map(\.route) }
        let templates = Set(routes.map(\.template.text))
        let metrics = Dictionary(
            uniqueKeysWithValues: templates.map { ($0, RouteMetrics($0, metrics: context.metrics)) })
        for route in routes {
            route.statuses.forEach { _ = context.metrics.requests(route.template.text, String($0)) }
            _ = context.metrics.requestDuration(route.template.text)
        }
        self.context = context
        self.handlers = handlers
        self.upstreamRoutes = upstreamRoutes
        self.metrics = metrics
        var ingests = Self.ingests(common, handlers, metrics)
        for site in sites { ingests.merge(site.usualMatches(handlers, metrics)) { first, _ in first } }
        self.ingests = ingests
    }

    private static func ingests(
        _ routes: [Route], _ handlers: Handlers, _ metrics: [String: RouteMetrics]
    ) -> [String: RouteMatch] {
        var matches: [String: RouteMatch] = [:]
        for route in routes where route.body == .messages {
            guard let metrics = metrics[route.template.text] else { continue }
            switch route.action {
            case .plain(let respond):
                matches[route.template.text] = RouteMatch(route, metrics) { respond(handlers, $0, $1) }
            case .payloads(let respond):
                for upstream in handlers.context.upstreams {
                    for kind in upstream.kinds {
                        let subject = RouteMatch.Subject.upstream(upstream.name)
                        matches["/v1/\(upstream.name)/\(kind.text)"] = RouteMatch(route, metrics, subject: subject) {
                            respond(handlers, upstream, kind, $0, $1)
                        }
                    }
                }
            case .message, .operation, .upstream, .backlog, .batch, .upstreamRoute, .sdk, .console: continue
            }
        }
        return matches
    }

    /// The only route with this path and method. A path that no route has is `notFound` or, if it names something
    /// that does not exist, the problem of the first route that it would fit.
    func match(_ method: String, _ path: String) -> Result<RouteMatch, RoutingProblem> {
        if method == "POST", let known = ingests[path] { return .success(known) }
        if let (site, segments) = site(of: path) {
            return path.last == "/" ? .failure(.notFound()) : site.match(method, segments, handlers, metrics)
        }
        guard path.hasPrefix("/") else { return .failure(.notFound()) }
        let parts = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
        let segments = parts.compactMap { percentDecoded($0.utf8).map { Substring($0) } }
        // Nothing has a name that is not valid UTF-8.
        guard segments.count == parts.count else { return .failure(.notFound()) }
        let wanted = method == "HEAD" ? "GET" : method
        var (problem, others) = (RoutingProblem.notFound(), Set<String>())
        if let name = upstreamName(in: segments), context.upstream(named: name) == nil {
            problem = .unknownUpstream(name)
        }
        for route in common + (upstreamName(in: segments).flatMap { upstreamRoutes[$0] } ?? []) {
            guard let values = route.template.parameters(matching: segments), !values.values.contains("") else {
                continue
            }
            if method == "OPTIONS" { others.formUnion(documentedMethods(of: route.template.text)) }
            switch bind(route, values) {
            case .failure(let found): if case .notFound = problem { problem = found }
            case .success(let bound):
                if route.method.rawValue == wanted, let metrics = metrics[route.template.text] {
                    return .success(RouteMatch(route, metrics, subject: bound.subject, bound.respond))
                }
                others.formUnion(route.method == .get ? ["GET", "HEAD"] : [route.method.rawValue])
            }
        }
        guard others.isEmpty else { return .failure(.methodNotAllowed(others.sorted().joined(separator: ", "))) }
        if case .notFound = problem, path.last == "/" { problem = .notFound(instead: known(method, path.dropLast())) }
        return .failure(problem)
    }

    /// Whose SDKs ask for the path: everything there is answered in the form of their platform.
    func form(of path: String) -> SDKSite.Form? { site(of: path).map { $0.site.form(of: $0.segments) } }

    /// - Parameter path: Empty segments in it do not count.
    private func site(of path: String) -> (site: SDKSite, segments: [Substring])? {
        guard !sites.isEmpty else { return nil }
        let segments = SDKPaths.segments(of: path)
        return sites.first { $0.contains(segments) }.map { ($0, segments) }
    }

    /// `path`, if there is such a path.
    private func known(_ method: String, _ path: Substring) -> String? {
        switch match(method, String(path)) {
        case .success, .failure(.methodNotAllowed): String(path)
        case .failure: nil
        }
    }

    /// The methods of a path in `openapi.yaml`, where upstreams of several types share it: an upstream of type `curio`
    /// has no DELETE for `sessions/{sessionCode}`, and one of type `streamone` has.
    private func documentedMethods(of template: String) -> Set<String> {
        let sharing = upstreamRoutes.values.joined().filter { $0.template.text == template }
        return Set(sharing.flatMap { $0.method == .get ? ["GET", "HEAD"] : [$0.method.rawValue] })
    }

    /// `{upstream}` in `/v1/{upstream}/…`; names that belong to the gateway are not the name of an upstream.
    private func upstreamName(in segments: [Substring]) -> String? {
        guard segments.count > 2, segments[0] == "v1" else { return nil }
        let name = String(segments[1])
        return name.isEmpty || UpstreamName.reserved.contains(name) ? nil : name
    }

    /// Puts the values of the path's parameters into the route's action.
    private func bind(_ route: Route, _ values: [String: String]) -> Result<Bound, RoutingProblem> {
        let handlers = handlers
        switch route.action {
        case .plain(let respond): return .success(Bound { respond(handlers, $0, $1) })
        case .message(let respond):
            guard let id = MessageID(values["id"] ?? "") else { return .failure(.noSuchMessage) }
            let subject = RouteMatch.Subject.message(id, context.outbox.names[id.upstream])
            return .success(Bound(subject) { respond(handlers, id, $0, $1) })
        case .operation(let respond):
            let id = values["operation"] ?? ""
            return .success(Bound { respond(handlers, id, $1) })
        case .upstream(let respond):
            let name = values["name"] ?? ""
            if let disabled = context.disabledUpstream(named: name) {
                let isRead = route.method == .get
                return .success(
                    Bound(.upstream(disabled)) { handlers.upstreams.answerForDisabled(disabled, isRead: isRead, $1) })
            }
            return upstream(name).map { upstream in Bound(.upstream(upstream.name)) { respond(handlers, upstream, $1) }
            }
        case .backlog(let respond):
            let name = values["name"] ?? ""
            guard let known = context.knownUpstream(name),
                let number = context.outbox.names.first(where: { $0.value == known })?.key
            else { return .failure(.unknownUpstream(name)) }
            return .success(Bound(.upstream(known)) { respond(handlers, number, $1) })
        case .batch(let respond):
            return upstream(values["name"]).flatMap { upstream in
                guard let number = Int64(values["batch"] ?? ""), number > 0 else { return .failure(.notFound()) }
                return .success(
                    Bound(.upstream(upstream.name)) { respond(handlers, upstream, BatchID(rawValue: number), $1) })
            }
        case .payloads(let respond):
            guard let name = values["upstream"], !UpstreamName.reserved.contains(name) else {
                return .failure(.notFound())
            }
            return upstream(name).flatMap { upstream in
                guard let kind = upstream.endpoint(values["kind"] ?? "") else {
                    return .failure(
                        .unknownKind(values["kind"] ?? "", of: upstream.name, known: upstream.kinds.map(\.text)))
                }
                return .success(Bound(.upstream(upstream.name)) { respond(handlers, upstream, kind, $0, $1) })
            }
        case .console(let respond):
            guard let file = ConsoleFile.all[values["file"] ?? ""] else { return .failure(.notFound()) }
            return .success(Bound { respond(handlers, file, $1) })
        // Found by the prefix of its upstream.
        case .sdk: return .failure(.notFound())
        case .upstreamRoute(let route):
            return upstream(values["upstream"]).flatMap { upstream in
                var parameters = values
                parameters["upstream"] = nil
                let match = MatchedUpstreamRoute(upstream: upstream, route: route, parameters: parameters)
                return .success(Bound(.upstream(upstream.name)) { handlers.upstreamRoutes.answer(match, $0, $1) })
            }
        }
    }

    private struct Bound {
        var subject: RouteMatch.Subject?
        let respond: RouteMatch.Respond

        init(_ subject: RouteMatch.Subject? = nil, _ respond: @escaping RouteMatch.Respond) {
            self.subject = subject
            self.respond = respond
        }
    }

    private func upstream(_ name: String?) -> Result<ConfiguredUpstream, RoutingProblem> {
        let name = name ?? ""
        return context.upstream(named: name).map { .success($0) } ?? .failure(.unknownUpstream(name))
    }
}

/// A route, and what responds to a request for it.
final class RouteMatch: Sendable {
    typealias Respond = @Sendable ([UInt8], MeteredResponder) -> Void

    /// The upstream that the path names, for keys that are restricted to some upstreams.
    enum Subject: Sendable {
        case upstream(UpstreamName)
        /// The upstream may be disabled, or no longer configured. Nil if the store has never held messages of it.
        case message(MessageID, UpstreamName?)
    }

    let route: Route
    let metrics: RouteMetrics
    let subject: Subject?
    /// Nil unless an SDK calls.
    let call: SDKSite.Call?
    let respond: Respond

    init(
        _ route: Route, _ metrics: RouteMetrics, subject: Subject? = nil, call: SDKSite.Call? = nil,
        _ respond: @escaping Respond
    ) {
        self.route = route
        self.call = call
        self.metrics = metrics
        self.subject = subject
        self.respond = respond
    }

    /// The queue that the request is about, as far as the path says it.
    func queue(in context: APIContext) -> UpstreamNumber? {
        if let call { return call.site.upstream.queue.number }
        return switch subject {
        case .upstream(let name): context.outbox.names.first { $0.value == name }?.key
        case .message(let id, _?): id.upstream
        case .message(_, nil), nil: nil
        }
    }

    /// Counts a request for storing messages whose messages were not read.
    func countRefusal(_ slug: ProblemSlug, in metrics: Metrics) {
        guard route.body.holdsMessages || call?.bringsMessages == true else { return }
        let name = if case .upstream(let name) = subject { name.description } else { "unknown" }
        metrics.refused(name, slug.rawValue).add()
    }
}

/// Why a request has no route.
enum RoutingProblem: Error {
    /// There is no such path; `instead` is the one that was probably meant.
    case notFound(instead: String? = nil)
    case noSuchMessage
    case unknownUpstream(String)
    case unknownKind(String, of: UpstreamName, known: [String])
    /// The path has no such method. The associated value is that of `Allow`.
    case methodNotAllowed(String)

    /// The texts name no upstream that `caller` may not use.
    func problem(in context: APIContext, for caller: Caller?) -> Problem {
        switch self {
        case .notFound(let other):
            Problem(
                slug: .notFound, status: 404,
                detail: "There is no such path" + (other.map { "; there is \($0), without a slash at its end" } ?? "")
                    + ". See /openapi.yaml.")
        case .noSuchMessage: MessageHandler.noSuchMessage
        case .unknownUpstream(let name):
            Problem(
                slug: .unknownUpstream, status: 404,
                detail: "No upstream is called \(name); configured are: "
                    + context.upstreams(for: caller).map(\.name.description).joined(separator: ", ") + ".")
        case .unknownKind(let kind, let upstream, let known):
            caller.flatMap { $0.mayUse(upstream) ? nil : Gatekeeper.foreign(upstream, to: $0) }
                ?? Problem(
                    slug: .unknownKind, status: 404,
                    detail: "This upstream has no kind \(kind); it accepts: \(known.joined(separator: ", ")).")
        case .methodNotAllowed(let allowed):
            Problem(
                slug: .methodNotAllowed, status: 405, detail: "This path accepts \(allowed).",
                headers: [("Allow", allowed)])
        }
    }
}
