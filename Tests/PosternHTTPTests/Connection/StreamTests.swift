import Glibc
import PosternCore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

@testable import PosternHTTP

/// Responses whose body is produced while it is sent.
@Suite(.timeLimit(.minutes(10))) struct StreamTests {
    /// A stream of the bytes that the test provides.
    private final class Source: ResponseStream {
        private struct State {
            var bytes: [UInt8] = []
            var hasEnd = false
            var beginnings = 0
            var reads = 0
            var ends = 0
            var responder: Responder?
            /// Whether the stream never ends.
            var isEndless = false
        }
        private let state = Mutex(State())
        private let status: Int

        init(status: Int = 200, isEndless: Bool = false) {
            self.status = status
            state.withLock { $0.isEndless = isEndless }
        }

        var handler: TestHandler {
            TestHandler { [self] request, responder in
                guard request.head.path == "/stream" else { return responder.respond(HTTPResponse(status: 204)) }
                state.withLock { $0.responder = responder }
                responder.stream(HTTPResponse(status: status, headers: [("Content-Type", "text/plain")]), self)
            }
        }

        func put(_ text: String, isLast: Bool = false) {
            let responder = state.withLock { state in
                state.bytes += Array(text.utf8)
                state.hasEnd = isLast
                return state.responder
            }
            responder?.wake()
        }

        func cut() { state.withLock { $0.responder }?.cut() }
        var reads: Int { state.withLock { $0.reads } }
        var ends: Int { state.withLock { $0.ends } }
        var beginnings: Int { state.withLock { $0.beginnings } }

        func began() { state.withLock { $0.beginnings += 1 } }

        func read(into buffer: UnsafeMutableRawBufferPointer) -> StreamPart {
            state.withLock { state in
                state.reads += 1
                if state.isEndless {
                    buffer.initializeMemory(as: UInt8.self, repeating: 0x61)
                    return .bytes(buffer.count)
                }
                guard !state.bytes.isEmpty else { return state.hasEnd ? .end : .nothing }
                let count = min(buffer.count, state.bytes.count)
                buffer.copyBytes(from: state.bytes[..<count])
                state.bytes.removeFirst(count)
                return .bytes(count)
            }
        }

        func ended() {
            state.withLock { state in
                state.ends += 1
                state.responder = nil
            }
        }
    }

    private static let request = "GET /stream HTTP/1.1\r\nHost: t\r\n\r\n"

    @Test func parts_areSentAsChunks_whenTheyAreThere() throws {
        let source = Source()
        try withServer(source.handler) { server, port in
            let client = try HTTPClient(port: port)
            client.send(Self.request)
            let head = try client.answer()
            #expect(head.status == 200 && head.header("Transfer-Encoding") == "chunked")
            #expect(head.header("Content-Type") == "text/plain" && head.header("X-Request-Id") != nil)
            #expect(eventually { server.suspendedConnections == 1 }, "the connection is not suspended")
            source.put("one")
            #expect(try client.read(8) == Array("3\r\none\r\n".utf8))
            #expect(eventually { server.suspendedConnections == 1 }, "the connection is not suspended")
            source.put("three", isLast: true)
            #expect(try client.read(15) == Array("5\r\nthree\r\n0\r\n\r\n".utf8))
            #expect(eventually { source.ends == 1 && server.runningRequests == 0 }, "the stream goes on")
            client.send("GET /other HTTP/1.1\r\nHost: t\r\n\r\n")
            #expect(try client.answer().status == 204, "the connection stays open")
        }
        #expect(source.ends == 1)
    }

    /// The client may have vanished without a reset.
    @Test func stream_endsWithItsConnection_whenNothingIsAcknowledged() throws {
        let source = Source()
        try withServer(source.handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send(Self.request)
            #expect(try client.answer().status == 200)
            // The server's end of the connection.
            let sockets = (Int32(3)..<4096).filter { descriptor in
                Self.port(of: descriptor, getsockname) == port && Self.port(of: descriptor, getpeername) != nil
            }
            let timeouts = sockets.map { descriptor in
                var (timeout, size): (Int32, socklen_t) = (0, 4)
                getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_USER_TIMEOUT, &timeout, &size)
                return timeout
            }
            #expect(timeouts == [Connection.streamPatience])
        }
    }

    private static func port(
        of descriptor: Int32,
        _ name: (Int32, UnsafeMutablePointer<sockaddr>?, UnsafeMutablePointer<socklen_t>?) -> Int32
    ) -> UInt16? {
        var address = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let code = withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { name(descriptor, $0, &size) }
        }
        return code == 0 && address.sin_family == AF_INET ? UInt16(bigEndian: address.sin_port) : nil
    }

    /// Larger than the buffers of the library and of the socket.
    @Test func longBody_arrivesWhole() throws {
        let source = Source()
        let text = (0..<200_000).map { "\($0)\n" }.joined()
        source.put(text, isLast: true)
        try withServer(source.handler) { _, port in
            let client = try HTTPClient(port: port)
            #expect(try client.get("/stream").status == 200)
            #expect(try client.readChunks() == text)
        }
    }

    @Test func clientOfHTTP10_getsTheBody_untilTheConnectionEnds() throws {
        let source = Source()
        source.put("all of it", isLast: true)
        try withServer(source.handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            let text = String(decoding: try client.readToEnd(), as: UTF8.self)
            #expect(text.hasPrefix("HTTP/1.1 200") || text.hasPrefix("HTTP/1.0 200"))
            #expect(text.hasSuffix("\r\n\r\nall of it"))
        }
    }

    @Test func head_getsTheHeaders_andNothingIsRead() throws {
        let source = Source(isEndless: true)
        try withServer(source.handler) { _, port in
            let client = try HTTPClient(port: port)
            client.send("HEAD /stream HTTP/1.1\r\nHost: t\r\n\r\n")
            let head = try client.answer(hasBody: false)
            #expect(head.header("Content-Type") == "text/plain" && head.header("Content-Length") == nil)
            #expect(try client.readToEnd().isEmpty)
        }
        #expect(source.beginnings == 0 && source.reads == 0 && source.ends == 1)
    }

    /// Else it may miss what happens once its client has the head, although that counts on hearing it.
    @Test func stream_begins_beforeTheHeadIsSent() throws {
        let source = Source()
        try withServer(source.handler) { _, port in
            for number in 1...100 {
                let client = try HTTPClient(port: port)
                client.send(Self.request)
                _ = try client.answer()
                #expect(source.beginnings == number)
            }
        }
    }

    /// By an end of the stream, or by a reset; while it waits for more.
    @Test(arguments: [false, true]) func hangUp_endsTheStream(isReset: Bool) throws {
        let source = Source()
        try withServer(source.handler) { server, port in
            // Older, and on both workers: what the library does for connections that are idle for long does not help.
            let others = try (0..<2).map { _ in try HTTPClient(port: port) }
            for other in others {
                other.send("GET /other HTTP/1.1\r\nHost: t\r\n\r\n")
                #expect(try other.answer().status == 204)
            }
            var client: HTTPClient? = try HTTPClient(port: port)
            client?.send(Self.request)
            _ = try client?.answer()
            #expect(eventually { server.suspendedConnections == 1 }, "the connection is not suspended")
            if isReset {
                var option = linger(l_onoff: 1, l_linger: 0)
                setsockopt(client?.socket ?? -1, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
            }
            client = nil
            withExtendedLifetime(others) {
                #expect(eventually { source.ends == 1 && server.openConnections == 2 }, "the stream goes on")
            }
            source.put("late")
        }
        #expect(source.ends == 1)
    }

    /// Its worker serves others meanwhile.
    @Test func clientThatDoesNotRead_holdsUpNothing_andCanBeCutOff() throws {
        let source = Source(isEndless: true)
        try withServer(source.handler) { server, port in
            let deaf = try HTTPClient(port: port, receiveBuffer: 4096)
            deaf.send(Self.request)
            // Until nothing more is read for it, although each worker takes turns.
            var reads = 0
            while reads == 0 || reads != source.reads {
                reads = source.reads
                for _ in 0..<4 {
                    let client = try HTTPClient(port: port)
                    client.send("GET /other HTTP/1.1\r\nHost: t\r\n\r\n")
                    #expect(try client.answer().status == 204)
                }
            }
            source.cut()
            #expect(eventually { source.ends == 1 && server.openConnections == 0 }, "the stream goes on")
            #expect(throws: (any Error).self) { while true { _ = try deaf.read(1 << 20) } }
        }
    }

    @Test func stop_cutsOffStreams_thatDoNotEnd() throws {
        let (quiet, loud) = (Source(), Source(isEndless: true))
        var clients: [HTTPClient] = []
        for source in [quiet, loud] {
            try withServer(source.handler, grace: .zero) { server, port in
                let client = try HTTPClient(port: port, receiveBuffer: 4096)
                client.send(Self.request)
                clients.append(client)
                #expect(eventually { source.reads > 0 }, "no request came")
            }
            #expect(source.ends == 1)
        }
    }

    @Test func wakesFromManyThreads_loseNothing() throws {
        let source = Source()
        try withServer(source.handler) { _, port in
            let client = try HTTPClient(port: port)
            #expect(try client.get("/stream").status == 200)
            let writers = try (0..<4).map { _ in
                try DedicatedThread(name: "writer") { for _ in 0..<500 { source.put("x") } }
            }
            writers.forEach { $0.join() }
            source.put("", isLast: true)
            #expect(try client.readChunks() == String(repeating: "x", count: 2000))
        }
    }
}

extension TestConnection {
    /// A body in chunks, until its end.
    fileprivate func readChunks() throws -> String {
        var body: [UInt8] = []
        while let chunk = try nextChunk() { body += chunk }
        return String(decoding: body, as: UTF8.self)
    }
}
