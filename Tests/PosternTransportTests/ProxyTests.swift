import Foundation
import Glibc
import Logging
import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Synchronization
import Testing

@testable import PosternTransport

/// Transfers through a proxy, and names whose addresses are given.
@Suite(.timeLimit(.minutes(10))) struct ProxyTests {
    private static let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    private let loop: CurlLoop
    init() throws { loop = try CurlLoop(.init(version: "1")) }

    /// Notes what it is asked, and answers with that status; 200 leads to the port of 127.0.0.1 that was asked for.
    private final class Proxy: Sendable {
        let server: RawServer
        private let heads: Heads
        var asked: [String] { heads.texts.withLock { $0 } }
        var options: TransferOptions { TransferOptions(proxy: .init(url: server.url)) }

        private final class Heads: Sendable {
            let texts = Mutex<[String]>([])
        }

        init(_ status: String = "200 Connection established") {
            let heads = Heads()
            self.heads = heads
            server = RawServer { connection, _ in
                guard let head = connection.request() else { return }
                heads.texts.withLock { $0.append(head) }
                connection.send("HTTP/1.1 \(status)\r\nX-From: proxy\r\n\r\n")
                let port = head.firstMatch(of: #/^CONNECT [^ ]*:([0-9]+) /#).flatMap { UInt16($0.1) }
                if status.hasPrefix("200"), let port, let other = try? connected(to: port) {
                    relay(connection.socket, other)
                    close(other)
                }
            }
        }
    }

    private func send(
        to url: String, _ options: TransferOptions, method: UpstreamRequest.Method = .post
    ) async -> TransferResult {
        let request = UpstreamRequest(
            method: method, url: url, headers: [("Authorization", "Bearer secret")], body: [1],
            statusDecides: { _ in true })
        return await loop.send(request, options: options)
    }

    @Test func request_goesThroughATunnel_thatIsKept() async throws {
        let (proxy, target) = (Proxy(), serving(Self.ok))
        defer { [proxy.server, target].forEach { $0.stop() } }
        defer { loop.stop() }
        for _ in 0..<2 {
            // The name is the proxy's to resolve, and the environment has no say.
            let url = "http://api.example:\(target.port)/"
            let response = try await send(to: url, proxy.options).get()
            #expect(response.status == 200 && response.header("X-From") == nil)
            #expect(response.headers.map(\.name) == ["Content-Length"], "those of the proxy are not the upstream's")
        }
        let asked = try #require(proxy.asked.first)
        #expect(proxy.asked.count == 1)
        #expect(asked.hasPrefix("CONNECT api.example:\(target.port) HTTP/1.1\r\nHost: api.example:\(target.port)\r\n"))
        #expect(!asked.contains("secret") && !asked.contains("Proxy-Authorization"), "\(asked)")
    }

    @Test func credentials_areForTheProxyAlone() async throws {
        let proxy = Proxy()
        let target = RawServer { connection, _ in
            while let request = connection.request() {
                let isClean = !request.contains("Proxy-") && request.contains("Authorization: Bearer secret")
                connection.send(isClean ? Self.ok : "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n")
            }
        }
        defer { [proxy.server, target].forEach { $0.stop() } }
        defer { loop.stop() }
        var options = proxy.options
        options.proxy = .init(url: proxy.server.url, username: "us@er", password: "p:a/ss%20")
        #expect(try await send(to: target.url, options).get().status == 200)
        let login = Data("us@er:p:a/ss%20".utf8).base64EncodedString()
        #expect(proxy.asked.first?.contains("\r\nProxy-Authorization: Basic \(login)\r\n") == true, "\(proxy.asked)")
    }

    /// The upstream has seen nothing, although bytes were sent to the proxy.
    @Test(arguments: ["407 Proxy Authentication Required", "502 Bad Gateway"])
    func proxyThatRefuses_isUnreachable_andNothingArrived(status: String) async throws {
        let (proxy, target) = (Proxy(status), serving(Self.ok))
        defer { [proxy.server, target].forEach { $0.stop() } }
        defer { loop.stop() }
        let failure = await send(to: target.url, proxy.options).failure
        #expect(failure?.reason == .unreachable && failure?.mayHaveArrived == false)
        #expect(failure?.detail.contains(status.prefix(3)) == true, "\(String(describing: failure))")
        #expect(target.connections == 0)
        var request = UpstreamRequest(url: target.url)
        request.onlyConnects = true
        let probe = await loop.send(request, options: proxy.options).failure
        #expect(probe?.detail.hasPrefix("proxy: ") == true, "\(String(describing: probe))")
    }

    @Test func proxyThatIsGone_isUnreachable_andIsNotPassedBy() async throws {
        let target = serving(Self.ok)
        defer { target.stop() }
        defer { loop.stop() }
        await withRefusingPort { port in
            let failure = await send(to: target.url, TransferOptions(proxy: .init(url: "http://127.0.0.1:\(port)")))
                .failure
            #expect(failure?.reason == .unreachable && failure?.mayHaveArrived == false)
        }
        #expect(target.connections == 0)
    }

    /// What the upstream has read may have been processed: it is the submitter who repeats it.
    @Test(arguments: [UpstreamRequest.Method.post, .put])
    func connectionThatEndsAfterTheRequest_mayHaveDelivered_throughATunnel(method: UpstreamRequest.Method) async throws
    {
        let proxy = Proxy()
        // The second request on a connection gets no response.
        let requests = Mutex(0)
        let target = RawServer { connection, _ in
            for isFirst in [true, false] where connection.request() != nil {
                requests.withLock { $0 += 1 }
                if isFirst { connection.send(Self.ok) }
            }
        }
        defer { [proxy.server, target].forEach { $0.stop() } }
        defer { loop.stop() }
        #expect(try await send(to: target.url, proxy.options).get().status == 200)
        let second = await send(to: target.url, proxy.options, method: method)
        if method == .post {
            #expect(second.failure?.mayHaveArrived == true && second.failure?.reason == .interrupted)
            #expect(requests.withLock { $0 } == 2)
        } else {
            #expect(try second.get().status == 200)
            #expect(requests.withLock { $0 } == 3)
        }
    }

    @Test func certificate_isThatOfTheUpstream_behindTheProxy() async throws {
        let folder = ScratchFolder()
        let ours = try TestAuthority("ours", in: folder)
        let own = try ours.issue("api", names: "DNS:api.example")
        struct Greeter: HTTPHandler, AdmittedRequest {
            func admit(_ head: RequestHead) -> HeaderDecision { .accept(maxBodyBytes: 1000, self) }
            func answer(_ body: [UInt8], _ responder: Responder) { responder.respond(HTTPResponse(status: 204)) }
        }
        let server = HTTPServer(
            HTTPServerSettings {
                ($0.port, $0.workerThreads) = (0, 1)
                ($0.tls.certificateFile, $0.tls.keyFile) = (own.certificate, own.key)
            },
            handler: Greeter(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let port = try server.start()
        let proxy = Proxy()
        defer { server.stopAndWait(grace: .zero) }
        defer { proxy.server.stop() }
        defer { loop.stop() }
        var options = proxy.options
        options.trust = .authorities(file: ours.certificate)
        #expect(try await send(to: "https://api.example:\(port)/", options).get().status == 204)
        let failure = await send(to: "https://other.example:\(port)/", options).failure
        #expect(failure?.reason == .unreachable && failure?.mayHaveArrived == false, "\(String(describing: failure))")
        #expect(proxy.asked.count == 2)
    }

    // MARK: Addresses

    @Test func name_hasTheAddressThatIsGiven() async throws {
        let target = serving(Self.ok)
        defer { target.stop() }
        defer { loop.stop() }
        var options = TransferOptions(connections: .init("resolved"))
        options.resolve = ["api.invalid:\(target.port):127.0.0.1"]
        #expect(try await send(to: "http://api.invalid:\(target.port)/", options).get().status == 200)
        // Another upstream does not know it.
        let other = await send(to: "http://api.invalid:\(target.port)/", TransferOptions()).failure
        #expect(other?.reason == .unreachable)
    }
}

/// Gives the same response to every request.
private func serving(_ answer: String) -> RawServer {
    RawServer { connection, _ in while connection.request() != nil, connection.send(answer) {} }
}

private struct Refused: Error {}

/// A socket that is connected to that port of 127.0.0.1.
private func connected(to port: UInt16) throws -> Int32 {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = INADDR_LOOPBACK.bigEndian
    let result = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
    }
    guard result == 0 else {
        close(descriptor)
        throw Refused()
    }
    return descriptor
}

/// Passes bytes on in both directions until one side ends.
private func relay(_ one: Int32, _ other: Int32) {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
        var ready = [one, other].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        guard poll(&ready, 2, 300_000) > 0 else { return }
        for (index, target) in [other, one].enumerated() where ready[index].revents != 0 {
            let count = recv(ready[index].fd, &buffer, buffer.count, 0)
            guard count > 0, send(target, buffer, count, Int32(MSG_NOSIGNAL)) == count else { return }
        }
    }
}
