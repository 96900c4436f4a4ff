import Glibc
import Logging
import PosternHTTP
import PosternTestKit
import Synchronization
import Testing

@testable import PosternFaultServer

private struct Handler: FaultHandler {
    let onAnswer: @Sendable (FaultResponder) -> Void
    func answer(_ request: IncomingRequest, _ responder: FaultResponder) { onAnswer(responder) }
}

/// Runs `body` with a client that has sent a request to a server that answers by `handler`.
private func withRequest(
    receiveBuffer: Int32? = nil, answeredBy handler: @escaping @Sendable (FaultResponder) -> Void,
    _ body: (HTTPClient, FaultServer) throws -> Void
) throws {
    let server = try FaultServer(
        HTTPServerSettings { ($0.port, $0.workerThreads) = (0, 1) }, handler: Handler(onAnswer: handler),
        logger: Logger(label: "t"))
    let port = try server.start()
    defer { server.stop() }
    let client = try HTTPClient(port: port, receiveBuffer: receiveBuffer)
    client.sendRequest("POST", "/", [0x78])
    try body(client, server)
}

/// Each fault is played at once on the worker thread, and from another thread once the request is suspended.
private func withFault(
    _ fault: @escaping @Sendable (FaultResponder) -> Void, _ check: (HTTPClient) throws -> Void
) throws {
    try withRequest(answeredBy: fault) { client, _ in try check(client) }
    let held = Mutex<FaultResponder?>(nil)
    try withRequest(answeredBy: { responder in held.withLock { $0 = responder } }) { client, server in
        expectSoon { server.suspendedConnections == 1 }
        if let responder = held.withLock({ $0.take() }) { fault(responder) }
        try check(client)
    }
}

private func expectSoon(_ condition: () -> Bool) {
    let holds = eventually(condition)
    #expect(holds)
}

@Suite(.serialized, .timeLimit(.minutes(10))) struct FaultServerTests {
    @Test func reset_isSeenAsReset() throws {
        try withFault({ $0.reset() }) { client in
            #expect {
                try client.readToEnd()
            } throws: { error in
                if case HTTPClient.Failure.reset = error { true } else { false }
            }
        }
    }

    @Test func hangUp_closesWithoutAResponse() throws {
        try withFault({ $0.hangUp() }) { client in
            let rest = try client.readToEnd()
            #expect(rest.isEmpty)
        }
    }

    @Test func hold_ends_whenTheClientCloses() throws {
        let server = try FaultServer(
            HTTPServerSettings { ($0.port, $0.workerThreads) = (0, 1) }, handler: Handler { $0.hold() },
            logger: Logger(label: "t"))
        let port = try server.start()
        defer { server.stop() }
        do {
            let client = try HTTPClient(port: port)
            client.sendRequest("POST", "/", [0x78])
            expectSoon { server.suspendedConnections == 1 }
        }
        expectSoon { server.openConnections == 0 }
    }

    @Test func hold_ends_whenTheServerStops() throws {
        try withRequest(answeredBy: { $0.hold() }) { client, server in
            expectSoon { server.suspendedConnections == 1 }
            server.stop()
            try client.waitForEnd()
        }
    }

    @Test func rawBytes_areWrittenAsTheyAre() throws {
        try withFault({ $0.respondRaw(Array("HTTP/9.9 banana\r\n".utf8)) }) { client in
            let bytes = try client.readToEnd()
            #expect(String(decoding: bytes, as: UTF8.self) == "HTTP/9.9 banana\r\n")
        }
    }

    @Test func rawBytes_areWrittenWhole_toASlowReader() throws {
        let bytes = [UInt8](repeating: 0x61, count: 3 << 20)
        try withRequest(receiveBuffer: 4096, answeredBy: { $0.respondRaw(bytes) }) { client, _ in
            let received = try client.readToEnd()
            #expect(received == bytes)
        }
    }

    @Test func drippedResponse_arrivesWhole() throws {
        try withFault({ $0.respond(.init(status: 200, body: [0x61, 0x62]), dripping: 7, every: .milliseconds(1)) }) {
            client in
            let answer = try client.answer()
            #expect(answer.status == 200)
            #expect(answer.text == "ab")
            #expect(answer.header("X-Request-Id")?.count == 13)
            let rest = try client.readToEnd()
            #expect(rest.isEmpty)
        }
    }

    @Test func delayedResponse_arrivesAfterTheDelay() throws {
        let start = ContinuousClock.now
        try withRequest(answeredBy: { $0.respond(.init(status: 200), after: .milliseconds(80)) }) { client, _ in
            let answer = try client.answer()
            #expect(answer.status == 200)
            #expect(ContinuousClock.now - start >= .milliseconds(80))
            #expect(try client.post("/", "x").status == 200)
        }
    }

    @Test func delayedResponse_isDropped_whenTheServerStops() throws {
        try withRequest(answeredBy: { $0.respond(.init(status: 200), after: .seconds(3600)) }) { client, server in
            expectSoon { server.suspendedConnections == 1 }
            server.stop()
            let rest = try client.readToEnd()
            #expect(rest.isEmpty)
            #expect(server.livingConnections == 0)
        }
    }
}
