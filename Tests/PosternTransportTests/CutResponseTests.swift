import Glibc
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternTransport

/// A receiver that cuts its responses: the status and the header arrive, and the body does not, or not all of it.
@Suite(.timeLimit(.minutes(10))) struct CutResponseTests {
    private static func request(
        to server: RawServer, _ statusDecides: @escaping @Sendable (Int) -> Bool = { _ in true }
    ) -> UpstreamRequest {
        UpstreamRequest(url: server.url, body: [1], statusDecides: statusDecides)
    }

    /// Sends `answer` to each request, and ends the connection.
    private static func cutting(_ answer: String) -> RawServer {
        RawServer { connection, _ in
            guard connection.request() != nil else { return }
            connection.send(answer)
        }
    }

    private static let gzipMember = "\u{1f}" + "cut"
    private static let answers: [(status: Int, text: String, body: String)] = [
        (200, "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"ok\":true}", "{\"ok\":true}"),
        (200, "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n", ""),
        (202, "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "ok"),
        (200, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "ab"),
        (
            200, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 90\r\n\r\n" + gzipMember, gzipMember
        ),
        (400, "HTTP/1.1 400 No\r\nContent-Length: 40\r\n\r\nbad nu", "bad nu"),
        (429, "HTTP/1.1 429 Slow\r\nRetry-After: 60\r\nContent-Length: 40\r\n\r\nslow", "slow"),
    ]

    @Test(arguments: answers) func cutResponse_counts_ifItsStatusDecides(status: Int, text: String, body: String)
        async throws
    {
        let (server, loop) = (Self.cutting(text), try CurlLoop(.init(version: "0")))
        defer { server.stop() }
        defer { loop.stop() }
        let answer = try await loop.send(Self.request(to: server), options: TransferOptions()).get()
        #expect(answer.status == status)
        #expect(answer.body == Array(body.utf8))
        #expect(answer.retryAfter(now: Timestamp(milliseconds: 0)) == (status == 429 ? .seconds(60) : nil))
    }

    /// Sends whose outcome is not known are counted by it.
    @Test(arguments: answers) func cutResponse_mayHaveArrived_ifItsBodyMatters(status: Int, text: String, body: String)
        async throws
    {
        let (server, loop) = (Self.cutting(text), try CurlLoop(.init(version: "0")))
        defer { server.stop() }
        defer { loop.stop() }
        let result = await loop.send(Self.request(to: server) { $0 != status }, options: TransferOptions())
        let failure = try #require(result.failure)
        #expect(failure.reason == .interrupted)
        #expect(failure.mayHaveArrived)
    }

    /// None of these has a status that could decide.
    @Test(arguments: [
        "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
    ])
    func cutHeader_isAFailure(text: String) async throws {
        let (server, loop) = (Self.cutting(text), try CurlLoop(.init(version: "0")))
        defer { server.stop() }
        defer { loop.stop() }
        let result = await loop.send(Self.request(to: server), options: TransferOptions())
        let failure = try #require(result.failure)
        #expect(failure.reason == .interrupted)
        #expect(failure.mayHaveArrived)
    }

    @Test(arguments: [true, false]) func bodyThatNeverComes_leavesTheStatus_ifThatDecides(decides: Bool) async throws {
        let server = RawServer { connection, _ in
            guard connection.request() != nil else { return }
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{")
            try? connection.waitForEnd()
        }
        let loop = try CurlLoop(.init(version: "0"))
        defer { server.stop() }
        defer { loop.stop() }
        let result = await loop.send(
            Self.request(to: server) { _ in decides }, options: TransferOptions(requestTimeout: .milliseconds(200)))
        switch result {
        case .success(let answer): #expect(decides && answer.status == 200)
        case .failure(let failure): #expect(!decides && failure.reason == .timeout && failure.mayHaveArrived)
        }
    }

    /// At a stop, what is known to have been taken is not left to be sent again.
    @Test func statusThatHasArrived_counts_whenTheTransferIsCancelled() async throws {
        let isAnswered = AsyncStream<Void>.makeStream()
        let server = RawServer { connection, number in
            guard connection.request() != nil else { return }
            if number == 1 {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{")
                isAnswered.continuation.yield()
                try? connection.waitForEnd()
            } else {
                connection.send("HTTP/1.1 204 None\r\n\r\n")
            }
        }
        let loop = try CurlLoop(.init(version: "0"))
        defer { server.stop() }
        let request = Self.request(to: server)
        async let first = loop.send(request, options: TransferOptions())
        for await _ in isAnswered.stream { break }
        // The loop reads what has arrived for the first request before it ends the second.
        #expect(try await loop.send(request, options: TransferOptions()).get().status == 204)
        loop.stop()
        #expect(try await first.get().status == 200)
    }

    /// The receiver answers before it has read the body. If it closed at once, its reset could overtake the response
    /// (RFC 9112, section 9.6).
    @Test func earlyRefusal_isTaken_howeverLargeTheBody() async throws {
        let server = RawServer { connection, _ in
            try? connection.receiveMore()
            connection.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\nlarge")
            try? connection.waitForEnd()
        }
        let loop = try CurlLoop(.init(version: "0"))
        defer { server.stop() }
        defer { loop.stop() }
        let body = [UInt8](repeating: 0x78, count: 8_000_000)
        let request = UpstreamRequest(url: server.url, body: body, statusDecides: { _ in true })
        #expect(try await loop.send(request, options: TransferOptions()).get().status == 413)
    }

    // MARK: Header lines

    @Test(arguments: [70_000, 200_000]) func overlongHeaderLine_isGarbled_andNamed(count: Int) async throws {
        let (server, loop) = (
            Self.cutting("HTTP/1.1 200 OK\r\nX-Long: \(String(repeating: "x", count: count))\r\n\r\n"),
            try CurlLoop(.init(version: "0"))
        )
        defer { server.stop() }
        defer { loop.stop() }
        let result = await loop.send(Self.request(to: server), options: TransferOptions())
        let failure = try #require(result.failure)
        #expect(failure.reason == .garbled)
        #expect(failure.detail == "The response's header lines are too long")
    }

    /// The body has arrived as a whole.
    @Test func overlongTrailer_changesNothing() async throws {
        let trailer = "X-Long: \(String(repeating: "x", count: 20_000))\r\n\r\n"
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n" + trailer
        let (server, loop) = (Self.cutting(text), try CurlLoop(.init(version: "0")))
        defer { server.stop() }
        defer { loop.stop() }
        let answer = try await loop.send(Self.request(to: server), options: TransferOptions()).get()
        #expect(answer.body == Array("ok".utf8))
    }
}
