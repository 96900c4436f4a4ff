import Foundation
import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternAPI

/// A limit of 100 requests per second against 1000 concurrent ones, over real connections.
@Suite(.serialized, .timeLimit(.minutes(10))) struct RateLimitTests {
    private static let clients = 1000
    private static let threads = 20
    private static let bearer = [("Authorization", "Bearer k")]

    private func withLimit(_ time: any TimeSource, _ body: (TestGateway, [[HTTPClient]]) throws -> Void) throws {
        allowManyDescriptors()
        var setup = Setup()
        setup.time = time
        try withPausedGateway(setup) { gateway in
            let key = APIKey(
                name: "a", sha256: KeyText.digest(of: "k"), scopes: [.write],
                limits: .init(requestsPerSecond: 100))
            gateway.handler.replaceKeys([key], opensMetrics: false)
            let clients = try (0..<Self.clients).map { _ in try HTTPClient(port: gateway.port) }
            let share = Self.clients / Self.threads
            try body(gateway, (0..<Self.threads).map { Array(clients[($0 * share)..<(($0 + 1) * share)]) })
        }
    }

    /// Sends a request on each connection before the first response is read; how many were accepted.
    private func accepted(_ groups: [[HTTPClient]]) -> Int {
        let counts = Mutex((accepted: 0, others: [Int: Int]()))
        // Each group belongs to one thread.
        nonisolated(unsafe) let groups = groups
        DispatchQueue.concurrentPerform(iterations: groups.count) { index in
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
        let result = counts.withLock { $0 }
        #expect(Array(result.others.keys) == [429], "\(result.others)")
        return result.accepted
    }

    @Test func hundredPerSecond_passOfAThousand_secondBySecond() throws {
        let time = ManualTime()
        try withLimit(time) { gateway, clients in
            // The number of requests that may arrive at once after a pause.
            let atOnce = accepted(clients)
            #expect(atOnce == 100)
            for second in 1...5 {
                var passed = 0
                for _ in 0..<4 {
                    time.advance(by: .milliseconds(250))
                    passed += accepted(clients)
                }
                #expect((95...105).contains(passed), "in second \(second)")
            }
            #expect((575...625).contains(gateway.queued))
        }
    }
}
