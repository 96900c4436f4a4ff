import PosternCore
import PosternDelivery
import PosternHTTP
import PosternStore
import PosternUpstream

/// One row of the route table: everything that is known about a route before a request arrives.
///
/// Routing, `Allow`, the check of the query, the metrics label, the required access, and the comparison with
/// `openapi.yaml` all follow from it.
final class Route: Sendable {
    typealias Method = UpstreamRoute.Method

    /// A route for GET also answers HEAD.
    let method: Method
    let template: UpstreamRoute.PathTemplate
    /// The accepted query parameters. Nil if the type of the upstream validates the query.
    let query: [String]?
    /// Whether the handler reads the query, and reports unknown parameters together with values that are not valid.
    let readsQuery: Bool
    /// Those of them that may be given more than once.
    let repeatable: Set<String>
    /// Whom `Gatekeeper` lets pass once a key is configured.
    let access: RouteAccess
    /// Where the route is served if operators have a listener of their own. Without one, there is only the main one,
    /// which serves all routes.
    let listeners: Set<Listener>
    let body: Body
    /// The statuses of its successful responses.
    let successes: Set<Int>
    let action: Action

    enum Body: Sendable {
        /// The route expects no body; up to `discardedBodyBytes` are read and discarded.
        case none
        /// One JSON text, or nothing.
        case json
        /// Messages, which are not accepted while the gateway is draining or the store cannot keep up.
        case messages
        /// Messages in the form of CloudEvents.
        case events
        /// The route validates it itself.
        case any

        var holdsMessages: Bool { self == .messages || self == .events }

        /// The media types of bodies that hold messages; empty for others.
        var mediaTypes: [String] {
            switch self {
            case .messages: ["application/json", "application/x-ndjson"]
            case .events: ["application/cloudevents+json", "application/cloudevents-batch+json", "application/json"]
            case .none, .json, .any: []
            }
        }

        /// How a body with these headers is to be read; nil for a media type that is not read as JSON, or if none is
        /// given.
        func form(_ head: RequestHead) -> BodyForm? {
            self == .events ? CloudEventMode(head) == nil ? nil : .json : BodyForm(head)
        }
    }

    static let discardedBodyBytes = 4 << 10

    /// What responds to a body, by the values that the path's parameters have.
    enum Action: Sendable {
        case plain(@Sendable (Handlers, [UInt8], MeteredResponder) -> Void)
        /// `{id}`
        case message(@Sendable (Handlers, MessageID, [UInt8], MeteredResponder) -> Void)
        /// `{operation}`. The handler finds it, because what a caller may see depends on its messages.
        case operation(@Sendable (Handlers, String, MeteredResponder) -> Void)
        /// `{name}`
        case upstream(@Sendable (Handlers, ConfiguredUpstream, MeteredResponder) -> Void)
        /// `{name}`, including that of an upstream of which the store holds messages although it is not configured
        case backlog(@Sendable (Handlers, UpstreamNumber, MeteredResponder) -> Void)
        /// `{name}` and `{batch}`
        case batch(@Sendable (Handlers, ConfiguredUpstream, BatchID, MeteredResponder) -> Void)
        /// `{upstream}` and `{kind}`
        case payloads(
            @Sendable (Handlers, ConfiguredUpstream, ConfiguredUpstream.KindEndpoint, [UInt8], MeteredResponder) -> Void
        )
        /// `{upstream}`, and what only its type has.
        case upstreamRoute(UpstreamRoute)
        /// A call of an SDK, below the prefix of its upstream (`SDKSite`).
        case sdk(SDKRoute)
        /// `{file}`, or the page itself
        case console(@Sendable (Handlers, ConsoleFile, MeteredResponder) -> Void)
    }

    /// A listening address of the gateway.
    enum Listener: Sendable {
        case main
        /// `server.admin`, for operators.
        case admin
    }

    /// Whether the route accepts any caller, even where client certificates are required.
    var isProbe: Bool { access == .open && listeners == [.admin] && !isConsole }

    /// Whether the route belongs to the operator's console, which `server.console` turns off.
    var isConsole: Bool { if case .console = action { true } else { false } }

    /// Whether the type of the upstream checks who calls, because the route requires no key.
    var checksItsCallers: Bool {
        switch action {
        case .upstreamRoute: access == .open
        case .sdk(let sdk): if case .body = sdk.access { true } else { false }
        default: false
        }
    }

    /// Whether the caller is logged, because the request steers upstreams or messages, or hands in a credential.
    var isSteering: Bool {
        if case .upstreamRoute(let route) = action, case .change = route.response { return true }
        return access == .scope(.admin) && method != .get
    }

    /// Whether a gateway relays it to the one that works on the queue that its path names, or to the keeper of the store. Of
    /// messages, only some need the owner of their queue (`Outbox.needsOwner`).
    var needsOwner: Bool {
        if case .upstreamRoute(let route) = action {
            if case .read = route.response { return false } else { return true }
        }
        // Of what is stored for an SDK, only some needs the owner. It alone reaches the platform, of which only their callers
        // ask something; what anyone may ask is about this gateway.
        if case .sdk(let sdk) = action {
            if case .perform = sdk.response { return method != .get || access == .platform } else { return false }
        }
        // What is kept in the memory of the keeper.
        let isOfOwner = template.text == "/v1/history" || template.text.hasPrefix("/v1/operations")
        return isOfOwner || method != .get && !body.holdsMessages
    }

    /// The statuses that the route usually responds with, whose series exist from the start. Others, which an upstream or
    /// a rare error causes, appear when they happen.
    var statuses: Set<Int> {
        var statuses = successes.union([400, 500])
        if case .scope = access { statuses.formUnion([401, 403, 429]) }
        if case .sdk = action { statuses.formUnion([401, 503]) }
        if template.text.contains("{") { statuses.insert(404) }
        if body != .none { statuses.formUnion([413, 415]) }
        if body.holdsMessages { statuses.formUnion([409, 422, 503, 507]) }
        if template.text == "/readyz" { statuses.insert(503) }
        return statuses
    }

    /// The media types of what is read; a client that accepts none of them is refused. Empty for probes, metrics, and what
    /// speaks an SDK's protocol, which respond in any case, and for what changes something: a client that prefers another
    /// receipt is no reason to lose its messages.
    var mediaTypes: [String] {
        guard case .scope = access, method == .get, template.text != "/metrics" else { return [] }
        return (template.text == "/v1/stream" ? [StreamHandler.mediaType] : []) + ["application/json"]
    }

    init(
        _ method: Method, _ template: String, query: [String]? = [], repeatable: Set<String> = [],
        readsQuery: Bool = false, _ access: RouteAccess,
        on listeners: Set<Listener>? = nil, body: Body = .none, successes: Set<Int> = [200], _ action: Action
    ) {
        self.method = method
        self.template = UpstreamRoute.PathTemplate(template)
        self.query = query
        self.repeatable = repeatable
        self.readsQuery = readsQuery
        self.access = access
        self.listeners = listeners ?? Self.usualListeners(access)
        self.body = body
        self.successes = successes
        self.action = action
    }

    private static func usualListeners(_ access: RouteAccess) -> Set<Listener> {
        switch access {
        case .scope(.write), .open, .password, .platform: [.main]
        case .scope(.admin): [.admin]
        case .scope(.read), .anyKey: [.main, .admin]
        }
    }

    convenience init(_ route: UpstreamRoute) {
        let body: Body =
            switch route.body {
            case .json: .json
            case .any: .any
            }
        self.init(
            route.method, "/v1/{upstream}/\(route.template)", query: route.query, route.access, body: body,
            successes: [route.status], .upstreamRoute(route))
    }

    /// Its template is its name in metrics and logs: a prefix can be a secret.
    convenience init(_ sdk: SDKRoute, of upstream: UpstreamName) {
        let access: RouteAccess =
            switch sdk.access {
            case .key: .password
            case .open: .open
            case .head, .body: .platform
            }
        self.init(
            sdk.method, "sdk/\(upstream)/\(sdk.call)", query: nil, access, on: [.main], body: .any,
            successes: [200], .sdk(sdk))
    }

    /// The routes that do not depend on the configured upstreams. `Router` adds those of the upstreams' types.
    static let common: [Route] = [
        Route(
            .post, "/v1/{upstream}/{kind}", query: ["dryRun"], .scope(.write), body: .messages, successes: [200, 202],
            .payloads { $0.ingest.payloads(of: $1, $2, $3, $4) }),
        Route(
            .post, "/v1/messages", query: ["dryRun"], .scope(.write), on: [.main, .admin], body: .messages,
            successes: [200, 202],
            .plain { $0.ingest.envelopes($1, $2) }),

        Route(
            .post, "/v1/cloudevents", query: ["dryRun"], .scope(.write), body: .events, successes: [200, 202],
            .plain { $0.ingest.events($1, $2) }),

        Route(
            .get, "/v1/messages",
            query: ["upstream", "state", "waitingFor"] + MessageFilter.names + [
                "last", "order", "limit", "cursor", "include",
            ],
            readsQuery: true, .scope(.read), .plain { $0.messages.list($2) }),
        Route(
            .get, "/v1/messages/{id}", query: ["include"], readsQuery: true, .scope(.read),
            .message { $0.messages.show($1, $3) }),
        Route(.delete, "/v1/messages/{id}", .scope(.admin), .message { $0.messages.cancel($1, $3) }),
        Route(
            .post, "/v1/messages/{id}/retry", .scope(.admin), body: .json, successes: [200, 202],
            .message { $0.messages.retry($1, $2, $3) }),
        Route(
            .post, "/v1/messages/retry", .scope(.admin), body: .json, successes: [200, 202],
            .plain { $0.messages.changeMany(.retry, $1, $2) }),
        Route(
            .post, "/v1/messages/cancel", .scope(.admin), body: .json, successes: [200, 202],
            .plain { $0.messages.changeMany(.cancel, $1, $2) }),
        Route(
            .post, "/v1/messages/purge", .scope(.admin), body: .json, successes: [200, 202],
            .plain { $0.messages.changeMany(.purge, $1, $2) }),
        Route(.post, "/v1/messages/erase", .scope(.admin), body: .json, .plain { $0.messages.erase($1, $2) }),
        Route(
            .post, "/v1/messages/replay", .scope(.admin), body: .json, successes: [200, 202],
            .plain { $0.replays.begin($1, $2) }),
        Route(
            .get, "/v1/messages/{id}/payload", query: ["download"], readsQuery: true, .scope(.read),
            .message { $0.messages.payload(of: $1, $3) }),
        Route(.get, "/v1/messages/{id}/request", .scope(.read), .message { $0.messages.request(for: $1, $3) }),

        Route(.get, "/v1/operations", .scope(.read), .plain { $0.operations.list($2) }),
        Route(.get, "/v1/operations/{operation}", .scope(.read), .operation { $0.operations.show($1, $2) }),
        Route(.delete, "/v1/operations/{operation}", .scope(.admin), .operation { $0.operations.stop($1, $2) }),

        Route(.get, "/v1/gateway", .scope(.read), .plain { $0.probes.gateway($2) }),
        Route(.get, "/v1/nodes", .scope(.read), .plain { $0.nodes.list($2) }),
        Route(
            .get, "/v1/history", query: ["since"], readsQuery: true, .scope(.read), .plain { $0.upstreams.history($2) }),
        Route(
            .get, "/v1/upstreams", query: ["include", "since"], readsQuery: true, .scope(.read),
            .plain { $0.upstreams.list($2) }),
        Route(
            .get, "/v1/upstreams/{name}", query: ["include", "since"], readsQuery: true, .scope(.read),
            .upstream { $0.upstreams.show($1, $2) }),
        Route(
            .get, "/v1/upstreams/{name}/lanes", query: ["state", "limit", "cursor"], readsQuery: true, .scope(.read),
            .backlog { $0.upstreams.lanes(of: $1, $2) }),
        Route(
            .get, "/v1/upstreams/{name}/failures",
            query: ["kind", "key", "createdAfter", "createdBefore", "cursor"], readsQuery: true, .scope(.read),
            .backlog { $0.upstreams.failures(of: $1, $2) }),
        Route(
            .get, "/v1/upstreams/{name}/batches", query: ["limit", "cursor"], readsQuery: true, .scope(.read),
            .backlog { $0.upstreams.batches(of: $1, $2) }),
        Route(
            .get, "/v1/upstreams/{name}/batches/{batch}", .scope(.read), .batch { $0.upstreams.show($2, of: $1, $3) }),
        Route(
            .post, "/v1/upstreams/{name}/flush", .scope(.admin), body: .json, successes: [200, 202],
            .upstream { $0.upstreams.perform(.flush, on: $1, $2) }),
        Route(
            .post, "/v1/upstreams/{name}/pause", .scope(.admin), body: .json, successes: [202],
            .upstream { $0.upstreams.perform(.pause, on: $1, $2) }),
        Route(
            .post, "/v1/upstreams/{name}/resume", .scope(.admin), body: .json, successes: [202],
            .upstream { $0.upstreams.perform(.resume, on: $1, $2) }),
        Route(
            .post, "/v1/upstreams/{name}/probe", .scope(.admin), body: .json,
            .upstream { $0.upstreams.probe($1, $2) }),

        Route(
            .get, "/v1/stream", query: ["upstream", "type", "after", "limit"], repeatable: ["type"], readsQuery: true,
            .scope(.read),
            .plain { $0.stream.listen($2) }),

        Route(.get, "/v1/keys", .scope(.admin), .plain { $0.keys.list($2) }),

        Route(.get, "/livez", .open, on: [.admin], .plain { $0.probes.live($2) }),
        Route(.get, "/readyz", .open, on: [.admin], .plain { $0.probes.ready($2) }),
        Route(.get, "/metrics", .scope(.read), on: [.admin], .plain { $0.probes.metrics($2) }),
        Route(.get, "/openapi.yaml", .anyKey, .plain { $0.probes.document($2) }),

        Route(.get, "/console", .open, on: [.admin], .console { $0.console.serve($1, $2) }),
        Route(.get, "/console/{file}", .open, on: [.admin], .console { $0.console.serve($1, $2) }),
    ]
}
