import Glibc
import PosternTestKit
import Synchronization
import Testing

@testable import PosternHTTP

/// Clients that hang up while their request is being answered.
@Suite(.timeLimit(.minutes(10))) struct HangUpTests {
    /// Keeps its request open until the client disconnects.
    private final class Patient: Sendable {
        let held = PendingRequests()
        let hangUps = Atomic<Int>(0)
        var handler: TestHandler {
            TestHandler { [self] request, responder in
                responder.onHangUp { [self] in hangUps.add(1, ordering: .sequentiallyConsistent) }
                held.handler.onAnswer(request, responder)
            }
        }
        var count: Int { hangUps.load(ordering: .sequentiallyConsistent) }
    }

    private static let get = "GET / HTTP/1.1\r\nHost: t\r\n\r\n"

    /// The client closes the connection in an orderly way, or resets it.
    @Test(arguments: [false, true]) func hangUp_endsTheRequest_andIsReportedOnce(isReset: Bool) throws {
        let patient = Patient()
        try withServer(patient.handler) { server, port in
            var client: HTTPClient? = try HTTPClient(port: port)
            client?.send(Self.get)
            let request = patient.held.take()
            if isReset {
                var option = linger(l_onoff: 1, l_linger: 0)
                setsockopt(client?.socket ?? -1, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
            }
            client = nil
            #expect(eventually { server.runningRequests == 0 && server.openConnections == 0 }, "the request goes on")
            #expect(eventually { patient.count > 0 }, "no handler was notified")
            request?.responder.respond(HTTPResponse(status: 200))
            #expect(patient.count == 1)
        }
    }

    /// No action is registered: the connection is released all the same.
    @Test func hangUp_endsTheRequest_withoutAnAction() throws {
        let held = PendingRequests()
        try withServer(held.handler) { server, port in
            var client: HTTPClient? = try HTTPClient(port: port)
            client?.send(Self.get)
            let request = held.take()
            client = nil
            #expect(eventually { server.openConnections == 0 }, "the connection is kept")
            request?.responder.respond(HTTPResponse(status: 200))
        }
    }

    /// `nc -N` closes its sending side at once; an interim response tells it from a client that has left.
    @Test func halfClosedClient_getsItsResponse() throws {
        let patient = Patient()
        try withServer(patient.handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send(Self.get)
            shutdown(client.socket, Int32(SHUT_WR))
            let request = patient.held.take()
            #expect(try client.answer().status == 100)
            request?.responder.respond(HTTPResponse(status: 200, body: Array("late".utf8)))
            let answer = try client.answer()
            #expect(answer.status == 200)
            #expect(answer.text == "late")
            #expect(patient.count == 0)
        }
    }

    @Test func halfClosedClient_thatLeavesLater_isNoticed() throws {
        let patient = Patient()
        try withServer(patient.handler) { server, port in
            var client: HTTPClient? = try HTTPClient(port: port)
            client?.send(Self.get)
            shutdown(client?.socket ?? -1, Int32(SHUT_WR))
            let request = patient.held.take()
            #expect(try client?.answer().status == 100)
            client = nil
            // Its system says so as soon as it gets something that it has not asked for.
            request?.responder.respond(HTTPResponse(status: 200))
            #expect(eventually { server.openConnections == 0 }, "the connection is kept")
        }
    }

    /// HTTP/1.0 has no interim responses. Who asks to be told has something long in mind, and takes it for a hang-up.
    @Test func halfClosedClientOfHTTP10_isGone_onlyForLongWaits() throws {
        let request = "GET / HTTP/1.0\r\n\r\n"
        let patient = Patient()
        try withServer(patient.handler) { server, port in
            let client = try HTTPClient(port: port)
            client.send(request)
            shutdown(client.socket, Int32(SHUT_WR))
            let taken = patient.held.take()
            try client.waitForEnd()
            #expect(eventually { patient.count == 1 }, "no handler was notified")
            taken?.responder.respond(HTTPResponse(status: 200))
        }
        let held = PendingRequests()
        try withServer(held.handler) { server, port in
            // Closed by a reset at the same time: once that was noticed, both were looked at.
            let client = try HTTPClient(port: port)
            client.send(request)
            let taken = held.take()
            shutdown(client.socket, Int32(SHUT_WR))
            for _ in 0..<2 {
                var other: HTTPClient? = try HTTPClient(port: port)
                other?.send(Self.get)
                let others = held.take()
                other = nil
                #expect(eventually { server.openConnections == 1 }, "a hang-up was not noticed")
                others?.responder.respond(HTTPResponse(status: 200))
            }
            taken?.responder.respond(HTTPResponse(status: 200))
            #expect(try client.answer().status == 200)
        }
    }

    @Test func answeredRequest_isNotReported_whenItsClientLeavesThen() throws {
        let patient = Patient()
        try withServer(patient.handler) { server, port in
            do {
                let client = try HTTPClient(port: port)
                client.send(Self.get)
                patient.held.take()?.responder.respond(HTTPResponse(status: 200))
                #expect(try client.answer().status == 200)
            }
            #expect(eventually { server.openConnections == 0 }, "the connection is kept")
            #expect(patient.count == 0)
        }
    }

    @Test func abortedRequest_isReported_whenTheServerStops() throws {
        let kept = Mutex<Responder?>(nil)
        let handler = TestHandler { _, responder in
            kept.withLock { $0 = responder }
            responder.onHangUp { kept.withLock { $0 = nil } }
        }
        var client: HTTPClient?
        try withServer(handler, grace: .zero) { _, port in
            client = try HTTPClient(port: port)
            client?.send(Self.get)
            #expect(eventually { kept.withLock { $0 != nil } }, "no request came")
        }
        let isReleased = kept.withLock { $0 == nil }
        #expect(isReleased)
        #expect(client != nil)
    }
}
