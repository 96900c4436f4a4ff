import Glibc
import PosternCore
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternTransport

/// How long connections are used, and by which transfers.
@Suite(.timeLimit(.minutes(10))) struct ConnectionTests {
    private static let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    private static let silent = "/silent"

    /// A receiver that takes requests to `/silent` and goes mute, on that connection only. `ended` gets the numbers of
    /// connections that the client has closed.
    private static func receiver(ended: AsyncStream<Int>.Continuation? = nil) -> RawServer {
        RawServer { connection, number in
            while let request = connection.request() {
                if request.hasPrefix("POST \(silent)") { break }
                connection.send(ok)
            }
            try? connection.waitForEnd()
            ended?.yield(number)
        }
    }

    private static func send(
        _ path: String = "/", to server: RawServer, by loop: CurlLoop, _ options: TransferOptions = TransferOptions()
    ) async -> TransferResult {
        await loop.send(UpstreamRequest(url: server.url + path, body: [1]), options: options)
    }

    @Test func connection_isNotUsedAgain_onceItIsTooOld() async throws {
        let (server, loop) = (Self.receiver(), try CurlLoop(.init(version: "0")))
        defer { server.stop() }
        defer { loop.stop() }
        for number in 1...3 {
            _ = try await Self.send(to: server, by: loop, TransferOptions(connectionMaxAge: .zero)).get()
            #expect(server.connections == number)
        }
    }

    @Test func idleConnection_isClosed_onceItIsTooOld() async throws {
        let ended = AsyncStream<Int>.makeStream()
        let (server, loop) = (Self.receiver(ended: ended.continuation), try CurlLoop(.init(version: "0")))
        defer { server.stop() }
        defer { loop.stop() }
        _ = try await Self.send(to: server, by: loop, TransferOptions(connectionMaxAge: .milliseconds(20))).get()
        for await number in ended.stream {
            #expect(number == 1)
            break
        }
    }

    /// A receiver that was replaced by one at another address, or whose connections were forgotten on the way.
    @Test func renewedGroup_leavesItsConnections_andOthersKeepTheirs() async throws {
        let ended = AsyncStream<Int>.makeStream()
        let (server, loop) = (Self.receiver(ended: ended.continuation), try CurlLoop(.init(version: "0")))
        defer { server.stop() }
        defer { loop.stop() }
        var (ours, others) = (TransferOptions(), TransferOptions())
        (ours.connections, others.connections) = (
            TransferOptions.ConnectionGroup("ours"), TransferOptions.ConnectionGroup("others")
        )
        for _ in 1...2 {
            _ = try await Self.send(to: server, by: loop, ours).get()
            _ = try await Self.send(to: server, by: loop, others).get()
        }
        #expect(server.connections == 2)
        ours.connections.renewedAt = SystemTime().instant
        for _ in 1...2 {
            _ = try await Self.send(to: server, by: loop, ours).get()
            _ = try await Self.send(to: server, by: loop, others).get()
        }
        #expect(server.connections == 3)
        for await number in ended.stream {
            #expect(number == 1)
            break
        }
    }

    @Test func requestInFlight_finishesOnItsConnection_whichThenCloses() async throws {
        let (arrived, ended) = (AsyncStream<Void>.makeStream(), AsyncStream<Int>.makeStream())
        let isReplaced = Mutex(false)
        let server = RawServer { connection, number in
            while let request = connection.request() {
                if request.hasPrefix("POST /slow") {
                    arrived.continuation.yield()
                    #expect(eventually { isReplaced.withLock { $0 } })
                }
                connection.send(Self.ok)
            }
            ended.continuation.yield(number)
        }
        let loop = try CurlLoop(.init(version: "0"))
        defer { server.stop() }
        defer { loop.stop() }
        async let slow = Self.send("/slow", to: server, by: loop)
        for await _ in arrived.stream { break }
        var options = TransferOptions()
        options.connections.renewedAt = SystemTime().instant
        _ = try await Self.send(to: server, by: loop, options).get()
        isReplaced.withLock { $0 = true }
        #expect(try await slow.get().status == 200)
        for await number in ended.stream {
            #expect(number == 1)
            break
        }
        #expect(server.connections == 2)
    }

    /// The receiver goes mute on all connections that are open: the next request does not try another one of them.
    @Test func requestThatTimesOut_takesTheOtherConnectionsAlong() async throws {
        let bothArrived = Mutex(0)
        let ended = AsyncStream<Int>.makeStream()
        let server = RawServer { connection, number in
            while let request = connection.request(), !request.hasPrefix("POST \(Self.silent)") {
                if request.hasPrefix("POST /both") {
                    bothArrived.withLock { $0 += 1 }
                    #expect(eventually { bothArrived.withLock { $0 == 2 } })
                }
                connection.send(Self.ok)
            }
            try? connection.waitForEnd()
            ended.continuation.yield(number)
        }
        let loop = try CurlLoop(.init(version: "0"))
        defer { server.stop() }
        defer { loop.stop() }
        async let one = Self.send("/both", to: server, by: loop)
        async let other = Self.send("/both", to: server, by: loop)
        _ = try await (one.get(), other.get())
        #expect(server.connections == 2)
        let mute = await Self.send(
            Self.silent, to: server, by: loop, TransferOptions(requestTimeout: .milliseconds(100)))
        let failure = try #require(mute.failure)
        #expect(failure.reason == .timeout)
        #expect(try await Self.send(to: server, by: loop).get().status == 200)
        #expect(server.connections == 3)
        var numbers: Set<Int> = []
        for await number in ended.stream {
            numbers.insert(number)
            if numbers.count == 2 { break }
        }
        #expect(numbers == [1, 2])
    }

    /// RFC 9110, section 15.5.20: the same request may succeed on another connection.
    @Test func misdirectedRequest_isFollowedByANewConnection() async throws {
        let server = RawServer { connection, number in
            while connection.request() != nil {
                connection.send(number == 1 ? "HTTP/1.1 421 Wrong\r\nContent-Length: 0\r\n\r\n" : Self.ok)
            }
        }
        let loop = try CurlLoop(.init(version: "0"))
        defer { server.stop() }
        defer { loop.stop() }
        #expect(try await Self.send(to: server, by: loop).get().status == 421)
        #expect(try await Self.send(to: server, by: loop).get().status == 200)
        #expect(server.connections == 2)
    }

    /// HTTP/2 is not offered (docs/design.md, section 8): the extension ALPN of the ClientHello lists one protocol.
    @Test func handshake_offersHTTP1Only() async throws {
        let hello = Mutex<[UInt8]>([])
        let server = RawServer { connection, _ in
            guard let head = try? connection.read(5),
                let rest = try? connection.read(Int(head[3]) << 8 | Int(head[4]))
            else { return }
            hello.withLock { $0 = rest }
        }
        let loop = try CurlLoop(.init(version: "0"))
        defer { server.stop() }
        defer { loop.stop() }
        let request = UpstreamRequest(url: "https://127.0.0.1:\(server.port)/", body: [1])
        #expect(await loop.send(request, options: TransferOptions()).failure?.mayHaveArrived == false)
        let extensionText = [0, 16, 0, 11, 0, 9, 8] + Array("http/1.1".utf8)
        #expect(hello.withLock { $0 }.contains(extensionText))
    }
}
