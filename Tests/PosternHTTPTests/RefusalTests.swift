import Testing

@testable import PosternHTTP

@Suite(.serialized) struct RefusalTests {
    static let badRequests: [(String, String)] = [
        ("no host", "GET / HTTP/1.1\r\n\r\n"),
        ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        (
            "both framings",
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        (
            "framings, other order",
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc"
        ),
        ("differing lengths", "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
        ("unknown coding", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip\r\n\r\nabc"),
        (
            "coding twice",
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
        ),
        ("coding list", "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
        ("chunked 1.0", "POST / HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("space in name", "GET / HTTP/1.1\r\nHost: t\r\nContent-Length : 3\r\n\r\nabc"),
        ("target", "GET /\u{7f} HTTP/1.1\r\nHost: t\r\n\r\n"),
    ]

    @Test(arguments: badRequests)
    func badFraming_isRefused_andTheConnectionClosed(name: String, request: String) throws {
        let handler = TestHandler { _, responder in
            Issue.record("the handler was asked")
            responder.respond(.init(status: 200))
        }
        try withServer(handler) { server, port in
            let client = try RawClient(port: port)
            client.send(request)
            let answer = try client.answer()
            #expect(answer.status == 400)
            #expect(answer.header("Content-Type") == "application/problem+json")
            #expect(answer.header("Connection") == "close")
            #expect(answer.body.hasPrefix("{\"type\":\"urn:postern:problem:bad-request\""))
            #expect(answer.body.contains("\"requestId\":\"\(answer.header("X-Request-Id") ?? "?")\""))
            try client.waitForEnd()
        }
    }

    @Test(arguments: ["abc", "-1", "5, 5", "99999999999999999999999"])
    func unreadableLength_isRefused(length: String) throws {
        try withServer { _, port in
            let client = try RawClient(port: port)
            client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: \(length)\r\n\r\nabc")
            #expect([400, 413].contains(try client.answer().status))
            try client.waitForEnd()
        }
    }

    @Test func sameLengthTwice_isTaken() throws {
        try withServer { _, port in
            let client = try RawClient(port: port)
            client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc")
            #expect(try client.answer().body == "abc")
        }
    }

    @Test(arguments: [(15_000, 200), (17_000, 431), (18_500, 431), (200_000, 431)])
    func header_isRefused_over16KiB(size: Int, status: Int) throws {
        try withServer { _, port in
            let client = try RawClient(port: port)
            let padding = String(repeating: "h", count: size - 60)
            client.send("GET / HTTP/1.1\r\nHost: t\r\nX-Long: \(padding)\r\n\r\n")
            let answer = try client.answer()
            #expect(answer.status == status)
            if size < 18_000, status == 431 {
                #expect(answer.body.contains("urn:postern:problem:header-too-large"))
            }
            if status == 431 { try client.waitForEnd() }
        }
    }

    @Test func body_isRefused_byItsAnnouncedLength() throws {
        try withServer(.limited) { _, port in
            let client = try RawClient(port: port)
            client.send("POST /big HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\n\r\n")
            let answer = try client.answer()
            #expect(answer.status == 413)
            #expect(answer.body.contains("urn:postern:problem:payload-too-large"))
            #expect(answer.body.contains("\"instance\":\"/big\""))
            try client.waitForEnd()
        }
    }

    @Test func body_isTaken_atExactlyTheLimit() throws {
        try withServer(.limited) { _, port in
            let client = try RawClient(port: port)
            client.post("/", "0123456789")
            #expect(try client.answer().body == "0123456789")
            client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n")
            #expect(try client.answer().body == "0123456789")
        }
    }

    @Test func chunkedBody_isRefused_asSoonAsItPassesTheLimit() throws {
        try withServer(.limited) { _, port in
            let client = try RawClient(port: port)
            client.send(
                "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nabcdef\r\n")
            let answer = try client.answer()
            #expect(answer.status == 413)
            #expect(answer.header("X-Request-Id")?.count == 13)
            #expect(answer.header("Connection") == "close")
            try client.waitForEnd()
        }
    }

    /// A client that sends all of its body before it reads must not lose the answer to a reset.
    @Test(arguments: [true, false])
    func refusal_reachesAClient_thatSendsOn(chunked: Bool) throws {
        try withServer(.limited) { _, port in
            let client = try RawClient(port: port)
            let framing = chunked ? "Transfer-Encoding: chunked" : "Content-Length: 4000000"
            client.send("POST / HTTP/1.1\r\nHost: t\r\n\(framing)\r\n\r\n")
            let size = chunked ? "3d0900\r\n" : ""
            #expect(client.send(size + String(repeating: "x", count: 4_000_000)))
            #expect(try client.answer().status == 413)
        }
    }

    @Test func malformedRequestLine_isRefused() throws {
        try withServer { server, port in
            let client = try RawClient(port: port)
            client.send("GARBAGE\r\n\r\n")
            try client.waitForEnd()
            eventually("the connection stayed") { server.openConnections == 0 }
        }
    }
}

extension TestHandler {
    /// Admits ten bytes.
    fileprivate static var limited: Self {
        var handler = TestHandler()
        handler.onAdmit = { _ in .accept(maxBodyBytes: 10) }
        return handler
    }
}
