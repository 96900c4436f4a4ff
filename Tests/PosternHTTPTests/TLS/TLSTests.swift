import PosternTestKit
import Testing

@testable import PosternHTTP

@Suite struct TLSTests {
    private let folder = ScratchFolder()

    private func settings(_ certificate: String, _ key: String, clientCA: String = "") -> HTTPServerSettings {
        HTTPServerSettings {
            ($0.port, $0.workerThreads) = (0, 1)
            ($0.tls.certificateFile, $0.tls.keyFile, $0.tls.clientCAFile) = (certificate, key, clientCA)
        }
    }

    /// The client's security level is lowered, so that it is the server which decides.
    @Test(arguments: [("-tls1", false), ("-tls1_1", false), ("-tls1_2", true), ("-tls1_3", true)])
    func handshake_succeeds_fromTLS12On(version: String, succeeds: Bool) throws {
        let own = try TestCertificate("own", in: folder)
        try withServer(tls: settings(own.certificate, own.key).tls, grace: .zero) { _, port in
            let status = try openSSL([
                "s_client", "-connect", "127.0.0.1:\(port)", version, "-cipher", "DEFAULT@SECLEVEL=0",
            ])
            #expect((status == 0) == succeeds)
        }
    }

    @Test func keyOfAnotherCertificate_isFound_beforeTheServerStarts() throws {
        let (own, other) = (try TestCertificate("own", in: folder), try TestCertificate("other", in: folder))
        try HTTPServer.validate(settings(own.certificate, own.key))
        #expect {
            try HTTPServer.validate(settings(own.certificate, other.key))
        } throws: { error in
            "\(error)".contains("\(own.certificate) and \(other.key)")
                && (error as? HTTPServerError)?.errorClass == .badTLSFiles
        }
    }

    @Test func clientAuthorityWithoutCertificate_isFound_beforeTheServerStarts() throws {
        let own = try TestCertificate("own", in: folder)
        #expect { try HTTPServer.validate(settings(own.certificate, own.key, clientCA: own.key)) } throws: {
            ($0 as? HTTPServerError)?.errorClass == .badTLSFiles
        }
    }

    @Test func addressOfAnotherMachine_isFound_beforeTheServerStarts() {
        #expect { try HTTPServer.validate(HTTPServerSettings { ($0.host, $0.port) = ("192.0.2.1", 0) }) } throws: {
            ($0 as? HTTPServerError)?.errorClass == .badAddress
        }
    }

    /// `check` is run next to the gateway whose configuration it checks.
    @Test func portInUse_isNoProblemOfTheSettings() throws {
        try withServer { _, port in try HTTPServer.validate(HTTPServerSettings { $0.port = Int(port) }) }
    }
}
