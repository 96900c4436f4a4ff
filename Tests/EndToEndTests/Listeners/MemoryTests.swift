import PosternTestKit
import Testing

extension EndToEnd {
    /// `scripts/memory.py` shows the worst of it in a control group.
    @Suite struct Memory {
        private static let body = Array(
            ("[" + Array(repeating: event, count: 100).joined(separator: ",") + "]").utf8)
        private static let head = Array(
            """
            POST /v1/samsara/event HTTP/1.1\r
            Host: localhost\r
            Content-Type: application/json\r
            Content-Length: \(body.count)\r
            \r

            """.utf8)
        private static let event =
            #"{"timestamp":1,"sourceId":"a","eventName":"b","data":""# + String(repeating: "c", count: 40_000) + "\"}"

        /// Bodies that are read at the same time must not leave heaps behind that nothing can be given back from.
        @Test(.timeLimit(.minutes(10)), .enabled(if: !Binary.isSanitized))
        func memoryOfLargeBodies_isGivenBack() async throws {
            let settings = Settings(
                server: ["port": 0, "maxBodyMemoryBytes": 1 << 30],
                upstreams: ["samsara": ["url": "http://127.0.0.1:9"]])
            let gateway = try await GatewayDirectory(settings).start()
            let process = Measured(pid: gateway.process.pid)
            #expect(try gateway.client().post("/v1/upstreams/samsara/pause").status == 202)
            let idle = try process.memory(.anonymous)
            for _ in 0..<4 {
                let clients = try (0..<24).map { _ in try HTTPClient(port: gateway.port) }
                for client in clients { client.send(Self.head + Self.body.prefix(Self.body.count / 2)) }
                for client in clients { client.send(Array(Self.body.suffix(Self.body.count - Self.body.count / 2))) }
                for client in clients { #expect(try client.answer().status == 202) }
            }
            #expect(try eventually { try process.memory(.anonymous) - idle < 48 << 20 })
            try await gateway.stop()
        }

        /// Free blocks of closed connections lie among others in the heaps of several threads.
        @Test(.timeLimit(.minutes(10)), .enabled(if: !Binary.isSanitized))
        func memoryOfClosedConnections_isGivenBack() async throws {
            allowManyDescriptors()
            let gateway = try await GatewayDirectory(Settings()).start()
            let process = Measured(pid: gateway.process.pid)
            #expect(try gateway.client().get("/livez").status == 200)
            let idle = try process.memory(.anonymous)
            for _ in 0..<3 {
                var clients = try (0..<4000).map { _ in try HTTPClient(port: gateway.port) }
                for client in clients { client.sendRequest("GET", "/livez") }
                for client in clients { #expect(try client.answer().status == 200) }
                #expect(try process.memory(.anonymous) > idle * 13 / 10 + 8 << 20, "more connections show more")
                clients = []
                let isGivenBack = try eventually(every: .milliseconds(200)) {
                    try process.memory(.anonymous) < idle * 13 / 10 + 8 << 20
                }
                let left = try process.memory(.anonymous)
                #expect(isGivenBack, "\(left) bytes; \(idle) when idle")
            }
            try await gateway.stop()
        }
    }
}
