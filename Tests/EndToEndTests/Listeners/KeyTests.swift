import Glibc
import PosternAPI
import PosternConformance
import PosternCore
import PosternTestKit
import Testing

extension EndToEnd {
    /// API keys, from `keys new` to the log.
    @Suite struct APIKeys {
        private func entry(_ name: String, _ key: String, _ scopes: [String]) -> [String: Any] {
            let digest = KeyText.digest(of: key).hexadecimal
            return ["name": name, "sha256": digest, "scopes": scopes]
        }

        /// A listener that is not on loopback: a caller without a key gets no further than the probes.
        @Test(.timeLimit(.minutes(10)))
        func keys_guardAGatewayThatOthersReach_andCanBeReplacedWhileItRuns() async throws {
            let samsara = try HostedSimulator()
            var settings = Settings(upstreamURL: samsara.url)
            settings.server["host"] = "0.0.0.0"
            settings.auth["keys"] = [
                entry("app", "first", ["write"]), entry("ops", "steer", ["read", "admin"]),
            ]
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let client = try gateway.client()
            func post(_ key: String?) throws -> Int {
                let headers = key.map { [("Authorization", "Bearer \($0)"), ("Prefer", "wait=60")] } ?? []
                return try client.post(eventPath, event(1), headers: headers).status
            }
            let (none, wrong, right) = (try post(nil), try post("none"), try post("first"))
            #expect(none == 401 && wrong == 401 && right == 200)
            let (live, metrics) = (try client.get("/livez").status, try client.get("/metrics").status)
            #expect(live == 200 && metrics == 401)

            settings.auth["keys"] = [entry("app", "second", ["write"]), entry("ops", "steer", ["read", "admin"])]
            try directory.configure(settings)
            gateway.process.signal(SIGHUP)
            let line = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            #expect(line.contains("auth.keys"))
            let (old, new) = (try post("first"), try post("second"))
            #expect(old == 401 && new == 200)

            let steered = try client.post(
                "/v1/upstreams/samsara/pause", headers: [("Authorization", "Bearer steer"), ("X-Request-Id", "r-17")])
            #expect(steered.status == 202)
            _ = try client.post("/v1/upstreams/samsara/resume", headers: [("Authorization", "Bearer second")])
            let ended = try await gateway.stop()
            let notices = ended.errors.split(separator: "\n").filter { $0.contains(" operator action ") }
            #expect(notices.count == 1, "a refused request leaves none: \(notices)")
            for part in ["key=ops", "client=127.0.0.1", "POST /v1/upstreams/samsara/pause", "r-17"] {
                #expect(notices.first?.contains(part) == true, "\(notices)")
            }
            for key in ["first", "second", "steer"] { #expect(!ended.errors.contains("Bearer \(key)")) }
        }

        @Test(.timeLimit(.minutes(10))) func commands_presentTheKeyOfTheEnvironment() async throws {
            let samsara = try HostedSimulator()
            var settings = Settings(upstreamURL: samsara.url)
            settings.auth["keys"] = [entry("ops", "steer", ["read", "admin", "write"])]
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let url = "http://127.0.0.1:\(gateway.port)"
            let command = ["outbox", "retry", "--upstream", "samsara", "--config", directory.config, "--url", url]
            let refused = try await Binary.run(command)
            #expect(refused.exitCode != 0)
            let accepted = try await Binary.run(command, environment: ["POSTERN_KEY": "steer"])
            #expect(accepted.exitCode == 0, "\(accepted.errors)")
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10))) func keysWithAllowAnonymous_areAConfigurationError() async throws {
            var settings = Settings()
            settings.auth = ["allowAnonymous": true, "keys": [entry("app", "k", ["write"])]]
            let ended = try await GatewayDirectory(settings).fail()
            #expect(ended.exitCode == 78)
            #expect(ended.errors.contains("auth.allowAnonymous is true although auth.keys is not empty"))
        }
    }
}
