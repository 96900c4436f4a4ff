import PosternCore
import PosternTestKit
import Synchronization
import Testing

@testable import PosternHTTP

/// The budget for bodies and large responses in flight.
@Suite(.serialized) struct MemoryTests {
    private func withBudget(
        _ bytes: Int, _ handler: TestHandler = TestHandler(), _ body: (UInt16, ByteBudget) throws -> Void
    ) throws {
        let budget = ByteBudget(bytes)
        try withServer(handler, memory: budget, grace: .zero) { _, port in try body(port, budget) }
        #expect(budget.bytesInUse == 0)
    }

    /// Probes are answered while what exists already exceeds the budget.
    @Test func nothing_fits_intoABudgetThatIsExceeded() {
        let budget = ByteBudget(1000)
        budget.takeAnyway(2000)
        #expect(budget.take(0) && !budget.take(1) && budget.bytesInUse == 2000)
    }

    @Test func bodyThatDoesNotFit_isRefused_andFitsLater() throws {
        try withBudget(100_000) { port, budget in
            let first = try HTTPClient(port: port)
            first.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 60000\r\n\r\nabc")
            #expect(eventually { budget.bytesInUse == 60_000 }, "nothing taken")
            let second = try HTTPClient(port: port)
            second.sendPost("/", String(repeating: "x", count: 60_000))
            let refusal = try second.answer()
            #expect(refusal.status == 503)
            #expect(refusal.header("Retry-After") == "1")
            #expect(refusal.text.contains("urn:postern:problem:overloaded"))
            try second.waitForEnd()
            first.send(String(repeating: "x", count: 59_997))
            #expect(try first.answer().status == 200)
            let third = try HTTPClient(port: port)
            third.sendPost("/", String(repeating: "x", count: 60_000))
            #expect(try third.answer().status == 200)
        }
    }

    @Test func chunkedBodyThatGrowsBeyondTheBudget_isRefused() throws {
        try withBudget(100_000) { port, budget in
            let holder = try HTTPClient(port: port)
            holder.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 60000\r\n\r\n")
            #expect(eventually { budget.bytesInUse == 60_000 }, "nothing taken")
            let client = try HTTPClient(port: port)
            let chunk = "4000\r\n" + String(repeating: "x", count: 0x4000) + "\r\n"
            client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + chunk + chunk)
            #expect(try client.answer().status == 503)
        }
    }

    @Test func bodyLargerThanTheBudget_isTakenAlone() throws {
        try withBudget(1000) { port, _ in
            let client = try HTTPClient(port: port)
            client.sendPost("/", String(repeating: "x", count: 5000))
            #expect(try client.answer().status == 200)
        }
    }

    @Test func largeResponse_counts_untilItIsSent() throws {
        let large = [UInt8](repeating: 0x61, count: 8 << 20)
        try withBudget(1 << 30, TestHandler { _, responder in responder.respond(.init(status: 200, body: large)) }) {
            port, budget in
            let client = try HTTPClient(port: port, receiveBuffer: 4096)
            client.sendPost("/", "")
            #expect(eventually { budget.bytesInUse == large.count }, "not counted")
            #expect(try client.answer().body.count == large.count)
            #expect(eventually { budget.bytesInUse == 0 }, "still counted")
        }
    }

    @Test func readerThatNeverReads_isCutOff() throws {
        let large = [UInt8](repeating: 0x61, count: 8 << 20)
        let answered = Atomic<Int>(0)
        let handler = TestHandler { _, responder in
            answered.add(1, ordering: .relaxed)
            responder.respond(.init(status: 200, body: large))
        }
        let budget = ByteBudget(1 << 30)
        try withServer(
            handler, headerTimeout: .milliseconds(400), responseRate: 64 << 20, memory: budget, grace: .zero
        ) { server, port in
            var clients: [HTTPClient] = []
            while answered.load(ordering: .relaxed) < 12 {
                let (count, client) = (
                    answered.load(ordering: .relaxed), try HTTPClient(port: port, receiveBuffer: 4096)
                )
                clients.append(client)
                client.sendPost("/", "")
                // On a busy machine it may be cut off before it has sent its request.
                try #require(eventually { answered.load(ordering: .relaxed) > count || client.isClosed() })
            }
            #expect(eventually { server.openConnections == 0 && budget.bytesInUse == 0 }, "still held")
            for client in clients { #expect(throws: (any Error).self) { try client.answer() } }
        }
    }
}
