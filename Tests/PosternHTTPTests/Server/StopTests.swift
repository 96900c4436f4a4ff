import Glibc
import PosternCore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

@testable import PosternHTTP

@Suite(.serialized, .timeLimit(.minutes(10))) struct StopTests {
    @Test func stopAccepting_refusesNewClients_andClosesKeptOnesWithTheirNextAnswer() throws {
        try withServer { server, port in
            let kept = try HTTPClient(port: port)
            kept.sendPost("/", "1")
            #expect(try kept.answer().header("Connection") == nil)
            server.stopAccepting()
            #expect {
                _ = try HTTPClient(port: port)
            } throws: { error in
                if case HTTPClient.Failure.connect(ECONNREFUSED) = error { true } else { false }
            }
            kept.sendPost("/", "2")
            let last = try kept.answer()
            #expect(last.text == "2")
            #expect(last.header("Connection") == "close")
            try kept.waitForEnd()
        }
    }

    @Test func stop_waits_untilRunningRequestsAreAnswered() throws {
        let held = PendingRequests()
        try withServer(held.handler) { server, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "x")
            #expect(eventually { server.suspendedConnections == 1 }, "not suspended")
            let isStopped = Atomic<Bool>(false)
            let stopping = try DedicatedThread(name: "stopping") {
                server.stopAndWait(grace: longestWait)
                isStopped.store(true, ordering: .sequentiallyConsistent)
            }
            #expect(eventually { (try? HTTPClient(port: port)) == nil }, "still accepting")
            let stoppedEarly = isStopped.load(ordering: .sequentiallyConsistent)
            #expect(!stoppedEarly)
            held.take()?.responder.respond(.init(status: 200))
            #expect(try client.answer().status == 200)
            stopping.join()
        }
    }

    @Test func stop_cutsOff_whatIsUnansweredAfterTheGrace() throws {
        let held = PendingRequests()
        var clients: [HTTPClient] = []
        try withServer(held.handler) { server, port in
            for _ in 0..<10 {
                let client = try HTTPClient(port: port)
                client.sendPost("/", "x")
                clients.append(client)
            }
            let halfway = try HTTPClient(port: port)
            halfway.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc")
            clients.append(halfway)
            #expect(eventually { server.suspendedConnections == 10 && server.runningRequests == 11 }, "not suspended")
            server.stopAndWait(grace: .milliseconds(50))
            while held.count > 0 { _ = held.take() }
        }
        for client in clients { try client.waitForEnd() }
    }

    /// Of one response that does not fit into the buffers of its socket, or of many small ones.
    @Test(arguments: [(8 << 20, 1), (60 << 10, 400)])
    func stop_cutsOffClients_thatDoNotRead(bodyBytes: Int, requests: Int) throws {
        let body = [UInt8](repeating: 0x61, count: bodyBytes)
        let answered = Atomic<Int>(0)
        let handler = TestHandler { request, responder in
            guard request.head.path != "/other" else { return responder.respond(.init(status: 204)) }
            answered.wrappingAdd(1, ordering: .relaxed)
            responder.respond(.init(status: 200, body: body))
        }
        try withServer(handler) { server, port in
            let deaf = try HTTPClient(port: port, receiveBuffer: 4096)
            deaf.send(String(repeating: "GET / HTTP/1.1\r\nHost: t\r\n\r\n", count: requests))
            // Until nothing more is sent to it, although each worker takes turns.
            var (before, count) = (0, 0)
            while count == 0 || count != before {
                before = count
                for _ in 0..<4 {
                    let other = try HTTPClient(port: port)
                    other.send("GET /other HTTP/1.1\r\nHost: t\r\n\r\n")
                    #expect(try other.answer().status == 204)
                }
                count = answered.load(ordering: .relaxed)
            }
            #expect(eventually { server.runningRequests == 1 }, "no response is being sent")
            server.stopAndWait(grace: .zero)
            #expect(throws: (any Error).self) { while true { _ = try deaf.read(1 << 16) } }
        }
    }

    @Test func stop_doesNotHang_whileClientsComeAndAsk() throws {
        for _ in 0..<5 {
            let isDone = Atomic<Bool>(false)
            let port = Atomic<Int>(0)
            let asking = try DedicatedThread(name: "asking") {
                while !isDone.load(ordering: .relaxed) {
                    guard let client = try? HTTPClient(port: UInt16(port.load(ordering: .relaxed))) else { continue }
                    for _ in 0..<20 {
                        client.sendPost("/", "x")
                        guard (try? client.answer()) != nil else { break }
                    }
                }
            }
            let responders = Mutex<[Responder]>([])
            let answering = try DedicatedThread(name: "answering") {
                while !isDone.load(ordering: .relaxed) {
                    responders.withLock { $0.popLast() }?.respond(.init(status: 200))
                }
            }
            let asynchronous = TestHandler { _, responder in responders.withLock { $0.append(responder) } }
            try withServer(asynchronous, grace: .milliseconds(20)) { server, chosen in
                port.store(Int(chosen), ordering: .relaxed)
                #expect(eventually { server.openConnections > 0 }, "no client connected")
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
                let clients = try (0..<2).map { _ in try HTTPClient(port: port) }
                for client in clients { client.sendPost("/", "x") }
            }
        }
    }
}
