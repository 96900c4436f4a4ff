import Foundation
import PosternTestKit
import Testing

@testable import PosternHTTP

/// The same reader behind TLS, where bytes come in records.
@Suite(.serialized) struct TLSRequestTests {
    @Test func requests_areReadThroughTLS_pipelinedAndLarge() throws {
        let large = String(repeating: "0123456789abcdef", count: 20_000)
        let answers = try exchange(
            "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nfirst"
                + "POST /b HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecond\r\n0\r\n\r\n"
                + "POST /c HTTP/1.1\r\nHost: t\r\nContent-Length: \(large.utf8.count)\r\n\r\n\(large)"
                + "GET /d HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
        )
        #expect(answers.components(separatedBy: "HTTP/1.1 200 OK\r\n").count == 5)
        #expect(answers.contains("\r\n\r\nfirst"))
        #expect(answers.contains("\r\n\r\nsecond"))
        #expect(answers.contains("\r\n\r\n\(large)"))
    }

    /// Each request in a record of its own, so that the socket holds the next one when the last one is complete.
    @Test func pipelinedRecords_areAllAnswered() throws {
        let head = "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: "
        let request = head + "462\r\n\r\n" + String(repeating: "x", count: 462)
        try #require(request.utf8.count == 512)
        let last = "GET /d HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
        let answers = try exchange(String(repeating: request, count: 50) + last, ["-max_send_frag", "512"])
        #expect(answers.components(separatedBy: "HTTP/1.1 200 OK\r\n").count == 52)
    }

    @Test func malformedRequest_isRefusedThroughTLS() throws {
        let answers = try exchange("POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n")
        #expect(answers.hasPrefix("HTTP/1.1 400 Bad Request\r\n"))
        #expect(answers.components(separatedBy: "HTTP/1.1").count == 2)
    }

    /// The responses of a server to `text`, until it closes the connection.
    private func exchange(_ text: String, _ arguments: [String] = []) throws -> String {
        let folder = ScratchFolder()
        defer { withExtendedLifetime(folder) {} }
        let own = try TestCertificate("own", in: folder)
        var answers = ""
        var files = TLSFiles()
        (files.certificateFile, files.keyFile) = (own.certificate, own.key)
        try withServer(tls: files) { _, port in
            answers = try openSSLClient(port, ["-quiet", "-ign_eof"] + arguments, sending: text)
        }
        return answers
    }
}
