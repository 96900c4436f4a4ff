import PosternCore
import Testing

@testable import PosternHTTP

/// The budget for bodies and large responses in flight.
@Suite(.serialized) struct MemoryTests {
    private func withBudget(
        _ bytes: Int, _ handler: TestHandler = TestHandler(), headerTimeout: Duration = .seconds(10),
        responseRate: Int = 64 << 10, _ body: (UInt16, ByteBudget) throws -> Void
    ) throws {
        let budget = ByteBudget(bytes)
        let settings = HTTPServerSettings {
            ($0.port, $0.workerThreads) = (0, 2)
            ($0.headerTimeout, $0.responseRate) = (headerTimeout, responseRate)
        }
        let server = HTTPServer(settings, memory: budget, handler: handler, logger: testLogger)
        let port = try server.start()
        let result = Result { try body(port, budget) }
        server.stopAndWait(grace: .zero)
        #expect(budget.bytesInUse == 0)
        try result.get()
    }

    @Test func bodyThatDoesNotFit_isRefused_andFitsLater() throws {
        try withBudget(100_000) { port, budget in
            let first = try RawClient(port: port)
            first.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 60000\r\n\r\nabc")
            eventually("nothing taken") { budget.bytesInUse == 60_000 }
            let second = try RawClient(port: port)
            second.post("/", String(repeating: "x", count: 60_000))
            let refusal = try second.answer()
            #expect(refusal.status == 503)
            #expect(refusal.header("Retry-After") == "1")
            #expect(refusal.body.contains("urn:postern:problem:overloaded"))
            try second.waitForEnd()
            first.send(String(repeating: "x", count: 59_997))
            #expect(try first.answer().status == 200)
            let third = try RawClient(port: port)
            third.post("/", String(repeating: "x", count: 60_000))
            #expect(try third.answer().status == 200)
        }
    }

    @Test func chunkedBodyThatGrowsBeyondTheBudget_isRefused() throws {
        try withBudget(100_000) { port, budget in
            let holder = try RawClient(port: port)
            holder.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 60000\r\n\r\n")
            eventually("nothing taken") { budget.bytesInUse == 60_000 }
            let client = try RawClient(port: port)
            let chunk = "4000\r\n" + String(repeating: "x", count: 0x4000) + "\r\n"
            client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + chunk + chunk)
            #expect(try client.answer().status == 503)
        }
    }

    @Test func bodyLargerThanTheBudget_isTakenAlone() throws {
        try withBudget(1000) { port, _ in
            let client = try RawClient(port: port)
            client.post("/", String(repeating: "x", count: 5000))
            #expect(try client.answer().status == 200)
        }
    }

    @Test func largeResponse_counts_untilItIsSent() throws {
        let large = [UInt8](repeating: 0x61, count: 8 << 20)
        try withBudget(1 << 30, TestHandler { _, responder in responder.respond(.init(status: 200, body: large)) }) {
            port, budget in
            let client = try RawClient(port: port, receiveBuffer: 4096)
            client.post("/", "")
            eventually("not counted") { budget.bytesInUse == large.count }
            #expect(try client.answer().body.utf8.count == large.count)
            eventually("still counted") { budget.bytesInUse == 0 }
        }
    }

    @Test func readerThatNeverReads_isCutOff() throws {
        let large = [UInt8](repeating: 0x61, count: 8 << 20)
        let handler = TestHandler { _, responder in responder.respond(.init(status: 200, body: large)) }
        try withBudget(1 << 30, handler, headerTimeout: .milliseconds(400), responseRate: 64 << 20) { port, budget in
            let clients = try (0..<12).map { _ in try RawClient(port: port, receiveBuffer: 4096) }
            for client in clients { client.post("/", "") }
            eventually("not counted") { budget.bytesInUse > 0 }
            eventually("still held") { budget.bytesInUse == 0 }
        }
    }
}
