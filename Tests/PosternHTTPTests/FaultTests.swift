import Testing

@testable import PosternHTTP

@Suite(.serialized) struct FaultTests {
    /// Each fault is played at once and from a put-aside connection.
    private func with(
        _ fault: @escaping @Sendable (Responder) -> Void, _ check: (HTTPServer, RawClient) throws -> Void
    ) throws {
        try withServer(TestHandler { _, responder in fault(responder) }) { server, port in
            let client = try RawClient(port: port)
            client.post("/", "x")
            try check(server, client)
        }
        let held = Held()
        try withServer(held.handler) { server, port in
            let client = try RawClient(port: port)
            client.post("/", "x")
            eventually("not put aside") { server.suspendedConnections == 1 }
            if let responder = held.take()?.responder { fault(responder) }
            try check(server, client)
        }
    }

    @Test func reset_isSeenAsReset() throws {
        try with({ $0.reset() }) { _, client in
            do {
                let text = try client.readToEnd()
                Issue.record("ended in good order: \(text)")
            } catch RawClient.Failure.reset {}
        }
    }

    @Test func hangUp_closesWithoutAnAnswer() throws {
        try with({ $0.hangUp() }) { _, client in
            let text = try client.readToEnd()
            #expect(text == "")
        }
    }

    @Test func hold_endsWhenThePeerLeaves() throws {
        try withServer(TestHandler { _, responder in responder.hold() }) { server, port in
            do {
                let client = try RawClient(port: port)
                client.post("/", "x")
                eventually("not held") { server.suspendedConnections == 1 }
            }
            eventually("still held") { server.openConnections == 0 }
        }
    }

    @Test func hold_endsWhenTheServerStops() throws {
        try withServer(TestHandler { _, responder in responder.hold() }, grace: .zero) { server, port in
            let client = try RawClient(port: port)
            client.post("/", "x")
            eventually("not held") { server.suspendedConnections == 1 }
        }
    }

    @Test func rawBytes_areWrittenAsTheyAre() throws {
        try with({ $0.respondRaw(Array("HTTP/9.9 banana\r\n".utf8)) }) { _, client in
            let text = try client.readToEnd()
            #expect(text == "HTTP/9.9 banana\r\n")
        }
    }

    @Test func rawBytes_areWrittenWhole_toASlowReader() throws {
        let bytes = [UInt8](repeating: 0x61, count: 3 << 20)
        try withServer(TestHandler { _, responder in responder.respondRaw(bytes) }) { _, port in
            let client = try RawClient(port: port, receiveBuffer: 4096)
            client.post("/", "x")
            #expect(try client.readToEnd().utf8.count == bytes.count)
        }
    }

    @Test func drippedAnswer_arrivesWhole() throws {
        try with({ $0.respond(.init(status: 200, body: [0x61, 0x62, 0x63]), dripping: 7, every: .milliseconds(1)) }) {
            _, client in
            let answer = try client.answer()
            #expect(answer.status == 200)
            #expect(answer.body == "abc")
            #expect(answer.header("X-Request-Id")?.count == 13)
            #expect(try client.readToEnd() == "")
        }
    }

    @Test func delayedAnswer_comesAfterTheDelay() throws {
        let clock = ContinuousClock()
        let start = clock.now
        try withServer(TestHandler { _, responder in responder.respond(.init(status: 200), after: .milliseconds(80)) })
        {
            _, port in
            let client = try RawClient(port: port)
            client.post("/", "x")
            #expect(try client.answer().status == 200)
            #expect(clock.now - start >= .milliseconds(80))
            client.post("/", "x")
            #expect(try client.answer().status == 200)
        }
    }
}
