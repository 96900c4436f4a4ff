import PosternCore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

@testable import PosternHTTP

@Suite(.serialized) struct ResponderTests {
    @Test func answer_mayComeLater_fromAnotherThread() throws {
        let held = PendingRequests()
        try withServer(held.handler) { server, port in
            let client = try HTTPClient(port: port)
            for number in 0..<5 {
                client.sendPost("/", "\(number)")
                let (request, responder) = try #require(held.take())
                #expect(request.body == Array("\(number)".utf8))
                #expect(eventually { server.suspendedConnections == 1 }, "the connection was not suspended")
                #expect(server.runningRequests == 1)
                responder.respond(.init(status: 202, body: request.body))
                #expect(try client.answer().text == "\(number)")
            }
            #expect(eventually { server.runningRequests == 0 }, "a request stayed")
        }
    }

    /// Answers race with the suspension: each must arrive exactly once, none may hang.
    @Test func answers_fromAnotherThread_raceWithTheSuspension() throws {
        let queue = Mutex<[(IncomingRequest, Responder)]>([])
        let isDone = Atomic<Bool>(false)
        let handler = TestHandler { request, responder in queue.withLock { $0.append((request, responder)) } }
        let answering = try DedicatedThread(name: "answering") {
            while !isDone.load(ordering: .relaxed) {
                let next = queue.withLock { $0.popLast() }
                if let (request, responder) = next { responder.respond(.init(status: 200, body: request.body)) }
            }
        }
        try withServer(handler) { _, port in
            let clients = try (0..<8).map { _ in try HTTPClient(port: port) }
            for round in 0..<200 {
                for (index, client) in clients.enumerated() { client.sendPost("/", "\(round)/\(index)") }
                for (index, client) in clients.enumerated() { #expect(try client.answer().text == "\(round)/\(index)") }
            }
        }
        isDone.store(true, ordering: .relaxed)
        answering.join()
    }

    @Test func secondAnswer_changesNothing() throws {
        let handler = TestHandler { _, responder in
            responder.respond(.init(status: 201))
            responder.respond(.init(status: 500))
            responder.hangUp()
        }
        try withServer(handler) { _, port in
            let client = try HTTPClient(port: port)
            for _ in 0..<2 {
                client.sendPost("/", "")
                #expect(try client.answer().status == 201)
            }
        }
    }

    @Test func lateAnswer_doesNotReach_theNextRequest() throws {
        let held = PendingRequests()
        try withServer(held.handler) { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "")
            let first = try #require(held.take()).responder
            first.respond(.init(status: 201))
            #expect(try client.answer().status == 201)
            client.sendPost("/", "")
            let second = try #require(held.take()).responder
            first.target.settle(.response(.init(status: 500)), requestNumber: first.requestNumber)
            second.respond(.init(status: 202))
            #expect(try client.answer().status == 202)
        }
    }

    @Test func droppedResponder_answers500() throws {
        try withServer(TestHandler { _, _ in }) { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/lost", "")
            let answer = try client.answer()
            #expect(answer.status == 500)
            #expect(answer.text.contains("urn:postern:problem:internal"))
            #expect(answer.text.contains("\"instance\":\"/lost\""))
        }
    }

    @Test func droppedResponder_answers500_alsoLater() throws {
        let held = PendingRequests()
        try withServer(held.handler) { server, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "")
            #expect(eventually { server.suspendedConnections == 1 }, "not suspended")
            _ = held.take()
            #expect(try client.answer().status == 500)
        }
    }

    @Test func answer_isHarmless_afterTheClientLeft() throws {
        let held = PendingRequests()
        try withServer(held.handler) { server, port in
            do {
                let client = try HTTPClient(port: port)
                client.sendPost("/", "x")
                #expect(eventually { server.suspendedConnections == 1 }, "not suspended")
            }
            held.take()?.responder.respond(.init(status: 200, body: [UInt8](repeating: 1, count: 1 << 20)))
            #expect(eventually { server.openConnections == 0 && server.runningRequests == 0 }, "the connection stayed")
        }
    }

    @Test func answer_isHarmless_afterTheStop() throws {
        let held = PendingRequests()
        let client: HTTPClient?
        do {
            let server = HTTPServer(.init { $0.port = 0 }, handler: held.handler, logger: testLogger)
            client = try HTTPClient(port: server.start())
            client?.sendPost("/", "x")
            #expect(eventually { server.suspendedConnections == 1 }, "not suspended")
            server.stopAndWait(grace: .zero)
        }
        held.take()?.responder.respond(.init(status: 200))
        #expect(try client?.readToEnd() == [])
    }

    @Test func head_keptForLater_hasItsHeaders() throws {
        let held = PendingRequests()
        try withServer(held.handler) { server, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/p/%41?a=1&b=%20x&a", "x", headers: "X-One: 1\r\nx-two: 2\r\nX-ONE: 3\r\n")
            let (request, responder) = try #require(held.take())
            #expect(eventually { server.suspendedConnections == 1 }, "not suspended")
            responder.respond(.init(status: 200))
            _ = try client.answer()
            client.sendPost("/", "y", headers: "Other: \(String(repeating: "o", count: 500))\r\n")
            let next = try #require(held.take()).responder
            let head = request.head
            #expect(head.method == "POST")
            #expect(head.path == "/p/%41")
            #expect(head.query?.text == "a=1&b=%20x&a")
            #expect(head.query?.pairs.map(\.name) == ["a", "b", "a"])
            #expect(head.query?.pairs.map(\.value) == ["1", " x", ""])
            #expect(head.header("x-one") == "1, 3")
            #expect(head.header("X-Two") == "2")
            #expect(head.header("none") == nil)
            #expect(head.headers("x-one") == ["1", "3"])
            #expect(head.headers("x-6") == [])
            #expect(head.headers.map(\.name) == ["Host", "X-One", "x-two", "X-ONE", "Content-Length"])
            #expect(head.headers.map(\.value) == ["t", "1", "2", "3", "1"])
            #expect(head.peer.description == "127.0.0.1")
            #expect(head.peer.isLoopback)
            #expect(head.version == .http11)
            next.respond(.init(status: 200))
        }
    }

    @Test func head_looksUpHeaders_whileTheHandlerRuns() throws {
        let handler = TestHandler { request, responder in
            let all = request.head.headers.map { "\($0.name)=\($0.value)" }.joined(separator: ";")
            responder.respond(.init(status: 200, body: Array("\(request.head.header("HOST") ?? "-") \(all)".utf8)))
        }
        try withServer(handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send("GET http://t/a HTTP/1.1\r\nHost: t\r\nA: 1\r\na: 2\r\n\r\n")
            #expect(try client.answer().text == "t Host=t;A=1;a=2")
        }
    }
}
