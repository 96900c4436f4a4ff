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
    }
}
