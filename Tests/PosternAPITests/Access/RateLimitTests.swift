import Foundation
import Glibc
import PosternCore
import PosternHTTP
import PosternTestKit
import Synchronization
import Testing

@testable import PosternAPI

/// A limit of 100 requests per second against 1000 concurrent ones, over real connections.
@Suite(.serialized, .timeLimit(.minutes(10))) struct RateLimitTests {
    private static let clients = 1000
    private static let threads = 20
    private static let bearer = [("Authorization", "Bearer k")]

    private func withLimit(
        _ time: any TimeSource, burst: Int = 0, _ body: (TestGateway, [[HTTPClient]]) throws -> Void
    ) throws {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        var setup = Setup()
        setup.time = time
        try withPausedGateway(setup) { gateway in
            let key = APIKey(
                name: "a", sha256: KeyText.digest(of: "k"), scopes: [.write],
                limits: .init(requestsPerSecond: 100, burst: burst))
            gateway.handler.adopt([key], opensMetrics: false)
            let clients = try (0..<Self.clients).map { _ in try HTTPClient(port: gateway.port) }
            let share = Self.clients / Self.threads
            try body(gateway, (0..<Self.threads).map { Array(clients[($0 * share)..<(($0 + 1) * share)]) })
        }
    }

    /// Sends a request on each connection before the first response is read; how many were accepted, over all rounds until
    /// `isOver`.
    private func accepted(_ groups: [[HTTPClient]], until isOver: @escaping @Sendable (_ round: Int) -> Bool) -> Int {
        let counts = Mutex((accepted: 0, others: [Int: Int]()))
        // Each group belongs to one thread.
        nonisolated(unsafe) let groups = groups
        DispatchQueue.concurrentPerform(iterations: groups.count) { index in
            var round = 0
            while !isOver(round) {
                round += 1
                for client in groups[index] {
                    client.sendRequest("POST", "/v1/picky/event", Array(#"{"n":1}"#.utf8), headers: Self.bearer)
                }
                for client in groups[index] {
                    let status = (try? client.answer())?.status ?? 0
                    counts.withLock { counts in
                        if status == 202 { counts.accepted += 1 } else { counts.others[status, default: 0] += 1 }
                    }
                }
            }
        }
        let result = counts.withLock { $0 }
        #expect(Array(result.others.keys) == [429], "\(result.others)")
        return result.accepted
    }

    @Test func hundredPerSecond_passOfAThousand_secondBySecond() throws {
        let time = ManualTime()
        try withLimit(time) { gateway, clients in
            // The number of requests that may arrive at once after a pause.
            let atOnce = accepted(clients) { $0 == 1 }
            #expect(atOnce == 100)
            for second in 1...5 {
                var passed = 0
                for _ in 0..<4 {
                    time.advance(by: .milliseconds(250))
                    passed += accepted(clients) { $0 == 1 }
                }
                #expect((95...105).contains(passed), "in second \(second)")
            }
            #expect((575...625).contains(gateway.queued))
        }
    }

    @Test func hundredPerSecond_passOfAThousand_inRealTime() throws {
        // What is saved up while the machine stalls passes later, so that the test may run while others do.
        let burst = 300
        try withLimit(SystemTime(), burst: burst) { _, clients in
            let clock = ContinuousClock()
            let start = clock.now
            var passed = accepted(clients) { _ in clock.now - start >= .seconds(3) }
            // The threads end one after the other; this uses up what has been saved since.
            passed += accepted(clients) { $0 == 1 }
            let seconds = (clock.now - start) / .seconds(1)
            let perSecond = Double(passed - burst) / seconds
            #expect((95...105).contains(perSecond), "\(passed) in \(seconds) s")
        }
    }
}
