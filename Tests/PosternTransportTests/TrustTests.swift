import Foundation
import Logging
import PosternCore
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternTransport

/// Which servers a transfer accepts, with real certificates.
@Suite(.timeLimit(.minutes(10))) struct TrustTests {
    private let folder = ScratchFolder()
    private let loop: CurlLoop
    init() throws { loop = try CurlLoop(.init(version: "1")) }

    private struct Greeter: HTTPHandler, AdmittedRequest {
        func admit(_ head: RequestHead) -> HeaderDecision { .accept(maxBodyBytes: 1000, self) }
        func answer(_ body: [UInt8], _ responder: Responder) {
            responder.respond(HTTPResponse(status: 200, body: body))
        }
    }

    /// What a request to a server with this certificate gives: nil for an answer, else why there is none.
    private func refusal(
        of own: TestCertificate, _ trust: TransferOptions.Trust, onlyConnects: Bool = false
    ) async throws -> TransferFailure? {
        let server = HTTPServer(
            HTTPServerSettings {
                ($0.port, $0.workerThreads) = (0, 1)
                ($0.tls.certificateFile, $0.tls.keyFile) = (own.certificate, own.key)
            },
            handler: Greeter(), logger: Logger(label: "test"))
        let port = try server.start()
        var request = UpstreamRequest(url: "https://127.0.0.1:\(port)/", body: [1])
        request.onlyConnects = onlyConnects
        let result = await loop.send(request, options: TransferOptions(trust: trust))
        server.stopAndWait(grace: .zero)
        switch result {
        case .success(let response):
            #expect(response.status == (onlyConnects ? 0 : 200))
            return nil
        case .failure(let failure): return failure
        }
    }

    private func pin(_ own: TestCertificate) throws -> TransferOptions.Trust {
        .publicKey(sha256: Data(try CertificateFile(own.certificate).publicKeyDigest).base64EncodedString())
    }

    // MARK: Authorities

    @Test func authorityOfTheFile_isTrusted_andNoOther() async throws {
        defer { loop.stop() }
        let (ours, others) = (try TestAuthority("ours", in: folder), try TestAuthority("others", in: folder))
        let own = try ours.issue("own")
        #expect(try await refusal(of: own, .authorities(file: ours.certificate)) == nil)
        for trust in [.system, .authorities(file: others.certificate)] as [TransferOptions.Trust] {
            let failure = try await refusal(of: own, trust)
            #expect(failure?.reason == .unreachable && failure?.mayHaveArrived == false)
            #expect(failure?.detail.contains("certificate") == true, "\(failure?.detail ?? "")")
        }
    }

    @Test func certificateOfAnotherName_isRefused() async throws {
        defer { loop.stop() }
        let ours = try TestAuthority("ours", in: folder)
        let elsewhere = try ours.issue("elsewhere", names: "DNS:elsewhere.example")
        let failure = try await refusal(of: elsewhere, .authorities(file: ours.certificate))
        #expect(failure?.reason == .unreachable)
    }

    @Test func expiredCertificate_isRefused() async throws {
        defer { loop.stop() }
        let ours = try TestAuthority("ours", in: folder)
        let failure = try await refusal(of: ours.issue("old", days: -1), .authorities(file: ours.certificate))
        #expect(failure?.detail.contains("expired") == true, "\(failure?.detail ?? "")")
    }

    /// libcurl keeps authorities for a day unless it is told otherwise.
    @Test func replacedFile_countsForTheNextConnection() async throws {
        defer { loop.stop() }
        let (first, second) = (try TestAuthority("first", in: folder), try TestAuthority("second", in: folder))
        let (before, after) = (try first.issue("before"), try second.issue("after"))
        let file = folder.file("current.pem")
        func install(_ authority: TestAuthority) throws {
            try Data(contentsOf: URL(filePath: authority.certificate)).write(to: URL(filePath: file))
        }
        try install(first)
        #expect(try await refusal(of: before, .authorities(file: file)) == nil)
        try install(second)
        #expect(try await refusal(of: after, .authorities(file: file)) == nil)
        #expect(try await refusal(of: before, .authorities(file: file)) != nil)
    }

    /// As a probe does: it verifies what a request verifies.
    @Test func requestThatOnlyConnects_verifiesTheServer() async throws {
        defer { loop.stop() }
        let (ours, others) = (try TestAuthority("ours", in: folder), try TestAuthority("others", in: folder))
        let (own, elsewhere) = (try ours.issue("own"), try ours.issue("elsewhere", names: "DNS:elsewhere.example"))
        let trust = TransferOptions.Trust.authorities(file: ours.certificate)
        #expect(try await refusal(of: own, trust, onlyConnects: true) == nil)
        for (own, trust) in [
            (own, .authorities(file: others.certificate)), (elsewhere, trust), (try ours.issue("old", days: -1), trust),
        ] as [(TestCertificate, TransferOptions.Trust)] {
            let failure = try await refusal(of: own, trust, onlyConnects: true)
            #expect(failure?.reason == .unreachable && failure?.mayHaveArrived == false)
            #expect(failure?.detail.hasPrefix("TLS: ") == true, "\(failure?.detail ?? "")")
            #expect(failure?.detail.contains("certificate") == true, "\(failure?.detail ?? "")")
        }
    }

    // MARK: One key, and any

    @Test func pinnedKey_isTrusted_whateverNameAndTermItsCertificateHas() async throws {
        defer { loop.stop() }
        let ours = try TestAuthority("ours", in: folder)
        let odd = try ours.issue("odd", names: "DNS:elsewhere.example", days: -1)
        #expect(try await refusal(of: odd, pin(odd)) == nil)
        // The same authority, name and term, but another key.
        let twin = try ours.issue("twin", commonName: "odd", names: "DNS:elsewhere.example", days: -1)
        let failure = try await refusal(of: twin, pin(odd))
        #expect(failure?.reason == .unreachable && failure?.mayHaveArrived == false)
    }

    @Test func anyServer_isTrusted_onlyOnRequest() async throws {
        defer { loop.stop() }
        let own = try TestCertificate("own", in: folder)
        #expect(try await refusal(of: own, .any) == nil)
        #expect(try await refusal(of: own, .system) != nil)
    }
}
