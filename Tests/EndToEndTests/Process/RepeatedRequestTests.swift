import Glibc
import PosternConformance
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// One `Idempotency-Key`, however many requests carry it, and whatever happens to the gateway meanwhile.
    @Suite struct RepeatedRequest {
        private static let requests = 1000

        /// Sends requests until one is answered, the signal has been sent, and the connections have ended.
        /// - Parameter moment: The number of requests after which the signal is sent.
        private static func answers(
            of gateway: GatewayProcess, key: String, signal: Int32, after moment: Int
        ) throws -> [HTTPClient.Answer] {
            let clients = try (0..<requests).map { _ in try gateway.client() }
            for (index, client) in clients.enumerated() {
                if index == moment { gateway.process.signal(signal) }
                client.sendRequest("POST", eventPath, Array(event(1).utf8), headers: [("Idempotency-Key", key)])
            }
            return clients.compactMap { try? $0.answer() }
        }

        @Test(.timeLimit(.minutes(10)), arguments: [SIGKILL, SIGTERM])
        func oneKey_storesOneMessage_whenTheGatewayEndsUnderAThousandRequests(signal: Int32) async throws {
            allowManyDescriptors()
            try await withRefusingPort { port in
                var settings = Settings(upstreamURL: "http://127.0.0.1:\(port)")
                settings.server["maxConnections"] = 2 * Self.requests
                let directory = try GatewayDirectory(settings)
                var stored: Set<String> = []
                for moment in [1, 20, 400, 999] {
                    let key = "\"key-\(moment)\""
                    var gateway = try await directory.start()
                    let before = try Self.answers(of: gateway, key: key, signal: signal, after: moment)
                    #expect(before.allSatisfy { [202, 409, 503].contains($0.status) })
                    _ = try await gateway.process.end()

                    gateway = try await directory.start()
                    let after = try (0..<Self.requests).map { _ in try gateway.client() }
                    for client in after {
                        client.sendRequest(
                            "POST", eventPath, Array(event(1).utf8), headers: [("Idempotency-Key", key)])
                    }
                    let answers = try before + after.map { try $0.answer() }
                    let texts = Set(answers.filter { $0.status == 202 }.map(\.text))
                    #expect(texts.count == 1, "\(texts)")
                    stored.formUnion(texts)
                    // The requests that arrived while the first was being stored.
                    #expect(answers.allSatisfy { [202, 409, 503].contains($0.status) })
                    try await gateway.stop()
                }
                #expect(stored.count == 4)
                #expect(try directory.audit().accounts[0].ledger.accepted == 4)
            }
        }
    }
}
