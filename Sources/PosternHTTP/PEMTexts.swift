internal import CMicrohttpd
import Glibc

/// The TLS files, read and tried before libmicrohttpd gets them: it only says that it did not start.
struct PEMTexts {
    let certificate: String
    let key: String
    let clientCA: String?

    init(_ files: HTTPServerSettings.TLSFiles) throws(HTTPServerError) {
        certificate = try Self.read(files.certificate)
        key = try Self.read(files.key)
        clientCA = try files.clientCA.map { path throws(HTTPServerError) in try Self.read(path) }
        var credentials: gnutls_certificate_credentials_t?
        gnutls_certificate_allocate_credentials(&credentials)
        defer { gnutls_certificate_free_credentials(credentials) }
        let code = Self.withDatum(certificate) { certificate in
            Self.withDatum(key) { key in
                gnutls_certificate_set_x509_key_mem(credentials, certificate, key, GNUTLS_X509_FMT_PEM)
            }
        }
        guard code >= 0 else {
            throw Self.bad(
                "\(files.certificate) and \(files.key) are refused: \(String(cString: gnutls_strerror(code)))")
        }
        guard let clientCA, let path = files.clientCA else { return }
        let count = Self.withDatum(clientCA) {
            gnutls_certificate_set_x509_trust_mem(credentials, $0, GNUTLS_X509_FMT_PEM)
        }
        guard count > 0 else { throw Self.bad("\(path) holds no certificate") }
    }

    private static func read(_ path: String) throws(HTTPServerError) -> String {
        guard let file = fopen(path, "re") else {
            throw bad("cannot read \(path): \(String(cString: strerror(errno)))")
        }
        defer { fclose(file) }
        var text: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16 << 10)
        while case let count = fread(&buffer, 1, buffer.count, file), count > 0 { text += buffer[..<count] }
        guard !text.isEmpty else { throw bad("\(path) is empty") }
        return String(decoding: text, as: UTF8.self)
    }

    private static func withDatum<R>(_ text: String, _ body: (UnsafePointer<gnutls_datum_t>) -> R) -> R {
        var bytes = Array(text.utf8)
        return bytes.withUnsafeMutableBufferPointer {
            var datum = gnutls_datum_t(data: $0.baseAddress, size: UInt32($0.count))
            return body(&datum)
        }
    }

    private static func bad(_ detail: String) -> HTTPServerError { .init(errorClass: .badTLSFiles, detail: detail) }
}

/// `withCString` for a text that may be missing.
func withOptionalCString<R>(_ text: String?, _ body: (UnsafePointer<CChar>?) -> R) -> R {
    guard let text else { return body(nil) }
    return text.withCString { body($0) }
}
