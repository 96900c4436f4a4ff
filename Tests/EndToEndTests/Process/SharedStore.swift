import Foundation
import PosternStore
import PosternTestKit
import Synchronization
import Testing

extension EndToEnd {
    /// A store in PostgreSQL that several gateways of a test share.
    enum SharedStore {
        static let lease = 3.0
        /// One that syncs, as a gateway requires.
        static let server = Result { try PostgresServer(settings: ["fsync=on"]) }

        static func settings(_ upstreamURL: String) throws -> Settings {
            let server = try server.get()
            var settings = Settings(upstreamURL: upstreamURL)
            settings.outbox = [
                "engine": "postgres",
                "postgres": ["url": server.url, "schema": server.schema(), "leaseSeconds": lease],
            ]
            return settings
        }
    }

    /// A gateway that listens, whether or not it owns the store.
    struct Node {
        let name: String
        let process: ChildProcess
        let port: UInt16
        let directory: GatewayDirectory
        let settings: Settings

        init(_ name: String, _ settings: Settings, environment: [String: String] = [:]) async throws {
            self.name = name
            var settings = settings
            var postgres = settings.outbox["postgres"] as? [String: Any] ?? [:]
            postgres["node"] = name
            settings.outbox["postgres"] = postgres
            self.settings = settings
            directory = try GatewayDirectory(settings)
            process = try Binary.start(["serve", "--config", directory.config], environment: environment)
            let line = try await process.line(of: .errors) { $0.contains(" waiting for the store ") }
            let port = line.split(separator: " ").first { $0.hasPrefix("port=") }
            self.port = try #require(port.flatMap { UInt16($0.dropFirst(5)) }, "no port in: \(line)")
        }

        func client() throws -> HTTPClient { try HTTPClient(port: port) }

        func ready() throws -> HTTPClient.Answer { try client().get("/readyz") }

        /// The time until it is ready.
        func timeUntilReady() throws -> Duration {
            let start = ContinuousClock.now
            try #require(eventually(every: .milliseconds(10)) { (try? ready().status) == 200 }, "it is not ready")
            return ContinuousClock.now - start
        }

        /// The name of the gateway that works on the queues, as this one knows it.
        func owner() throws -> String? { try client().get("/v1/upstreams/samsara").json["owner"].string }

        /// The time until it works on the queues.
        func timeUntilOwner() throws -> Duration {
            let start = ContinuousClock.now
            try #require(eventually(every: .milliseconds(10)) { (try? owner()) == name }, "it owns nothing")
            return ContinuousClock.now - start
        }

        func stop() async throws -> ChildProcess.Ended {
            process.signal(SIGTERM)
            return try await process.end()
        }
    }

    /// Posts events of one source, the next numbers each, and again what got no 202, to whichever gateway accepts.
    final class Writer: Sendable {
        let source: String
        let accepted = Mutex<[Int]>([])
        private let isStopping = Atomic<Bool>(false)

        init(_ source: String) { self.source = source }

        func stop() { isStopping.store(true, ordering: .relaxed) }

        func run(_ ports: [UInt16]) {
            var (next, attempt) = (0, 0)
            while !isStopping.load(ordering: .relaxed) {
                let client = try? HTTPClient(port: ports[attempt % ports.count])
                let key = [("Idempotency-Key", "\(source)-\(next)")]
                if let answer = try? client?.post(eventPath, event(next, source: source), headers: key),
                    answer.status == 202
                {
                    accepted.withLock { $0.append(next) }
                    next += 1
                } else {
                    attempt += 1
                    usleep(5000)
                }
            }
        }
    }
}
