import Glibc
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

extension EndToEnd {
    /// Promises 1 to 4, with the gateway killed repeatedly under load. `make torture` does the same for longer.
    @Suite struct Killed {
        /// Writes events of one source, each request with the next numbers, until it is stopped or gets no response.
        private final class Writer: Sendable {
            let source: String
            /// Sequence numbers of events that were answered 202.
            let accepted = Mutex<[Int]>([])
            private let next = Mutex(0)
            private let isStopping = Atomic<Bool>(false)

            init(_ source: String) { self.source = source }

            func stop() { isStopping.store(true, ordering: .relaxed) }
            func rearm() { isStopping.store(false, ordering: .relaxed) }

            func run(port: UInt16) {
                guard let client = try? HTTPClient(port: port) else { return }
                while !isStopping.load(ordering: .relaxed) {
                    let count = Int.random(in: 0..<8) == 0 ? 12 : 1
                    let first = next.withLock { next in
                        defer { next += count }
                        return next
                    }
                    let body = count == 1 ? event(first, source: source) : events(first..<first + count, source: source)
                    guard let answer = try? client.post(eventPath, body) else { return }
                    guard answer.status == 202 else { continue }
                    accepted.withLock { $0 += first..<first + count }
                }
            }
        }

        @Test(.timeLimit(.minutes(10)))
        func everythingAccepted_arrives_whenTheGatewayIsKilledTwentyTimesUnderLoad() async throws {
            let batch = 10
            let kills = 20
            let samsara = try HostedSimulator(
                faults: "delay=10ms:0.2,status=503:0.08,reset-before:0.05,reset-after:0.05,truncate:0.03")
            var settings = Settings(upstreamURL: samsara.url)
            settings.delivery["batchMaxMessages"] = batch
            settings.delivery["batchMaxWaitSeconds"] = 0.005
            let directory = try GatewayDirectory(settings)
            let writers = (0..<4).map { Writer("device-\($0)") }
            func accepted() -> Int { writers.reduce(0) { sum, writer in sum + writer.accepted.withLock(\.count) } }

            for _ in 0..<kills {
                let gateway = try await directory.start()
                let goal = accepted() + Int.random(in: 20..<120)
                writers.forEach { $0.rearm() }
                let threads = try writers.map { writer in
                    try DedicatedThread(name: "e2e-writer") { [port = gateway.port] in writer.run(port: port) }
                }
                #expect(eventually(every: .milliseconds(1)) { accepted() >= goal }, "no progress")
                try await gateway.kill()
                writers.forEach { $0.stop() }
                threads.forEach { $0.join() }
            }

            try samsara.play("")
            let gateway = try await directory.start()
            try gateway.waitUntilDelivered()
            try await gateway.stop()

            let arrived = try samsara.values(of: "seq")
            for writer in writers {
                expectArrival(of: writer.accepted.withLock { $0 }, from: writer.source, in: arrived)
            }
            let received = try samsara.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            // Only a send whose answer was lost is repeated: by a fault, or because the gateway died meanwhile.
            let answers = received["answers"]
            let lost = (answers["reset-after"].int ?? 0) + (answers["truncate"].int ?? 0) + kills * 4
            #expect(try #require(received["duplicates"].int) <= lost * batch)
            let audit = try directory.audit()
            #expect(audit.isBalanced, "\(audit)")
            #expect(audit.accounts[0].ledger.accepted >= accepted())
            #expect(audit.accounts[0].ledger.delivered == audit.accounts[0].ledger.accepted)
        }
    }
}
