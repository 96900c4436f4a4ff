import PosternTestKit
import PosternCore
import Testing

@testable import PosternHTTP

@Suite(.serialized) struct HTTPServerTests {
    @Test func request_isAnswered_withLengthDateAndRequestID() throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/a", "hello")
            let answer = try client.answer()
            #expect(answer.status == 200)
            #expect(answer.text == "hello")
            #expect(answer.header("Content-Length") == "5")
            #expect(answer.header("Date") != nil)
            #expect(answer.header("X-Request-Id")?.count == 13)
            #expect(answer.header("Connection") == nil)
        }
    }

    /// With what libmicrohttpd adds itself, whatever it was asked for.
    @Test(arguments: [
        "GET / HTTP/1.1\r\nHost: t\r\n", "HEAD / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n",
    ]) func headersAsLongAsPermitted_areSent(request: String) throws {
        let requestID = "X-Request-Id: 0123456789abc\r\n"
        let value = String(
            repeating: "x",
            count: HTTPServerSettings.maxResponseHeaderBytes - requestID.utf8.count - "X-Long: \r\n".utf8.count)
        let handler = TestHandler { _, responder in
            responder.respond(HTTPResponse(status: 431, headers: [("X-Long", value)], body: Array("hello".utf8)))
        }
        try withServer(handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send(request + requestID + "\r\n")
            let answer = try client.answer(hasBody: !request.hasPrefix("HEAD"))
            #expect(answer.status == 431 && answer.header("X-Long") == value && answer.header("Date") != nil)
            #expect(answer.header("Content-Length") == "5")
        }
    }

    @Test func requestID_isTheClients_whenValid() throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", "", headers: "X-Request-Id: abc/~!\r\n")
            #expect(try client.answer().header("X-Request-Id") == "abc/~!")
            client.sendPost("/", "", headers: "X-Request-Id: \(String(repeating: "x", count: 129))\r\n")
            #expect(try client.answer().header("X-Request-Id")?.count == 13)
            client.sendPost("/", "", headers: "X-Request-Id: a b\r\n")
            #expect(try client.answer().header("X-Request-Id")?.count == 13)
        }
    }

    @Test func connection_isKept_forTheNextRequest() throws {
        try withServer { server, port in
            let client = try HTTPClient(port: port)
            for number in 0..<50 {
                client.sendPost("/", "n\(number)")
                #expect(try client.answer().text == "n\(number)")
            }
            #expect(server.openConnections == 1)
        }
    }

    @Test func pipelinedRequests_areAnswered_inOrder() throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            let requests = (0..<20).map { "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n\($0 + 10)" }.joined()
            client.send(requests)
            for number in 0..<20 { #expect(try client.answer().text == "\(number + 10)") }
        }
    }

    @Test func chunkedBody_isJoined() throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            client.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            client.send("A;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n")
            #expect(try client.answer().text == "abc0123456789")
            client.sendPost("/", "next")
            #expect(try client.answer().text == "next")
        }
    }

    @Test func largeBody_arrivesWhole() throws {
        let text = String(repeating: "0123456789abcdef", count: 60_000)
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            client.sendPost("/", text)
            #expect(try client.answer().text == text)
        }
    }

    @Test func head_isAnswered_withoutBody() throws {
        try withServer(TestHandler { _, responder in responder.respond(HTTPResponse(status: 200, body: [1, 2, 3])) }) {
            _, port in
            let client = try HTTPClient(port: port)
            client.send("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n")
            let answer = try client.answer(hasBody: false)
            #expect(answer.header("Content-Length") == "3")
            client.send("GET / HTTP/1.1\r\nHost: t\r\n\r\n")
            #expect(try client.answer().text == "\u{1}\u{2}\u{3}")
        }
    }

    @Test func expectation_isMet_beforeTheBody() throws {
        try withServer { _, port in
            let client = try HTTPClient(port: port)
            client.send("POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            #expect(try client.answer().status == 100)
            client.send("ok")
            #expect(try client.answer().text == "ok")
        }
    }

    @Test func expectation_isRefused_withTheFinalStatus() throws {
        var handler = TestHandler()
        handler.refusal = { Problem(slug: .unauthorized, status: 401, detail: "No key.").response(to: $0) }
        try withServer(handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send("POST / HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            let answer = try client.answer()
            #expect(answer.status == 401)
            #expect(answer.header("Connection") == "close")
            try client.waitForEnd()
        }
    }

    @Test func refusal_keepsTheConnection_whenNoBodyFollows() throws {
        var handler = TestHandler()
        handler.refusal = { Problem(slug: .notFound, status: 404, detail: "Nothing.").response(to: $0) }
        try withServer(handler) { server, port in
            let client = try HTTPClient(port: port)
            for _ in 0..<3 {
                client.send("GET /x HTTP/1.1\r\nHost: t\r\n\r\n")
                let answer = try client.answer()
                #expect(answer.status == 404)
                #expect(answer.header("Connection") == nil)
            }
        }
    }

    @Test func http10_closes_unlessAskedToKeep() throws {
        try withServer { _, port in
            let kept = try HTTPClient(port: port)
            kept.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
            #expect(try kept.answer().header("Connection") == "Keep-Alive")
            let closed = try HTTPClient(port: port)
            closed.send("GET / HTTP/1.0\r\n\r\n")
            #expect(try String(decoding: closed.readToEnd(), as: UTF8.self).contains("Connection: close"))
        }
    }

    @Test func connectionLimit_refusesTheNextClient() throws {
        try withServer(maxConnections: 2) { server, port in
            let clients = try (0..<2).map { _ in try HTTPClient(port: port) }
            for client in clients { client.sendPost("/", "x") }
            // Each of the two workers takes one; which of them accepts is the kernel's choice, so one may wait.
            #expect(eventually { clients.contains { $0.hasMore } }, "the clients were not served")
            #expect(server.openConnections <= 2)
        }
    }

    @Test func start_names_thePortInUse() throws {
        try withServer { _, port in
            let second = HTTPServer(.init { $0.port = Int(port) }, handler: TestHandler(), logger: testLogger)
            let error = #expect(throws: HTTPServerError.self) { try second.start() }
            #expect(error?.errorClass == .portInUse)
            #expect(
                error?.description
                    == "cannot listen on 127.0.0.1:\(port): Address already in use. Stop the process that listens there, or choose another `server.port`."
            )
        }
    }

    @Test(arguments: ["192.0.2.1", "no such host"])
    func start_refuses_anAddressThatIsNotOurs(host: String) {
        let server = HTTPServer(.init { ($0.host, $0.port) = (host, 0) }, handler: TestHandler(), logger: testLogger)
        #expect(throws: HTTPServerError.self) { try server.start() }
    }

    @Test func start_names_badTLSFiles() {
        let missing = HTTPServer(
            .init {
                $0.port = 0
                ($0.tls.certificateFile, $0.tls.keyFile) = ("/nowhere/cert.pem", "/nowhere/key.pem")
            }, handler: TestHandler(), logger: testLogger)
        #expect {
            try missing.start()
        } throws: { error in
            "\(error)".hasPrefix("cannot read /nowhere/cert.pem: No such file or directory. Check the files under")
        }
        let garbage = HTTPServer(
            .init {
                $0.port = 0
                ($0.tls.certificateFile, $0.tls.keyFile) = ("/etc/hostname", "/etc/hostname")
            }, handler: TestHandler(), logger: testLogger)
        #expect {
            try garbage.start()
        } throws: { ($0 as? HTTPServerError)?.errorClass == .badTLSFiles }
    }
}
