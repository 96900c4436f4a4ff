import Foundation
import PosternTestKit
import Synchronization
import Testing

@testable import PosternHTTP

/// Certificates that are replaced while the server runs.
@Suite(.serialized, .timeLimit(.minutes(10))) struct CertificateRenewalTests {
    private let folder = ScratchFolder()

    /// A server on copies of `first`.
    private func withServer(
        _ first: TestCertificate, _ body: (HTTPServer, UInt16, TLSFiles) throws -> Void
    ) throws {
        var files = TLSFiles()
        (files.certificateFile, files.keyFile) = (folder.file("current.crt"), folder.file("current.key"))
        try install(first.certificate, first.key, as: files)
        try PosternHTTPTests.withServer(tls: files) { server, port in try body(server, port, files) }
    }

    private func install(_ certificate: String, _ key: String, as files: TLSFiles) throws {
        for (from, to) in [(certificate, files.certificateFile), (key, files.keyFile)] {
            try Data(contentsOf: URL(filePath: from)).write(to: URL(filePath: to), options: .atomic)
        }
    }

    private func pem(_ certificate: TestCertificate) throws -> String {
        try String(contentsOfFile: certificate.certificate, encoding: .utf8)
            .trimmingCharacters(in: .whitespacesAndNewlines)
    }

    @Test func renewedCertificate_isShownToNewConnections() throws {
        let (first, second) = (try TestCertificate("first", in: folder), try TestCertificate("second", in: folder))
        try withServer(first) { server, port, files in
            let before = try openSSLClient(port)
            #expect(before.contains(try pem(first)))
            #expect(try server.renewCertificate() == false, "nothing has changed")
            try install(second.certificate, second.key, as: files)
            #expect(try server.renewCertificate())
            let after = try openSSLClient(port)
            #expect(after.contains(try pem(second)))
            #expect(server.certificateExpiry != nil)
        }
    }

    @Test func filesThatDoNotFit_leaveTheFormerCertificate_andAreReportedOnce() throws {
        let (first, second) = (try TestCertificate("first", in: folder), try TestCertificate("second", in: folder))
        try withServer(first) { server, port, files in
            try install(second.certificate, first.key, as: files)
            #expect(throws: HTTPServerError.self) { try server.renewCertificate() }
            #expect(try server.renewCertificate() == false, "it was told once")
            let shown = try openSSLClient(port)
            #expect(shown.contains(try pem(first)))
            try install(second.certificate, second.key, as: files)
            #expect(try server.renewCertificate())
            let after = try openSSLClient(port)
            #expect(after.contains(try pem(second)))
        }
    }

    private final class Counts: Sendable {
        /// Clients that have not finished.
        let left = Atomic<Int>(16)
        let good = Atomic<Int>(0)
    }

    /// 16 clients whose connections begin before, during and after renewals.
    @Test func renewalUnderLoad_failsNoRequest() throws {
        let certificates = try (0..<2).map { try TestCertificate("number-\($0)", in: folder) }
        try withServer(certificates[0]) { server, port, files in
            let request = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello"
            let last = "GET /d HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
            let counts = Counts()
            for _ in 0..<16 {
                Thread {
                    for _ in 0..<4 {
                        let text = try? openSSLClient(
                            port, ["-quiet", "-ign_eof"], sending: String(repeating: request, count: 20) + last)
                        let answers = text?.components(separatedBy: "HTTP/1.1 200 OK\r\n").count ?? 0
                        if answers == 22 { counts.good.wrappingAdd(1, ordering: .relaxed) }
                    }
                    counts.left.wrappingSubtract(1, ordering: .releasing)
                }.start()
            }
            var renewals = 0
            while counts.left.load(ordering: .acquiring) > 0 {
                renewals += 1
                let next = certificates[renewals % 2]
                try install(next.certificate, next.key, as: files)
                #expect(try server.renewCertificate())
            }
            #expect(counts.good.load(ordering: .relaxed) == 64)
            #expect(renewals > 3)
        }
    }
}
