import Logging
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// What a gateway answers while another one owns its store.
@Suite struct NodeHandlerTests {
    private func withNode(
        isOpen: Bool = true, sdks: SDKRefusals = SDKRefusals(), _ body: (NodeHandler, HTTPClient) throws -> Void
    ) throws {
        let node = NodeHandler(node: "east-1", callers: CallerPolicy(), isOpen: isOpen, sdks: sdks)
        let settings = HTTPServerSettings { ($0.port, $0.workerThreads) = (0, 1) }
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let server = HTTPServer(settings, handler: node, logger: logger)
        let port = try server.start()
        defer { server.stopAndWait(grace: .zero) }
        try body(node, try HTTPClient(port: port))
    }

    @Test func waitingGateway_isAlive_andNotReady_andSaysWhy() throws {
        try withNode { node, client in
            #expect(try client.get("/livez").status == 200)
            node.wait(because: "node west-1 owns the store")
            let answer = try client.get("/readyz")
            #expect(answer.status == 503 && answer.json["status"].string == "unready")
            #expect(answer.json["reasons"].strings == ["node west-1 owns the store"])
        }
    }

    /// Where keys are required, a web page that has pointed its name at the gateway does not learn the names of nodes.
    @Test(arguments: [("localhost", true), ("evil.example", false)])
    func reason_isNotForAForeignPage(host: String, isShown: Bool) throws {
        try withNode(isOpen: false) { _, client in
            client.send("GET /readyz HTTP/1.1\r\nHost: \(host)\r\n\r\n")
            let answer = try client.answer()
            #expect(answer.json["reasons"].isThere == isShown)
        }
    }

    @Test(arguments: [("POST", "/v1/picky/event"), ("GET", "/v1/messages"), ("GET", "/no/such/path")])
    func anythingElse_isAnswered503_withATimeToComeBack(method: String, path: String) throws {
        try withNode { _, client in
            let answer = try client.ask(method, path, method == "POST" ? Array("{}".utf8) : [])
            answer.problem(503, "store-unavailable")
            #expect(answer.header("Retry-After").flatMap { Int($0) }.map { (1...5).contains($0) } == true)
        }
    }

    /// A monitor that gets no metrics counts a gateway as down.
    @Test func metrics_areServed_withoutALease() throws {
        try withNode { _, client in
            let answer = try client.get("/metrics")
            #expect(answer.status == 200)
            #expect(answer.text.contains("\npostern_node_lease_seconds 0\n"))
            // Otherwise the first takeover would be no increase.
            #expect(answer.text.hasSuffix("\npostern_fenced_total 0\n"))
        }
    }

    @Test func requests_reachTheGateway_onceItOwnsTheStore_onTheSameConnection() throws {
        try withPausedGateway { gateway in
            try withNode { node, client in
                #expect(try client.get("/v1/upstreams").status == 503)
                node.pass(to: gateway.handler)
                let accepted = try client.post("/v1/picky/event", #"{"n":1}"#)
                #expect(accepted.status == 202 && accepted.header("Postern-Node") == "east-1")
                #expect(try client.get("/readyz").status == 200)
                #expect(gateway.queued == 1)
            }
        }
    }

    /// Until the gateway has opened the store, and after that also where the server itself refuses.
    @Test func sdks_areRefusedInTheFormOfTheirPlatform() throws {
        let numbers = NumbersUpstream(access: .open)
        var setup = Setup()
        setup.upstreams.append(numbers)
        setup.paused = ["numbers"]
        try withGateway(setup) { (gateway) throws in
            try withNode(sdks: SDKRefusals([try #require(numbers.sdk)])) { node, client in
                for path in ["/sdk/numbers/in/a", "//sdk/numbers/nowhere", "/in/a"] {
                    let answer = try client.post(path, "[2]")
                    #expect(answer.status == 503 && answer.text == "noRoom", "\(path)")
                    #expect(answer.header("Content-Type") == "text/sdk" && answer.header("Postern-Node") == "east-1")
                }
                let dropped = node.response(to: .waitingForStore, path: "/sdk/numbers/one/a", requestID: "r")
                #expect(dropped.isDropped)
                for path in ["/sdk/numbers/status", "/status"] {
                    let offline = try client.get(path)
                    #expect(offline.status == 503 && offline.text == "offline", "\(path)")
                }
                node.pass(to: gateway.handler)
                client.send(
                    "POST /sdk/numbers/in/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"
                )
                let refused = try client.answer()
                #expect(refused.status == 400 && refused.text == "malformed")
            }
        }
    }

    /// Also those of the server itself.
    @Test func everyAnswer_namesTheNode() throws {
        try withNode { _, client in
            for path in ["/livez", "/readyz", "/v1/messages"] {
                let answer = try client.get(path)
                #expect(answer.header("Postern-Node") == "east-1" && answer.header("Cache-Control") == "no-store")
            }
            client.send("nonsense\r\n\r\n")
            let refused = try client.answer()
            #expect(refused.header("Postern-Node") == "east-1")
        }
    }
}
