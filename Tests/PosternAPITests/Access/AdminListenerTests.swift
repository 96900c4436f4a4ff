import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// A listener of their own for operators: the expectations come from the route table.
@Suite(.timeLimit(.minutes(10))) struct AdminListenerTests {
    private static let resources = [
        UpstreamRoute(.get, "shelf", .read { _, _ in .json(#"{"books":1}"#) }),
        UpstreamRoute(.put, "shelf", .change { _, _ in UpstreamRouteChange(answer: .empty()) }),
        UpstreamRoute(.post, "api/{command}", access: .open, .read { _, _ in .json("{}") }),
    ]

    private func withListeners(_ body: (TestGateway) throws -> Void) throws {
        var setup = Setup()
        setup.upstreams = [PickyUpstream("picky"), PlainUpstream("shop", routes: Self.resources)]
        setup.hasAdminListener = true
        try withPausedGateway(setup, body)
    }

    private func isServed(
        _ route: Route, on port: UInt16, _ id: String, _ operation: String
    ) throws -> Bool {
        let name = route.template.text.contains("api/") || route.template.text.contains("shelf") ? "shop" : "picky"
        let values = [
            "upstream": name, "kind": "event", "name": name, "id": id, "batch": "1", "command": "c", "file": "main.js",
            "operation": operation,
        ]
        let path = values.reduce(route.template.text) { $0.replacing("{\($1.key)}", with: $1.value) }
        let body = [.get, .delete].contains(route.method) ? nil : Array(#"{"n":1}"#.utf8)
        let answer = try HTTPClient(port: port).ask(route.method.rawValue, path, body)
        // There has been no request to the upstream that could be shown.
        return ![404, 405].contains(answer.status) || answer.json["detail"].string?.hasPrefix("No such request") == true
    }

    @Test func everyRoute_isServedWhereTheTableSays() throws {
        try withListeners { gateway in
            // Of probes.
            gateway.transport.answerAll { _ in .status(200) }
            let operation = try HTTPClient(port: gateway.adminPort).post(
                "/v1/messages/retry", #"{"upstream":"picky"}"#, headers: OperationTests.asynchronously
            ).json["operation"].string
            for route in Route.common + Self.resources.map({ Route($0) }) {
                for (listener, port) in [(Route.Listener.main, gateway.port), (.admin, gateway.adminPort)] {
                    let isServed = try self.isServed(route, on: port, gateway.accept(), try #require(operation))
                    let label: Comment = "\(route.method.rawValue) \(route.template.text) on \(listener)"
                    #expect(isServed == route.listeners.contains(listener), label)
                }
            }
        }
    }

    /// Probes, metrics and steering for operators, writing for callers, reading for both (design, section 3.5).
    @Test(
        arguments: [
            ("GET", "/livez", [Route.Listener.admin]), ("GET", "/readyz", [.admin]), ("GET", "/metrics", [.admin]),
            ("GET", "/console", [.admin]), ("GET", "/console/{file}", [.admin]),
            ("GET", "/v1/keys", [.admin]), ("POST", "/v1/upstreams/{name}/pause", [.admin]),
            ("POST", "/v1/messages/{id}/retry", [.admin]), ("DELETE", "/v1/messages/{id}", [.admin]),
            ("POST", "/v1/{upstream}/{kind}", [.main]), ("POST", "/v1/messages", [.main, .admin]),
            ("GET", "/v1/messages", [.main, .admin]), ("GET", "/v1/upstreams", [.main, .admin]),
            ("GET", "/v1/gateway", [.main, .admin]), ("GET", "/v1/history", [.main, .admin]),
            ("GET", "/v1/upstreams/{name}/batches", [.main, .admin]),
            ("GET", "/openapi.yaml", [.main, .admin]),
        ] as [(String, String, Set<Route.Listener>)])
    func table_followsTheDesign(method: String, template: String, listeners: Set<Route.Listener>) throws {
        let route = try #require(
            Route.common.first { $0.method.rawValue == method && $0.template.text == template })
        #expect(route.listeners == listeners)
    }

    @Test func allow_namesTheMethodsOfTheListener() throws {
        try withListeners { gateway in
            let refused = try gateway.client.ask("DELETE", "/v1/messages/00697znkr0001")
            refused.problem(405, "method-not-allowed")
            #expect(refused.header("Allow") == "GET, HEAD")
            try gateway.client.get("/metrics").problem(404, "not-found")
        }
    }

    @Test func keys_areTheSameOnBoth_andSoIsTheirAllowance() throws {
        try withListeners { gateway in
            let key = APIKey(
                name: "ops", sha256: KeyText.digest(of: "k"), scopes: [.read, .admin],
                limits: .init(requestsPerSecond: 0.01, burst: 2))
            gateway.handler.replaceKeys([key], opensMetrics: false)
            func ask(_ port: UInt16, _ headers: [(String, String)]) throws -> Int {
                try HTTPClient(port: port).ask("GET", "/v1/upstreams", headers: headers).status
            }
            let bearer = [("Authorization", "Bearer k")]
            let strangers = try [ask(gateway.port, []), ask(gateway.adminPort, [])]
            #expect(strangers == [401, 401])
            let known = try [
                ask(gateway.port, bearer), ask(gateway.adminPort, bearer), ask(gateway.port, bearer),
                ask(gateway.adminPort, bearer),
            ]
            #expect(known == [200, 200, 429, 429])
        }
    }

    @Test func reloadedUpstreams_areFoundOnBoth() throws {
        try withListeners { gateway in
            gateway.handler.refreshUpstreams()
            let (written, paused, foreign) = (
                try gateway.client.post("/v1/picky/event", #"{"n":1}"#).status,
                try HTTPClient(port: gateway.adminPort).post("/v1/upstreams/picky/pause").status,
                try HTTPClient(port: gateway.adminPort).post("/v1/picky/event", #"{"n":1}"#).status
            )
            #expect(written == 202 && paused == 202 && foreign == 404)
        }
    }
}
