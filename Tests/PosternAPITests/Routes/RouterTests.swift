import Logging
import PosternCore
import PosternDelivery
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternAPI

@Suite struct RouterTests {
    private static let samples = [
        "upstream": "plain", "kind": "thing", "name": "plain", "id": "00697znkr0001", "batch": "7",
        "file": "main.js",
    ]
    private static let methods = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]

    /// The path of a template with its parameters replaced by values.
    private func path(of template: String) -> String {
        Self.samples.reduce(template) { $0.replacing("{\($1.key)}", with: $1.value) }
    }

    /// The methods of each template in the table.
    private static let table = Dictionary(grouping: Route.common, by: \.template.text).mapValues { routes in
        Set(routes.flatMap { $0.method == .get ? ["GET", "HEAD"] : [$0.method.rawValue] })
    }

    private func withRouter(_ body: (Router) throws -> Void) throws {
        let folder = ScratchFolder()
        let metrics = Metrics()
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let outbox = try Outbox(
            OutboxOptions(path: folder.file("store.sqlite")), time: SystemTime(), threads: DedicatedThreads(),
            metrics: metrics, logger: logger)
        defer { outbox.close() }
        let resources = [
            UpstreamRoute(.get, "shelves/{shelf}/books", .read { _, _ in .empty() }),
            UpstreamRoute(.get, "thing", .read { _, _ in .empty() }),
        ]
        let target = try outbox.register(PlainUpstream(routes: resources), type: "plain", cap: QueueCap())
        let queue = try outbox.adopt(target)
        let worker = try UpstreamWorker(
            queue: queue, settings: DeliverySettings(),
            dependencies: .init(
                outbox: outbox, transport: ScriptedTransport(), time: SystemTime(), metrics: metrics, logger: logger))
        let context = try APIContext(
            outbox: outbox, upstreams: [ServedUpstream(type: "plain", worker: worker)], limits: .init(),
            memory: ByteBudget(.max),
            time: SystemTime(), metrics: metrics, logger: logger, stalledWorkers: { [] })
        try body(Router(Handlers(context)))
    }

    /// The template and method of the matching route, or what its problem is.
    private func match(_ router: Router, _ method: String, _ path: String) -> String {
        switch router.match(method, path) {
        case .success(let match): "\(match.route.method.rawValue) \(match.route.template.text)"
        case .failure(.methodNotAllowed(let allowed)): "allowed: \(allowed)"
        case .failure(.notFound(let other)): "not found" + (other.map { ", but \($0)" } ?? "")
        case .failure(.noSuchMessage): "no such message"
        case .failure(.unknownUpstream(let name)): "unknown upstream \(name)"
        case .failure(.unknownKind(let kind, _, let known)): "unknown kind \(kind), not \(known.joined())"
        }
    }

    @Test func everyRoute_isFoundByItsMethodAndPath() throws {
        try withRouter { router in
            for route in Route.common {
                let template = route.template.text
                #expect(
                    match(router, route.method.rawValue, path(of: template)) == "\(route.method.rawValue) \(template)"
                )
                if route.method == .get { #expect(match(router, "HEAD", path(of: template)) == "GET \(template)") }
            }
        }
    }

    @Test func otherMethod_isRefused_withWhatIsAllowed() throws {
        try withRouter { router in
            for (template, allowed) in Self.table {
                // A resource of the upstream has this path too; see below.
                let allowed = template == "/v1/{upstream}/{kind}" ? allowed.union(["GET", "HEAD"]) : allowed
                for method in Self.methods where !allowed.contains(method) {
                    let expected = "allowed: \(allowed.sorted().joined(separator: ", "))"
                    #expect(match(router, method, path(of: template)) == expected, "\(method) \(template)")
                }
            }
        }
    }

    @Test(arguments: [
        ("GET", "/v1/plain/shelves/a%2Fb/books", "GET /v1/{upstream}/shelves/{shelf}/books"),
        ("HEAD", "/v1/plain/shelves/a/books", "GET /v1/{upstream}/shelves/{shelf}/books"),
        ("POST", "/v1/plain/shelves/a/books", "allowed: GET, HEAD"),
        ("GET", "/v1/plain/thing", "GET /v1/{upstream}/thing"),
        ("POST", "/v1/plain/thing", "POST /v1/{upstream}/{kind}"),
        ("POST", "/v1/plain/%74hing", "POST /v1/{upstream}/{kind}"),
        ("PUT", "/v1/plain/thing", "allowed: GET, HEAD, POST"),
    ])
    func resource_isFoundByItsTemplate_nextToTheKinds(method: String, path: String, expected: String) throws {
        try withRouter { #expect(match($0, method, path) == expected) }
    }

    @Test(arguments: [
        ("/", "not found"), ("/v1", "not found"), ("/v1/", "not found"), ("*", "not found"), ("x/livez", "not found"),
        ("/v2/plain/thing", "not found"), ("/livez/", "not found, but /livez"), ("/livez//", "not found"),
        ("/v1/stream/thing", "not found"),
        ("/v1/keys/thing", "not found"), ("/v1/nodes/thing", "not found"),
        ("/v1/messages/no-id", "no such message"), ("/v1/messages/", "not found, but /v1/messages"),
        ("/v1/upstreams/", "not found, but /v1/upstreams"), ("/v1/plain/thing/", "not found, but /v1/plain/thing"),
        ("/v1/messages/retry/", "not found, but /v1/messages/retry"), ("/v1/plain/riddle/", "not found"),
        ("/v1/plain/", "not found"), ("/v1/messages//attempts", "not found"),
        ("/v1/upstreams/plain/burn", "not found"), ("/v1/upstreams/plain/batches/x", "not found"),
        ("/v1/plain/thing/more", "not found"), ("/v1/plain/shelves//books", "not found"),
        ("/v1/plain/shelves/a/books/b", "not found"), ("/v1/absent/thing", "unknown upstream absent"),
        ("/v1/absent/a/b/c", "unknown upstream absent"), ("/v1//thing", "not found"),
        ("/v1/upstreams/absent/flush", "unknown upstream absent"),
        ("/v1/plain/riddle", "unknown kind riddle, not thing"),
    ])
    func otherPath_saysWhatDoesNotExist(path: String, expected: String) throws {
        try withRouter { #expect(match($0, "GET", path) == expected) }
    }

    /// Design, section 3.5.
    @Test func access_isWhatTheDesignSays() {
        for route in Route.common {
            let expected: RouteAccess =
                switch (route.template.text, route.method) {
                case ("/livez", _), ("/readyz", _), ("/console", _), ("/console/{file}", _): .open
                case ("/openapi.yaml", _): .anyKey
                case ("/v1/keys", _): .scope(.admin)
                case (_, .get): .scope(.read)
                case ("/v1/messages", .post), ("/v1/cloudevents", .post), ("/v1/{upstream}/{kind}", .post):
                    .scope(.write)
                default: .scope(.admin)
                }
            #expect(route.access == expected, "\(route.method) \(route.template.text)")
        }
    }
}
