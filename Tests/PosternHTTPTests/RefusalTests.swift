import PosternCore
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

    private static let long = String(repeating: "h", count: 17_000)

    /// Design, section 3: an id is echoed or made on every response, and logged.
    @Test(
        arguments: [
            ("PUT /a HTTP/1.1\r\nHost: t\r\nX-Request-Id: mine\r\nno colon\r\n\r\n", 400, "mine", "PUT"),
            ("PUT /a HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n", 400, "mine", "PUT"),
            ("GET /a HTTP/1.1\r\nX-Request-Id: mine\r\nX: \(long)\r\n", 431, "mine", "GET"),
            ("GET /a HTTP/1.1\r\nno colon\r\nX-Request-Id: late\r\n\r\n", 400, nil, "GET"),
            ("GET /a HTTP/1.1\r\nX-Request-Id: a b\r\n\r\n", 400, nil, "GET"),
            ("GET /a HTTP/2.0\r\nX-Request-Id: mine\r\n\r\n", 505, nil, nil),
            ("\u{16}\u{3}\u{1}", 400, nil, nil),
        ] as [(String, Int, String?, String?)])
    func requestWithoutHead_isReported_underTheIDThatArrived(
        text: String, status: Int, id: String?, method: String?
    ) throws {
        let refused = SharedValue<[UnreadRequest]>([])
        var handler = TestHandler()
        handler.onRefusal = { refused.set(refused.value + [$0]) }
        try withServer(handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send(text)
            let answer = try client.answer()
            let request = try #require(refused.value.first)
            #expect(refused.value.count == 1)
            #expect(answer.status == status && request.status == status)
            #expect(answer.header("X-Request-Id") == request.id)
            #expect(request.id == id || id == nil && request.id.count == 13)
            #expect(request.method == method)
            #expect(request.peer.description == "127.0.0.1")
            let slug: ProblemSlug = status == 431 ? .headerTooLarge : .badRequest
            #expect(request.slug == slug)
        }
    }

    /// The handler knows about a request whose head has arrived.
    @Test func requestWithHead_isNotReported() throws {
        let refused = SharedValue<[UnreadRequest]>([])
        var handler = TestHandler.limited
        handler.onRefusal = { refused.set(refused.value + [$0]) }
        try withServer(handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\n\r\n")
            #expect(try client.answer().status == 413)
            #expect(refused.value.isEmpty)
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
