import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

extension EndToEnd {
    /// A gateway that cannot start reports why, with the right exit code (design, section 6).
    @Suite struct Start {
        @Test(arguments: [
            ["serve"], ["serve", "--config", "x", "--unheard-of"], ["unheard-of"], ["serve", "--config"],
        ])
        func wrongUsage_isExplained(arguments: [String]) async throws {
            let ended = try await Binary.run(arguments)
            #expect(ended.exitCode == 64)
            #expect(ended.errors.contains("Usage: postern"))
        }

        @Test func badConfiguration_isReportedAllAtOnce() async throws {
            let directory = try GatewayDirectory(Settings())
            try directory.write(
                #"""
                {"server": {"port": 70000, "hots": "127.0.0.1"}, "delivery": {"maxInFlight": 0},
                 "log": {"level": "loud"}, "upstreams": {"samsara": {"url": "nowhere"}, "queue": {"type": "kafka"}}}
                """#)
            let ended = try await directory.fail()
            #expect(ended.exitCode == 78)
            for path in [
                "server.port", "server.hots", "delivery.maxInFlight", "log.level", "upstreams.samsara.url",
                "upstreams.queue.type",
            ] {
                #expect(ended.errors.contains(path), "\(path) is not in: \(ended.errors)")
            }
            #expect(!FileManager.default.fileExists(atPath: directory.store))
        }

        @Test func missingConfiguration_isAConfigurationProblem() async throws {
            let ended = try await Binary.run(["serve", "--config", "/nowhere/postern.json"])
            #expect(ended.exitCode == 78)
            #expect(ended.errors.contains("/nowhere/postern.json"))
        }

        @Test func configurationThatIsNotJSON_isAConfigurationProblem() async throws {
            let directory = try GatewayDirectory(Settings())
            try directory.write("{\"server\": ")
            let ended = try await directory.fail()
            #expect(ended.exitCode == 78, "\(ended.errors)")
            #expect(ended.errors.contains(directory.config))
        }

        /// It is needed twice: the format of the log has to be known first.
        @Test func configurationFromAPipe_isRead() async throws {
            let script = #"echo '{"server": {"port": 70000}}' | "$0" "$@""#
            let ended = try await Binary.start(
                ["serve", "--config", "/dev/stdin"], through: ["/bin/sh", "-c", script]
            ).end()
            #expect(ended.exitCode == 78, "\(ended.errors)")
            #expect(ended.errors.contains("server.port is 70000"), "\(ended.errors)")
        }

        @Test func folderThatCannotBeMade_isExplained() async throws {
            let directory = try GatewayDirectory(Settings())
            try directory.write(Settings().json(store: "/proc/self/postern/postern.sqlite"))
            let ended = try await directory.fail()
            #expect(ended.exitCode == 73, "\(ended.errors)")
            #expect(ended.errors.contains("/proc/self/postern"))
        }

        @Test func secondProcessOnOneStore_isRefused() async throws {
            let directory = try GatewayDirectory(Settings())
            let gateway = try await directory.start()
            let ended = try await directory.fail()
            #expect(ended.exitCode == 75)
            #expect(ended.errors.contains("another process is running on the store at \(directory.store)"))
            #expect(try gateway.client().post(eventPath, event(1)).status == 202)
            try await gateway.stop()
        }

        @Test func portInUse_isExplained() async throws {
            let gateway = try await GatewayDirectory(Settings()).start()
            let other = try GatewayDirectory(Settings(server: ["port": Int(gateway.port)]))
            let ended = try await other.fail()
            #expect(ended.exitCode == 69, "\(ended.errors)")
            #expect(ended.errors.contains("\(gateway.port)"))
            #expect(ended.errors.contains("server.port"))
            // What had been opened was closed again: the store is free, and sound.
            try other.configure(Settings())
            try await other.start().stop()
            try await gateway.stop()
        }
    }

    /// Damaged stores, and files that are not stores.
    @Suite struct Store {
        /// A place with ten messages that cannot be delivered.
        private func filled() async throws -> GatewayDirectory {
            let directory = try GatewayDirectory(Settings(server: ["port": 0, "shutdownGraceSeconds": 0]))
            let gateway = try await directory.start()
            #expect(try gateway.client().post(eventPath, events(0..<10)).status == 202)
            try await gateway.stop()
            return directory
        }

        private func bytes(_ path: String) throws -> Data { try Data(contentsOf: URL(filePath: path)) }

        private func kept(_ directory: GatewayDirectory) throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: directory.folder.file("data"))
                .filter { $0.contains(".damaged-") }
        }

        @Test func foreignDatabase_isLeftAlone() async throws {
            let directory = try GatewayDirectory(Settings())
            try FileManager.default.createDirectory(
                atPath: directory.folder.file("data"), withIntermediateDirectories: true)
            let connection = try SQLiteConnection(directory.store)
            try connection.execute("CREATE TABLE theirs (a)")
            try connection.close()
            let before = try bytes(directory.store)
            for arguments in [[], ["--start-fresh"]] {
                let ended = try await directory.fail(arguments)
                #expect(ended.exitCode == 73)
                #expect(ended.errors.contains("is not a Postern store"), "\(ended.errors)")
                #expect(try bytes(directory.store) == before)
            }
        }

        @Test func storeOfALaterVersion_isLeftAlone() async throws {
            let directory = try await filled()
            let connection = try SQLiteConnection(directory.store)
            try connection.execute("INSERT INTO grdb_migrations (identifier) VALUES ('99 from the future')")
            try connection.close()
            for arguments in [[], ["--start-fresh"]] {
                let ended = try await directory.fail(arguments)
                #expect(ended.exitCode == 73)
                #expect(ended.errors.contains("later version"), "\(ended.errors)")
            }
            #expect(try kept(directory).isEmpty)
        }

        @Test(arguments: ["header", "schema"])
        func damagedStore_isRefused_andKeptAsideOnRequest(what: String) async throws {
            let directory = try await filled()
            // What is in the WAL would hide the damage.
            let connection = try SQLiteConnection(directory.store)
            try connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            try connection.close()
            let handle = try #require(FileHandle(forUpdatingAtPath: directory.store))
            // The first page holds the header, then the list of tables.
            try handle.seek(toOffset: what == "header" ? 0 : 100)
            try handle.write(contentsOf: Data(repeating: 0x5A, count: what == "header" ? 100 : 3000))
            try handle.close()

            let ended = try await directory.fail()
            #expect(ended.exitCode == 73)
            #expect(ended.errors.contains("is damaged") && ended.errors.contains("--start-fresh"), "\(ended.errors)")
            #expect(try kept(directory).isEmpty)

            let gateway = try await directory.start(["--start-fresh"])
            #expect(try !kept(directory).isEmpty)
            #expect(try gateway.upstream()["queued"].int == 0)
            #expect(try gateway.client().post(eventPath, event(1)).status == 202)
            try await gateway.stop()
            #expect(try directory.audit().accounts[0].ledger.accepted == 1)
        }

        @Test func soundStore_staysWithStartFresh() async throws {
            let directory = try await filled()
            let gateway = try await directory.start(["--start-fresh"])
            #expect(try gateway.upstream()["queued"].int == 10)
            #expect(try kept(directory).isEmpty)
            try await gateway.stop()
        }
    }
}
