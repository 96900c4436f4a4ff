import Foundation
import Glibc
import PosternConformance
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// `server.admin`: a listener of their own for operators.
    @Suite struct AdminListener {
        private func settings(admin: [String: Any]) -> Settings {
            var settings = Settings()
            settings.server["admin"] = admin
            return settings
        }

        private func adminPort(_ gateway: GatewayProcess) async throws -> UInt16 {
            let started = try #require(gateway.startLine.firstMatch(of: #/admin=127\.0\.0\.1:([0-9]+)/#))
            return try #require(UInt16(started.1))
        }

        @Test(.timeLimit(.minutes(10))) func operators_areServedThere_andCallersHere() async throws {
            let samsara = try HostedSimulator()
            var settings = self.settings(admin: ["host": "127.0.0.1", "port": 0])
            settings.upstreams = ["samsara": ["url": samsara.url]]
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let port = try await adminPort(gateway)
            let (main, admin) = (try gateway.client(), try HTTPClient(port: port))
            #expect(try main.post(eventPath, event(1)).status == 202)
            #expect(try main.get("/readyz").status == 404)
            #expect(try admin.get("/readyz").status == 200)
            #expect(try admin.get("/metrics").text.contains("postern_messages_accepted_total"))
            #expect(try admin.post("/v1/upstreams/samsara/pause").status == 202)
            #expect(try main.post("/v1/upstreams/samsara/resume").status == 404)

            // The commands know which of the two they need.
            settings.server = ["port": gateway.port, "admin": ["host": "127.0.0.1", "port": port]]
            try directory.configure(settings)
            let healthy = try await Binary.run(["healthcheck", "--config", directory.config])
            #expect(healthy.exitCode == 0, "\(healthy.errors)")
            let retry = ["outbox", "retry", "--upstream", "samsara", "--config", directory.config]
            let steered = try await Binary.run(retry)
            #expect(steered.exitCode == 0, "\(steered.errors)")
            gateway.process.signal(SIGHUP)
            let line = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            #expect(line.contains("server.admin.port") && line.contains("needsRestart"))
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10))) func portInUse_endsTheStartWith69() async throws {
            let socket = boundSocket()
            defer { close(socket) }
            listen(socket, 1)
            let ended = try await GatewayDirectory(settings(admin: ["host": "127.0.0.1", "port": port(of: socket)]))
                .fail()
            #expect(ended.exitCode == 69)
            #expect(ended.errors.contains("cannot listen on 127.0.0.1:\(port(of: socket))"), "\(ended.errors)")
        }

        /// The other listener is closed again.
        @Test(.timeLimit(.minutes(10))) func mainPortInUse_endsTheStartWith69() async throws {
            let socket = boundSocket()
            defer { close(socket) }
            listen(socket, 1)
            var settings = self.settings(admin: ["host": "127.0.0.1"])
            settings.server["port"] = port(of: socket)
            let ended = try await GatewayDirectory(settings).fail()
            #expect(ended.exitCode == 69, "\(ended.errors)")
        }
    }
}
