import Foundation
import Glibc
import PosternConformance
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

extension EndToEnd {
    /// Gateways that divide the queues of a store in PostgreSQL among themselves.
    @Suite(.serialized) struct SharedQueues {
        private static let queues = ["one", "two", "three", "four"]

        private func settings(_ url: String) throws -> Settings {
            var settings = try SharedStore.settings(url)
            settings.upstreams = Dictionary(
                uniqueKeysWithValues: Self.queues.map { ($0, ["type": "samsara", "url": url]) })
            // So that what settles late is due to the gateways.
            settings.delivery["batchMaxWaitSeconds"] = 0.02
            return settings
        }

        /// The numbers of queues of the gateways, by name, as this one knows them.
        private func shares(_ node: Node) throws -> [String: [String]] {
            let nodes = try node.client().get("/v1/nodes").json["nodes"].array
            return Dictionary(nodes.map { ($0["name"].string ?? "", $0["queues"].strings) }) { $0 + $1 }
        }

        private func wait(
            for counts: [Int], at node: Node, within limit: Duration = .seconds(30),
            _ location: SourceLocation = #_sourceLocation
        ) throws {
            let start = ContinuousClock.now
            let isSettled = eventually(every: .milliseconds(20)) {
                ((try? shares(node).values.map(\.count).sorted()) ?? []) == counts.sorted()
            }
            let took = ContinuousClock.now - start
            let found = try shares(node)
            #expect(isSettled, "\(found)", sourceLocation: location)
            #expect(Binary.isSanitized || took < limit, "after \(took)", sourceLocation: location)
        }

        /// Posts events of a source to a queue, the next number each, and again what got no 202, to any gateway.
        private final class Poster: Sendable {
            let queue: String
            let source: String
            let accepted = Mutex<[Int]>([])
            /// When responses that waited for the delivery had come, and how long they took.
            let deliveries = Mutex<[(at: ContinuousClock.Instant, took: Duration)]>([])
            private let isStopping = Atomic<Bool>(false)
            private let waits: Bool

            init(to queue: String, waits: Bool = false) {
                (self.queue, source, self.waits) = (queue, "device-\(queue)", waits)
            }

            func stop() { isStopping.store(true, ordering: .relaxed) }

            func run(_ ports: [UInt16]) {
                var (next, attempt) = (0, 0)
                while !isStopping.load(ordering: .relaxed) {
                    let client = try? HTTPClient(port: ports[attempt % ports.count])
                    attempt += 1
                    let key = [("Idempotency-Key", "\(source)-\(next)")]
                    let start = ContinuousClock.now
                    let answer = try? client?.post(
                        "/v1/\(queue)/event", event(next, source: source),
                        headers: waits ? key + [("Prefer", "wait=30")] : key)
                    guard let answer, [200, 202].contains(answer.status) else {
                        usleep(5000)
                        continue
                    }
                    if answer.status == 200 {
                        let now = ContinuousClock.now
                        deliveries.withLock { $0.append((now, now - start)) }
                    }
                    accepted.withLock { $0.append(next) }
                    next += 1
                    usleep(5000)
                }
            }
        }

        private func isDrained(_ node: Node) throws -> Bool {
            try Self.queues.allSatisfy { try node.client().get("/v1/upstreams/\($0)").json["queued"].int == 0 }
        }

        @Test(.timeLimit(.minutes(10))) func gatewaysThatJoinAndStop_shareTheQueues_andKeepTheOrder() async throws {
            let samsara = try HostedSimulator(faults: "delay=5ms:0.2,status=503:0.02")
            let settings = try settings(samsara.url)
            let west = try await Node("west", settings)
            _ = try west.timeUntilReady()
            try wait(for: [4], at: west)
            let posters = Self.queues.map { Poster(to: $0) }
            let ports = Mutex([west.port])
            let threads = try posters.map { poster in
                try DedicatedThread(name: "e2e-poster") { poster.run(ports.withLock { $0 }) }
            }
            func accepted() -> Int { posters.reduce(0) { sum, poster in sum + poster.accepted.withLock(\.count) } }
            #expect(eventually { accepted() > 50 })

            // A beat is a quarter of a lease; three, and the time in which a request in flight ends.
            let beats = Duration.seconds(SharedStore.lease * 3 / 4 + 1)
            let east = try await Node("east", settings)
            _ = try east.timeUntilReady()
            try wait(for: [2, 2], at: east, within: beats)
            let south = try await Node("south", settings)
            _ = try south.timeUntilReady()
            try wait(for: [1, 1, 2], at: south, within: beats)
            for queue in Self.queues {
                let isShown = eventually {
                    guard let owner = try? south.client().get("/v1/upstreams/\(queue)").json["owner"].string else {
                        return false
                    }
                    return (try? shares(south)[owner]?.contains(queue)) == true
                }
                #expect(isShown, "\(queue)")
            }
            let moves = try east.client().get("/metrics").text
            #expect(moves.contains("postern_queue_moves_total{reason=\"balance\"} 2\n"), "\(moves)")

            // Nothing it has in flight takes long.
            let goal = accepted() + 20
            #expect(eventually { accepted() > goal })
            east.process.signal(SIGTERM)
            try wait(for: [2, 2], at: south, within: .seconds(2))
            #expect(try await east.process.end().exitCode == 0)
            #expect(try shares(south)["east"] == nil)

            posters.forEach { $0.stop() }
            threads.forEach { $0.join() }
            try samsara.play("")
            #expect(eventually(every: .milliseconds(20)) { (try? isDrained(south)) == true })
            let arrived = try samsara.values(of: "seq")
            for poster in posters {
                expectArrival(of: poster.accepted.withLock { $0 }, from: poster.source, in: arrived)
            }
            let audit = try await Binary.run(["outbox", "audit", "--config", south.directory.config])
            #expect(audit.exitCode == 0, "\(audit.output)\(audit.errors)")
            for node in [west, south] { #expect(try await node.stop().exitCode == 0) }
        }

        @Test(.timeLimit(.minutes(10)))
        func lanesOfAKilledGateway_goOn_withinTheLeaseAndTwoSeconds_andOthersMeanwhile() async throws {
            let samsara = try HostedSimulator()
            let settings = try settings(samsara.url)
            let west = try await Node("west", settings)
            _ = try west.timeUntilReady()
            let east = try await Node("east", settings)
            _ = try east.timeUntilReady()
            try wait(for: [2, 2], at: east)
            let shares = try shares(east)
            let posters = Self.queues.map { Poster(to: $0, waits: true) }
            let threads = try posters.map { poster in
                try DedicatedThread(name: "e2e-poster") { [port = east.port] in poster.run([port]) }
            }
            func delivered(_ queue: String) -> [(at: ContinuousClock.Instant, took: Duration)] {
                posters.first { $0.queue == queue }?.deliveries.withLock { $0 } ?? []
            }
            #expect(eventually { Self.queues.allSatisfy { delivered($0).count > 100 } })
            let killed = ContinuousClock.now
            west.process.signal(SIGKILL)
            let lost = try #require(shares["west"])
            let goesOn = eventually(every: .milliseconds(5)) {
                lost.allSatisfy { queue in delivered(queue).contains { $0.at > killed + .milliseconds(500) } }
            }
            let away = ContinuousClock.now - killed
            #expect(goesOn)
            #expect(Binary.isSanitized || away < .seconds(SharedStore.lease + 2), "nothing was delivered for \(away)")
            #expect(eventually { lost.allSatisfy { queue in delivered(queue).count { $0.at > killed } > 20 } })
            posters.forEach { $0.stop() }
            threads.forEach { $0.join() }

            // The other queues have not noticed.
            func p99(_ times: [Duration]) -> Duration { times.sorted()[times.count * 99 / 100] }
            for queue in try #require(shares["east"]) {
                let (before, after) = (
                    delivered(queue).filter { $0.at <= killed }, delivered(queue).filter { $0.at > killed }
                )
                let (usual, meanwhile) = (p99(before.map(\.took)), p99(after.map(\.took)))
                // With what a machine with other work adds.
                #expect(
                    Binary.isSanitized || meanwhile <= max(usual * 2, .milliseconds(500)), "\(usual), then \(meanwhile)"
                )
            }
            _ = try await west.process.end()
            #expect(eventually(every: .milliseconds(20)) { (try? isDrained(east)) == true })
            let arrived = try samsara.values(of: "seq")
            for poster in posters {
                expectArrival(of: poster.accepted.withLock { $0 }, from: poster.source, in: arrived)
            }
            let metrics = try east.client().get("/metrics").text
            #expect(metrics.contains("postern_queue_moves_total{reason=\"takeover\"} 2\n"), "\(metrics)")
            #expect(metrics.contains("postern_queues_owned 4\n"))
            let audit = try await Binary.run(["outbox", "audit", "--config", east.directory.config])
            #expect(audit.exitCode == 0, "\(audit.output)\(audit.errors)")
            #expect(try await east.stop().exitCode == 0)
        }
    }
}
