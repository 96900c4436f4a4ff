import Foundation
import Glibc
import PosternConformance
import PosternCore
import PosternTestKit
import Testing

extension EndToEnd {
    @Suite struct MigrateStore {
        /// One that syncs, as a gateway requires.
        private static let server = Result { try PostgresServer(settings: ["fsync=on"]) }

        private func settings(_ upstreamURL: String) throws -> Settings {
            let server = try Self.server.get()
            var settings = Settings(upstreamURL: upstreamURL)
            settings.outbox = [
                "engine": "postgres",
                "postgres": ["url": server.url, "schema": server.schema(), "node": "west", "leaseSeconds": 3],
            ]
            return settings
        }

        private func migrate(_ old: GatewayDirectory, to new: GatewayDirectory) async throws -> ChildProcess.Ended {
            try await Binary.run([
                "outbox", "migrate-store", "--config", old.config, "--to", new.config, "--json",
            ])
        }

        @Test(.timeLimit(.minutes(10)))
        func queue_isMoved_andDeliveredInOrder_howeverOftenTheCommandIsKilled() async throws {
            let old = try GatewayDirectory(Settings())
            let samsara = try HostedSimulator()
            let new = try GatewayDirectory(settings(samsara.url))
            let gateway = try await old.start()
            for first in stride(from: 0, to: 20_000, by: 500) {
                #expect(try gateway.client().post(eventPath, events(first..<first + 500)).status == 202)
            }
            #expect(try await migrate(old, to: new).exitCode == 75)
            try await gateway.stop()

            for delay in stride(from: 20, through: 400, by: 20) {
                let command = try Binary.start([
                    "outbox", "migrate-store", "--config", old.config, "--to", new.config,
                ])
                // Whatever it does then is interrupted, so there is nothing to wait for.
                try await Task.sleep(for: .milliseconds(delay))
                command.signal(SIGKILL)
                // What takes less time than that is done.
                if try await command.end().exitCode == 0 { break }
            }
            let isMoved = try await Binary.run(["outbox", "stats", "--config", old.config]).exitCode == 73
            let moved = try await migrate(old, to: new)
            #expect(moved.exitCode == 0 || isMoved && moved.errors.contains("was moved to"), "\(moved.errors)")
            let refused = try await old.fail()
            #expect(refused.exitCode == 73 && refused.errors.contains("was moved to"), "\(refused.errors)")
            #expect(try await Binary.run(["outbox", "audit", "--config", new.config]).exitCode == 0)

            let process = try Binary.start(["serve", "--config", new.config])
            let line = try await process.line(of: .errors) { $0.contains(" waiting for the store ") }
            #expect(line.contains("west"))
            #expect(eventually { (try? samsara.values(of: "seq").count) ?? 0 >= 20_000 })
            expectArrival(of: Array(0..<20_000), from: "device-1", in: try samsara.values(of: "seq"))
            process.signal(SIGTERM)
            _ = try await process.end()
        }

        @Test func storesOfOtherEngines_areRefusedWith64_andAMissingFileWith73() async throws {
            let file = try GatewayDirectory(Settings())
            let database = try GatewayDirectory(settings("http://127.0.0.1:9"))
            for (old, new) in [(database, file), (file, file), (database, database)] {
                let refused = try await migrate(old, to: new)
                #expect(refused.exitCode == 64 && refused.errors.contains("from SQLite to PostgreSQL only"))
            }
            let missing = try await migrate(file, to: database)
            #expect(missing.exitCode == 73 && missing.errors.contains("There is no store at"), "\(missing.errors)")
        }
    }
}
