import PosternTestKit
import Testing

@testable import PosternHTTP

@Suite(.serialized) struct RefusalTests {
    @Test(arguments: [(15_000, 200), (17_000, 431), (18_500, 431), (200_000, 431)])
    func header_isRefused_over16KiB(size: Int, status: Int) throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            let padding = String(repeating: "h", count: size - 60)
            client.send("GET / HTTP/1.1\r\nHost: t\r\nX-Long: \(padding)\r\n\r\n")
            let answer = try client.answer()
            #expect(answer.status == status)
            guard status == 431 else { return }
            #expect(answer.text.contains("urn:postern:problem:header-too-large"))
            try client.waitForEnd()
        }
    }

    @Test func body_isRefused_byItsAnnouncedLength() throws {
        try withServer(.limited) { _, port in
            let client = try HTTPClient(port: port)
            client.send("POST /big HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\n\r\n")
            let answer = try client.answer()
            #expect(answer.status == 413)
            #expect(answer.text.contains("urn:postern:problem:payload-too-large"))
            #expect(answer.text.contains("\"instance\":\"/big\""))
            try client.waitForEnd()
        }
    }

    @Test func body_isTaken_atExactlyTheLimit() throws {
        try withServer(.limited) { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "0123456789")
            #expect(try client.answer().text == "0123456789")
            client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n")
            #expect(try client.answer().text == "0123456789")
        }
    }

    @Test func chunkedBody_isRefused_asSoonAsItPassesTheLimit() throws {
        try withServer(.limited) { _, port in
            let client = try HTTPClient(port: port)
            client.send(
                "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n6\r\nabcdef\r\n")
            let answer = try client.answer()
            #expect(answer.status == 413)
            #expect(answer.header("X-Request-Id")?.count == 13)
            #expect(answer.header("X-Admitted") == "yes")
            #expect(answer.header("Connection") == "close")
            try client.waitForEnd()
        }
    }

    /// A client that sends all of its body before it reads must not lose the answer to a reset.
    @Test(arguments: [true, false])
    func refusal_reachesAClient_thatSendsOn(chunked: Bool) throws {
        try withServer(.limited) { _, port in
            let client = try HTTPClient(port: port)
            let framing = chunked ? "Transfer-Encoding: chunked" : "Content-Length: 4000000"
            client.send("POST / HTTP/1.1\r\nHost: t\r\n\(framing)\r\n\r\n")
            let size = chunked ? "3d0900\r\n" : ""
            #expect(client.send(size + String(repeating: "x", count: 4_000_000)))
            #expect(try client.answer().status == 413)
        }
    }
}

extension TestHandler {
    /// Admits ten bytes.
    fileprivate static var limited: Self {
        var handler = TestHandler()
        handler.maxBodyBytes = 10
        return handler
    }
}
