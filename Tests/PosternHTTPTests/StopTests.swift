import Glibc
import Synchronization
import Testing

@testable import PosternHTTP

@Suite(.serialized) struct StopTests {
    @Test func stopAccepting_refusesNewClients_andClosesKeptOnesWithTheirNextAnswer() throws {
        try withServer { server, port in
            let kept = try RawClient(port: port)
            kept.post("/", "1")
            #expect(try kept.answer().header("Connection") == nil)
            server.stopAccepting()
            #expect {
                _ = try RawClient(port: port)
            } throws: { error in
                if case RawClient.Failure.connect(ECONNREFUSED) = error { true } else { false }
            }
            kept.post("/", "2")
            let last = try kept.answer()
            #expect(last.body == "2")
            #expect(last.header("Connection") == "close")
            try kept.waitForEnd()
        }
    }

    @Test func stop_waits_untilRunningRequestsAreAnswered() throws {
        let held = PendingRequests()
        try withServer(held.handler) { server, port in
            let client = try RawClient(port: port)
            client.post("/", "x")
            eventually("not suspended") { server.suspendedConnections == 1 }
            let isStopped = Atomic<Bool>(false)
            let stopping = BackgroundLoop {
                server.stopAndWait(grace: .seconds(10))
                isStopped.store(true, ordering: .sequentiallyConsistent)
                return false
            }
            eventually("still accepting") { (try? RawClient(port: port)) == nil }
            let stoppedEarly = isStopped.load(ordering: .sequentiallyConsistent)
            #expect(!stoppedEarly)
            held.take()?.responder.respond(.init(status: 200))
            #expect(try client.answer().status == 200)
            stopping.join()
        }
    }

    @Test func stop_cutsOff_whatIsUnansweredAfterTheGrace() throws {
        let held = PendingRequests()
        var clients: [RawClient] = []
        try withServer(held.handler) { server, port in
            for _ in 0..<10 {
                let client = try RawClient(port: port)
                client.post("/", "x")
                clients.append(client)
            }
            let halfway = try RawClient(port: port)
            halfway.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc")
            clients.append(halfway)
            eventually("not suspended") { server.suspendedConnections == 10 && server.runningRequests == 11 }
            server.stopAndWait(grace: .milliseconds(50))
            while held.count > 0 { _ = held.take() }
        }
        for client in clients { try client.waitForEnd() }
    }

    @Test func stop_doesNotHang_whileClientsComeAndAsk() throws {
        for _ in 0..<5 {
            let isDone = Atomic<Bool>(false)
            let port = Atomic<Int>(0)
            let asking = BackgroundLoop {
                if let client = try? RawClient(port: UInt16(port.load(ordering: .relaxed))) {
                    for _ in 0..<20 {
                        client.post("/", "x")
                        guard (try? client.answer()) != nil else { break }
                    }
                }
                return !isDone.load(ordering: .relaxed)
            }
            let responders = Mutex<[Responder]>([])
            let answering = BackgroundLoop {
                responders.withLock { $0.popLast() }?.respond(.init(status: 200))
                return !isDone.load(ordering: .relaxed)
            }
            let asynchronous = TestHandler { _, responder in responders.withLock { $0.append(responder) } }
            try withServer(asynchronous, grace: .milliseconds(20)) { server, chosen in
                port.store(Int(chosen), ordering: .relaxed)
                eventually("no client connected") { server.openConnections > 0 }
            }
            isDone.store(true, ordering: .relaxed)
            asking.join()
            answering.join()
        }
    }

    /// libmicrohttpd took the missing listener for a reason to abort the process.
    @Test func stop_isSafe_whileWorkersReachTheConnectionLimit() throws {
        for _ in 0..<100 {
            try withServer(maxConnections: 2) { _, port in
                let clients = try (0..<2).map { _ in try RawClient(port: port) }
                for client in clients { client.post("/", "x") }
            }
        }
    }
}
