import PosternCore
import PosternHTTP

/// Where a request goes.
enum Route {
    case ingest(Target, Target.Acceptable)
    case envelopes
    case messages
    case message(MessageID)
    case retry(MessageID)
    case retryMany
    case upstreams
    case upstream(Target)
    case steer(Target, Steering)
    case batch(Target, BatchID)
    /// Something of the upstream type's own.
    case resource(FoundResource)
    case live, ready, metrics, document

    enum Steering: String { case flush, pause, resume }

    var template: RouteTemplate {
        switch self {
        case .ingest: .ingest
        case .envelopes, .messages: .messages
        case .message: .message
        case .retry: .retry
        case .retryMany: .retryMany
        case .upstreams: .upstreams
        case .upstream: .upstream
        case .steer(_, .flush): .flush
        case .steer(_, .pause): .pause
        case .steer(_, .resume): .resume
        case .batch: .batch
        case .resource: .resource
        case .live: .live
        case .ready: .ready
        case .metrics: .metrics
        case .document: .document
        }
    }

    /// Query parameters it understands; any other is refused. Nil: it judges them itself.
    var parameters: [String]? {
        switch self {
        case .ingest, .envelopes: ["dryRun"]
        case .messages: ["upstream", "kind", "state", "key", "limit", "cursor", "include"]
        case .message: ["include"]
        case .resource(let found): found.resource.query
        case .retry, .retryMany, .upstreams, .upstream, .steer, .batch, .live, .ready, .metrics, .document: []
        }
    }

    /// Does it take messages?
    var isIngest: Bool {
        switch self {
        case .ingest, .envelopes: true
        default: false
        }
    }
}

/// The routes by their paths: the bounded names that metrics use.
enum RouteTemplate: Int, CaseIterable {
    case ingest, messages, message, retry, retryMany, upstreams, upstream, flush, pause, resume
    case batch
    /// What only some types have; counted under the resource's own template.
    case resource
    case live, ready, metrics, document
    /// No route.
    case unknown

    var text: String {
        switch self {
        case .ingest: "/v1/{upstream}/{kind}"
        case .messages: "/v1/messages"
        case .message: "/v1/messages/{id}"
        case .retry: "/v1/messages/{id}/retry"
        case .retryMany: "/v1/messages/retry"
        case .upstreams: "/v1/upstreams"
        case .upstream: "/v1/upstreams/{name}"
        case .flush: "/v1/upstreams/{name}/flush"
        case .pause: "/v1/upstreams/{name}/pause"
        case .resume: "/v1/upstreams/{name}/resume"
        case .batch: "/v1/upstreams/{name}/batches/{batch}"
        case .resource: "/v1/{upstream}/{resource}"
        case .live: "/livez"
        case .ready: "/readyz"
        case .metrics: "/metrics"
        case .document: "/openapi.yaml"
        case .unknown: "unknown"
        }
    }

    /// The methods it takes, in order; `openapi.yaml` describes exactly these.
    var methods: [String] {
        switch self {
        case .messages: ["GET", "HEAD", "POST"]
        case .message: ["DELETE", "GET", "HEAD"]
        case .ingest, .retry, .retryMany, .flush, .pause, .resume: ["POST"]
        case .upstreams, .upstream, .batch, .resource, .live, .ready, .metrics, .document: ["GET", "HEAD"]
        case .unknown: []
        }
    }
}

/// Finds the route of a request, or the problem with it.
struct Router {
    let gateway: Gateway
    /// The paths that take messages are known beforehand: most requests go there, and taking each one's path apart
    /// twice would show.
    private let ingests: [String: Route]

    init(gateway: Gateway) {
        self.gateway = gateway
        var ingests: [String: Route] = ["/v1/messages": .envelopes]
        for target in gateway.targets {
            for kind in target.kinds { ingests["/v1/\(target.name)/\(kind.text)"] = .ingest(target, kind) }
        }
        self.ingests = ingests
    }

    func route(_ head: RequestHead) -> Result<Route, RoutingProblem> { route(head.method, head.path) }

    func route(_ method: String, _ path: String) -> Result<Route, RoutingProblem> {
        if method == "POST", let known = ingests[path] { return .success(known) }
        let segments = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
        guard let first = segments.first else { return .failure(.notFound) }
        let rest = segments.dropFirst()
        switch (first, rest.count) {
        case ("v1", 1...): return versioned(Array(rest), method)
        case ("livez", 0): return reading(.live, method)
        case ("readyz", 0): return reading(.ready, method)
        case ("metrics", 0): return reading(.metrics, method)
        case ("openapi.yaml", 0): return reading(.document, method)
        default: return .failure(.notFound)
        }
    }

    private func versioned(_ segments: [Substring], _ method: String) -> Result<Route, RoutingProblem> {
        switch segments.count {
        case 1 where segments[0] == "messages":
            switch method {
            case "POST": .success(.envelopes)
            case "GET", "HEAD": .success(.messages)
            default: .failure(.methodNotAllowed("GET, HEAD, POST"))
            }
        case 2 where segments[0] == "messages" && segments[1] == "retry": posting(.retryMany, method)
        case 2 where segments[0] == "messages": message(segments[1], method)
        case 3 where segments[0] == "messages" && segments[2] == "retry":
            MessageID(segments[1]).map { posting(.retry($0), method) } ?? .failure(.noSuchMessage)
        case 1 where segments[0] == "upstreams": reading(.upstreams, method)
        case 2 where segments[0] == "upstreams":
            gateway.target(named: segments[1]).map { reading(.upstream($0), method) }
                ?? .failure(.unknownUpstream(String(segments[1])))
        case 4 where segments[0] == "upstreams" && segments[2] == "batches":
            batch(segments[3], of: segments[1], method)
        case 3 where segments[0] == "upstreams": steer(segments[1], segments[2], method)
        case 2... where !UpstreamName.reserved.contains(String(segments[0])):
            below(segments[0], segments.dropFirst(), method)
        default: .failure(.notFound)
        }
    }

    /// An upstream's kinds take messages; beside them some have resources of their own.
    private func below(
        _ name: Substring, _ path: ArraySlice<Substring>, _ method: String
    ) -> Result<Route, RoutingProblem> {
        guard let target = gateway.target(named: name) else { return .failure(.unknownUpstream(String(name))) }
        let isKind = path.count == 1 && target.acceptable(path[path.startIndex]) != nil
        if isKind, method == "POST" { return ingest(name, path[path.startIndex], method) }
        let decoded = path.map { Substring(percentDecoded($0.utf8)) }
        let found = target.upstream.resources.compactMap { resource in
            resource.parameters(matching: decoded).map {
                FoundResource(target: target, resource: resource, parameters: $0)
            }
        }
        let asked = method == "HEAD" ? "GET" : method
        if let fitting = found.first(where: { $0.resource.method.rawValue == asked }) {
            return .success(.resource(fitting))
        }
        guard found.isEmpty else {
            var allowed = Set(found.map(\.resource.method.rawValue))
            if allowed.contains("GET") { allowed.insert("HEAD") }
            if isKind { allowed.insert("POST") }
            return .failure(.methodNotAllowed(allowed.sorted().joined(separator: ", ")))
        }
        return path.count == 1 ? ingest(name, path[path.startIndex], method) : .failure(.notFound)
    }

    private func ingest(_ name: Substring, _ kind: Substring, _ method: String) -> Result<Route, RoutingProblem> {
        guard let target = gateway.target(named: name) else { return .failure(.unknownUpstream(String(name))) }
        guard let acceptable = target.acceptable(kind) else {
            return .failure(.unknownKind(String(kind), known: target.kinds.map(\.text)))
        }
        return posting(.ingest(target, acceptable), method)
    }

    private func message(_ text: Substring, _ method: String) -> Result<Route, RoutingProblem> {
        guard ["GET", "HEAD", "DELETE"].contains(method) else {
            return .failure(.methodNotAllowed("DELETE, GET, HEAD"))
        }
        return MessageID(text).map { .success(.message($0)) } ?? .failure(.noSuchMessage)
    }

    private func steer(_ name: Substring, _ word: Substring, _ method: String) -> Result<Route, RoutingProblem> {
        guard let steering = Route.Steering(rawValue: String(word)) else { return .failure(.notFound) }
        guard let target = gateway.target(named: name) else { return .failure(.unknownUpstream(String(name))) }
        return posting(.steer(target, steering), method)
    }

    private func batch(
        _ text: Substring, of name: Substring, _ method: String
    ) -> Result<Route, RoutingProblem> {
        guard let target = gateway.target(named: name) else { return .failure(.unknownUpstream(String(name))) }
        guard let number = Int64(text), number > 0 else { return .failure(.notFound) }
        return reading(.batch(target, BatchID(rawValue: number)), method)
    }

    private func reading(_ route: Route, _ method: String) -> Result<Route, RoutingProblem> {
        method == "GET" || method == "HEAD" ? .success(route) : .failure(.methodNotAllowed("GET, HEAD"))
    }

    private func posting(_ route: Route, _ method: String) -> Result<Route, RoutingProblem> {
        method == "POST" ? .success(route) : .failure(.methodNotAllowed("POST"))
    }

    func problem(_ problem: RoutingProblem) -> Problem {
        switch problem {
        case .notFound:
            Problem(slug: .notFound, status: 404, detail: "There is nothing at this path; see /openapi.yaml.")
        case .noSuchMessage:
            Problem(
                slug: .notFound, status: 404,
                detail: "There is no such message: never accepted here, or settled longer ago than it is kept.")
        case .unknownUpstream(let name):
            Problem(
                slug: .unknownUpstream, status: 404,
                detail: "No upstream is called \(name); configured are: "
                    + gateway.targets.map(\.name.description).joined(separator: ", ") + ".")
        case .unknownKind(let kind, let known):
            Problem(
                slug: .unknownKind, status: 404,
                detail: "This upstream has no kind \(kind); it takes: \(known.joined(separator: ", ")).")
        case .methodNotAllowed(let allowed):
            Problem(
                slug: .methodNotAllowed, status: 405, detail: "This path takes \(allowed).",
                headers: [("Allow", allowed)])
        }
    }
}

enum RoutingProblem: Error {
    case notFound
    case noSuchMessage
    case unknownUpstream(String)
    case unknownKind(String, known: [String])
    /// With the value of `Allow`.
    case methodNotAllowed(String)
}
