import PosternCore
import PosternTestKit
import Testing

@testable import PosternHTTP

/// The acceptor is run by the test.
@Suite struct AcceptorTests {
    /// Clients that have sent their requests are served although others keep on connecting.
    @Test func clients_areAcceptedInParts() throws {
        let core = ServerCore(
            HTTPServerSettings(), memory: ByteBudget(.max), handler: TestHandler(), logger: testLogger)
        let worker = HTTPWorker(core, name: "worker")
        try worker.start(nil)
        defer { worker.stop() }
        let listener = try Listener(host: "127.0.0.1", port: 0)
        var workers = HTTPWorkers()
        workers.ordinary = [worker]
        let acceptor = Acceptor(listener, for: workers, core.limiter, testLogger)
        defer { acceptor.stop() }

        let clients = try (0..<80).map { _ in try HTTPClient(port: listener.port) }
        _ = acceptor.turn(at: SystemTime().instant)
        #expect((1...64).contains(core.limiter.connections))
        #expect(acceptor.wait(until: SystemTime().instant + longestWait), "more clients wait")
        let areAllAccepted = eventually {
            _ = acceptor.turn(at: SystemTime().instant)
            return core.limiter.connections == 80
        }
        #expect(areAllAccepted)
        withExtendedLifetime(clients) {}
    }
}
