import Foundation
import Glibc
import Logging
import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternTransport

/// The certificate that a transfer presents, to real servers.
@Suite(.timeLimit(.minutes(10))) struct ClientCertificateTests {
    private let folder = ScratchFolder()
    private let loop: CurlLoop
    init() throws { loop = try CurlLoop(.init(version: "1")) }

    /// Answers with what the client has proven.
    private struct Inspector: HTTPHandler {
        struct Answer: AdmittedRequest {
            let text: String
            func answer(_ body: [UInt8], _ responder: Responder) {
                responder.respond(HTTPResponse(status: 200, body: Array(text.utf8)))
            }
        }
        func admit(_ head: RequestHead) -> HeaderDecision {
            .accept(maxBodyBytes: 1000, Answer(text: "\(head.clientCertificate)"))
        }
    }

    private func server(_ own: TestCertificate, clients: TestAuthority) throws -> (HTTPServer, url: String) {
        let server = HTTPServer(
            HTTPServerSettings {
                ($0.port, $0.workerThreads) = (0, 1)
                ($0.tls.certificateFile, $0.tls.keyFile) = (own.certificate, own.key)
                $0.tls.clientCAFile = clients.certificate
            },
            handler: Inspector(), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        return (server, "https://127.0.0.1:\(try server.start())/")
    }

    private func send(
        to url: String, as client: TestCertificate?, trusting authority: TestAuthority,
        method: UpstreamRequest.Method = .post
    ) async -> TransferResult {
        // Every request has a connection of its own.
        let options = TransferOptions(
            trust: .authorities(file: authority.certificate),
            clientCertificate: client.map { .init(certificateFile: $0.certificate, keyFile: $0.key) },
            connectionMaxAge: .zero)
        return await loop.send(
            UpstreamRequest(method: method, url: url, body: method == .post ? [1] : []), options: options)
    }

    private func text(_ result: TransferResult) throws -> String {
        String(decoding: try result.get().body, as: UTF8.self)
    }

    @Test func certificate_isPresented_withItsKey() async throws {
        defer { loop.stop() }
        let (ours, others) = (try TestAuthority("ours", in: folder), try TestAuthority("others", in: folder))
        let (server, url) = try server(ours.issue("server"), clients: ours)
        defer { server.stopAndWait(grace: .zero) }
        let client = try ours.issue("client", commonName: "gateway")
        #expect(
            try await text(send(to: url, as: client, trusting: ours)) == #"verified(commonName: Optional("gateway"))"#)
        #expect(try await text(send(to: url, as: nil, trusting: ours)) == "missing")
        #expect(try await text(send(to: url, as: others.issue("other"), trusting: ours)) == "missing")
    }

    /// A resumed session would have the certificate with which it began.
    @Test func replacedFiles_countForTheNextConnection() async throws {
        defer { loop.stop() }
        let ours = try TestAuthority("ours", in: folder)
        let (server, url) = try server(ours.issue("server"), clients: ours)
        defer { server.stopAndWait(grace: .zero) }
        let current = TestCertificate(certificate: folder.file("current.crt"), key: folder.file("current.key"))
        for name in ["first", "second"] {
            let next = try ours.issue(name)
            for (from, to) in [(next.certificate, current.certificate), (next.key, current.key)] {
                try Data(contentsOf: URL(filePath: from)).write(to: URL(filePath: to), options: .atomic)
            }
            for _ in 0..<3 {
                let seen = try await text(send(to: url, as: current, trusting: ours))
                #expect(seen == #"verified(commonName: Optional("\#(name)"))"#)
            }
        }
    }

    /// It says whether a session is a new one. libmicrohttpd offers none to resume.
    private func openSSLServer(_ own: TestCertificate, _ arguments: [String]) async throws -> (
        ChildProcess, url: String
    ) {
        let unused = boundSocket()
        let port = port(of: unused)
        close(unused)
        let server = try ChildProcess(
            [
                "/usr/bin/openssl", "s_server", "-accept", "127.0.0.1:\(port)", "-cert", own.certificate, "-key",
                own.key,
                "-www",
            ] + arguments)
        _ = try await server.line { $0.hasPrefix("ACCEPT") }
        return (server, "https://127.0.0.1:\(port)/")
    }

    @Test(arguments: [false, true])
    func session_isResumed_onlyWithoutAClientCertificate(hasCertificate: Bool) async throws {
        defer { loop.stop() }
        let ours = try TestAuthority("ours", in: folder)
        let (server, url) = try await openSSLServer(
            ours.issue("server"), ["-tls1_2", "-CAfile", ours.certificate, "-verify", "2"])
        let client = hasCertificate ? try ours.issue("client") : nil
        var pages: [String] = []
        for _ in 0..<2 { pages.append(try await text(send(to: url, as: client, trusting: ours, method: .get))) }
        #expect(pages.map { $0.contains("\nNew, ") } == [true, hasCertificate], "\(pages)")
        server.signal(SIGKILL)
    }

    /// Nothing was processed, so nothing has to be counted as ambiguous.
    @Test(arguments: ["-tls1_2", "-tls1_3"], [true, false])
    func certificateThatTheServerRejects_isNamedAsTheCause(version: String, hasCertificate: Bool) async throws {
        defer { loop.stop() }
        let (ours, others) = (try TestAuthority("ours", in: folder), try TestAuthority("others", in: folder))
        let own = try ours.issue("server")
        let (server, url) = try await openSSLServer(
            own, [version, "-CAfile", ours.certificate, "-Verify", "2", "-verify_return_error"])
        let client = hasCertificate ? try others.issue("other") : nil
        let failure = await send(to: url, as: client, trusting: ours).failure
        #expect(failure?.reason == .unreachable && failure?.mayHaveArrived == false, "\(String(describing: failure))")
        // Without a certificate, TLS 1.2 knows no better word than a failed handshake.
        let start = version == "-tls1_3" || hasCertificate ? "The upstream rejected the client certificate: " : ""
        #expect(failure?.detail.hasPrefix(start) == true, "\(String(describing: failure))")
        server.signal(SIGKILL)
    }

    @Test func filesThatDoNotFit_sendNothing() async throws {
        defer { loop.stop() }
        let ours = try TestAuthority("ours", in: folder)
        let (server, url) = try server(ours.issue("server"), clients: ours)
        defer { server.stopAndWait(grace: .zero) }
        let (one, other) = (try ours.issue("one"), try ours.issue("other"))
        for client in [
            TestCertificate(certificate: one.certificate, key: other.key),
            TestCertificate(certificate: folder.file("none"), key: one.key),
        ] {
            let failure = await send(to: url, as: client, trusting: ours).failure
            #expect(failure?.reason == .unreachable && failure?.mayHaveArrived == false)
            #expect(failure?.detail.isEmpty == false)
        }
    }
}
