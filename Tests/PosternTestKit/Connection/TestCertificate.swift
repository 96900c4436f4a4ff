import Foundation

/// A key and a certificate, as PEM files made by `openssl`.
public struct TestCertificate: Sendable {
    public let certificate: String
    public let key: String

    public init(certificate: String, key: String) {
        self.certificate = certificate
        self.key = key
    }

    fileprivate init(files name: String, in folder: ScratchFolder) {
        certificate = folder.file("\(name).crt")
        key = folder.file("\(name).key")
    }

    /// A self-signed certificate for 127.0.0.1 and localhost.
    public init(_ name: String, in folder: ScratchFolder) throws {
        self.init(files: name, in: folder)
        try makePEM(
            ["req", "-x509"] + newKey + [
                "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=\(loopbackNames)", "-keyout", key,
                "-out", certificate,
            ])
    }
}

/// A certificate authority, which issues certificates.
public struct TestAuthority: Sendable {
    private let own: TestCertificate
    private let folder: ScratchFolder
    public var certificate: String { own.certificate }

    public init(_ name: String, in folder: ScratchFolder) throws {
        self.folder = folder
        own = TestCertificate(files: name, in: folder)
        try makePEM(
            ["req", "-x509"] + newKey + [
                "-days", "2", "-subj", "/CN=\(name)", "-addext", "keyUsage=critical,keyCertSign", "-keyout", own.key,
                "-out", own.certificate,
            ])
    }

    /// `names`: as in `subjectAltName`. `purpose`: as in `extendedKeyUsage`. `days` may be negative.
    public func issue(
        _ name: String, commonName: String? = nil, names: String = loopbackNames, purpose: String? = nil, days: Int = 2
    ) throws -> TestCertificate {
        let issued = TestCertificate(files: name, in: folder)
        let request = folder.file("\(name).csr")
        let extensions = folder.file("\(name).ext")
        try ("subjectAltName=\(names)\n" + (purpose.map { "extendedKeyUsage=\($0)\n" } ?? ""))
            .write(toFile: extensions, atomically: true, encoding: .utf8)
        try makePEM(
            ["req"] + newKey + ["-subj", "/CN=\(commonName ?? name)", "-keyout", issued.key, "-out", request])
        try makePEM([
            "x509", "-req", "-in", request, "-CA", own.certificate, "-CAkey", own.key, "-CAcreateserial", "-days",
            "\(days)", "-extfile", extensions, "-out", issued.certificate,
        ])
        return issued
    }
}

public let loopbackNames = "IP:127.0.0.1,DNS:localhost"

private let newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]

private func makePEM(_ arguments: [String]) throws {
    guard try openSSL(arguments) == 0 else { throw CocoaError(.fileWriteUnknown) }
}

/// Runs `openssl` without input and returns its exit status.
public func openSSL(_ arguments: [String]) throws -> Int32? {
    try ChildProcess.run(["/usr/bin/openssl"] + arguments).exitCode
}

/// What `openssl s_client` prints that sends `text` to this port of 127.0.0.1.
public func openSSLClient(_ port: UInt16, _ arguments: [String] = [], sending text: String = "") throws -> String {
    let command = ["/usr/bin/openssl", "s_client", "-connect", "127.0.0.1:\(port)"] + arguments
    return try ChildProcess.run(command, sending: text).output
}
