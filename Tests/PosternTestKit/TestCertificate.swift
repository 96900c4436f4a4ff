import Foundation

/// A key and a certificate that it signed itself, for 127.0.0.1 and localhost; PEM files made by `openssl`.
public struct TestCertificate {
    public let certificate: String
    public let key: String

    public init(_ name: String, in folder: ScratchFolder) throws {
        certificate = folder.file("\(name).crt")
        key = folder.file("\(name).key")
        let status = try openSSL([
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
            "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out",
            certificate,
        ])
        guard status == 0 else { throw CocoaError(.fileWriteUnknown) }
    }
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
