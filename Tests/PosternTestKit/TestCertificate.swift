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

    /// One that signed itself, for 127.0.0.1 and localhost.
    public init(_ name: String, in folder: ScratchFolder) throws {
        self.init(files: name, in: folder)
        try makePEM(
            ["req", "-x509"] + newKey + [
                "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=\(loopbackNames)", "-keyout", key,
                "-out", certificate,
            ])
    }
}

/// A certificate authority, and what it issues.
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
public func openSSL(_ arguments: [String]) throws -> Int32 {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
    process.arguments = arguments
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = FileHandle.nullDevice
    process.standardError = FileHandle.nullDevice
    try process.run()
    process.waitUntilExit()
    return process.terminationStatus
}

/// What `openssl s_client` prints that is connected to this port of 127.0.0.1; `parts` are sent one after the other.
public func openSSLClient(_ port: UInt16, _ arguments: [String] = [], sending parts: [String] = []) throws -> String {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/openssl")
    process.arguments = ["s_client", "-connect", "127.0.0.1:\(port)"] + arguments
    let (input, output) = (Pipe(), Pipe())
    (process.standardInput, process.standardOutput, process.standardError) = (input, output, FileHandle.nullDevice)
    try process.run()
    if parts.isEmpty { try input.fileHandleForWriting.close() }
    // On a thread of its own: the server may answer before it has read everything.
    Thread { for part in parts { input.fileHandleForWriting.write(Data(part.utf8)) } }.start()
    let text = try output.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    return String(decoding: text, as: UTF8.self)
}
