import Logging
import PosternCore
import PosternDelivery
import PosternMetrics
import PosternStore
import PosternTestKit
import Testing

@testable import PosternServer

@Suite struct RouterTests {
    private static let samples = [
        "upstream": "plain", "kind": "thing", "name": "plain", "id": "00697znkr0001", "batch": "7",
    ]
    private static let methods = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]

    /// The path of a template, its variables filled in.
    private func path(of template: RouteTemplate) -> String {
        Self.samples.reduce(template.text) { $0.replacing("{\($1.key)}", with: $1.value) }
    }

    private func withRouter(_ body: (Router) throws -> Void) throws {
        let folder = ScratchFolder()
        let metrics = Metrics()
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let outbox = try Outbox(
            OutboxOptions(path: folder.file("store.sqlite")), time: SystemTime(), metrics: metrics, logger: logger)
        defer { outbox.close() }
        let resource = Resource(.get, "shelves/{shelf}/books", .read { _, _ in .empty() })
        let queue = try outbox.register(PlainUpstream(resources: [resource]), type: "plain", cap: QueueCap())
        let worker = try UpstreamWorker(
            queue: queue, settings: DeliverySettings(),
            parts: .init(
                outbox: outbox, transport: ScriptedTransport(), time: SystemTime(), metrics: metrics, logger: logger))
        let gateway = Gateway(
            outbox: outbox, upstreams: [("plain", worker)], limits: .init(), time: SystemTime(), metrics: metrics,
            logger: logger, stalledWorkers: { [] })
        try body(Router(gateway: gateway))
    }

    @Test func method_isRoutedToItsTemplate() throws {
        try withRouter { router in
            for template in RouteTemplate.allCases where template != .resource {
                for method in template.methods {
                    let route = try router.route(method, path(of: template)).get()
                    #expect(route.template == template, "\(method) \(template.text)")
                }
            }
        }
    }

    @Test func otherMethod_isRefused_withWhatIsAllowed() throws {
        try withRouter { router in
            for template in RouteTemplate.allCases where template != .unknown && template != .resource {
                for method in Self.methods where !template.methods.contains(method) {
                    guard
                        case .failure(.methodNotAllowed(let allowed)) = router.route(
                            method, path(of: template))
                    else {
                        Issue.record("\(method) \(template.text) is not refused")
                        continue
                    }
                    #expect(allowed == template.methods.joined(separator: ", "), "\(template.text)")
                }
            }
        }
    }

    @Test func resource_isFound_byItsTemplate() throws {
        try withRouter { router in
            guard
                case .success(.resource(let found)) = router.route(
                    "GET", "/v1/plain/shelves/a%2Fb/books")
            else {
                Issue.record("not found")
                return
            }
            #expect(found.parameters == ["shelf": "a/b"])
            guard case .failure(.methodNotAllowed("GET, HEAD")) = router.route("POST", "/v1/plain/shelves/a/books")
            else {
                Issue.record("POST is not refused")
                return
            }
        }
    }

    @Test(arguments: [
        "/v1/plain/shelves//books", "/v1/plain/shelves/a/books/b", "/", "/v1", "/v1/",
        "/v2/plain/thing", "/livez/", "/v1/stream/thing", "/v1/messages/no-id", "/v1/messages/",
        "/v1/upstreams/plain/burn", "/v1/plain/thing/more",
    ])
    func otherPath_isNotFound(path: String) throws {
        try withRouter { router in
            switch router.route("GET", path) {
            case .failure(.notFound), .failure(.noSuchMessage): break
            default: Issue.record("\(path) is found")
            }
        }
    }

    @Test func unknownUpstreamAndKind_haveProblemsOfTheirOwn() throws {
        try withRouter { router in
            guard case .failure(.unknownUpstream("nobody")) = router.route("POST", "/v1/nobody/thing") else {
                Issue.record("nobody is known")
                return
            }
            guard case .failure(.unknownKind("riddle", known: ["thing"])) = router.route("POST", "/v1/plain/riddle")
            else {
                Issue.record("riddle is a kind")
                return
            }
        }
    }
}
