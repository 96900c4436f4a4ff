internal import CMicrohttpd
import Glibc
import PosternCore

/// The server's certificate and key, and the authority of its clients' certificates.
///
/// Read and tried before it is used, because libmicrohttpd would only report that it did not start. A connection keeps
/// the identity that it began with, so the identity can be replaced while handshakes are in progress.
final class TLSIdentity: Sendable {
    let certificate: String
    let key: String
    let clientCA: String?
    /// When the server's own certificate expires.
    let expiresAt: Timestamp
    let stamp: FileStamps
    // Not changed once it is complete, so that the sessions of all threads can share it.
    private nonisolated(unsafe) let credentials: gnutls_certificate_credentials_t

    init(_ files: TLSFiles) throws(HTTPServerError) {
        stamp = FileStamps(files)
        certificate = try Self.read(files.certificateFile)
        key = try Self.read(files.keyFile)
        clientCA = try files.clientCAFile.isEmpty ? nil : Self.read(files.clientCAFile)
        var allocated: gnutls_certificate_credentials_t?
        gnutls_certificate_allocate_credentials(&allocated)
        guard let allocated else { throw Self.bad("GnuTLS is out of memory") }
        credentials = allocated
        expiresAt = Self.end(of: certificate)
        let code = Self.withDatum(certificate) { certificate in
            Self.withDatum(key) { key in
                gnutls_certificate_set_x509_key_mem(allocated, certificate, key, GNUTLS_X509_FMT_PEM)
            }
        }
        guard code >= 0 else {
            throw Self.bad(
                "\(files.certificateFile) and \(files.keyFile) are refused: \(String(cString: gnutls_strerror(code)))")
        }
        guard let clientCA else { return }
        let count = Self.withDatum(clientCA) {
            gnutls_certificate_set_x509_trust_mem(allocated, $0, GNUTLS_X509_FMT_PEM)
        }
        guard count > 0 else { throw Self.bad("\(files.clientCAFile) holds no certificate") }
    }

    deinit { gnutls_certificate_free_credentials(credentials) }

    /// Makes a session use this identity, before its handshake. The session must not outlive it.
    func identify(_ session: gnutls_session_t) {
        gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, UnsafeMutableRawPointer(credentials))
    }

    /// The expiry of the first certificate in a PEM text.
    private static func end(of certificate: String) -> Timestamp {
        var parsed: gnutls_x509_crt_t?
        gnutls_x509_crt_init(&parsed)
        defer { gnutls_x509_crt_deinit(parsed) }
        _ = withDatum(certificate) { gnutls_x509_crt_import(parsed, $0, GNUTLS_X509_FMT_PEM) }
        let seconds = gnutls_x509_crt_get_expiration_time(parsed)
        return Timestamp(milliseconds: seconds < 0 ? 0 : Int64(seconds) * 1000)
    }

    /// The size of the largest PEM file that is read, in bytes.
    static let largestFile = 1 << 20

    /// Reads a PEM file. A device, which may be endless, and a pipe, which can be read only once, are refused.
    static func read(_ path: String) throws(HTTPServerError) -> String {
        // Otherwise, opening a pipe waits for its writer.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw bad("cannot read \(path): \(String(cString: strerror(errno)))") }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw bad("\(path) is not a regular file")
        }
        var text: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 16 << 10)
        while text.count <= largestFile {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw bad("cannot read \(path): \(String(cString: strerror(errno)))") }
            if count == 0 { break }
            text += buffer[..<count]
        }
        guard text.count <= largestFile else { throw bad("\(path) is larger than \(largestFile) bytes") }
        guard !text.isEmpty else { throw bad("\(path) is empty") }
        return String(decoding: text, as: UTF8.self)
    }

    static func withDatum<R>(_ text: String, _ body: (UnsafePointer<gnutls_datum_t>) -> R) -> R {
        var bytes = Array(text.utf8)
        return bytes.withUnsafeMutableBufferPointer {
            var datum = gnutls_datum_t(data: $0.baseAddress, size: UInt32($0.count))
            return body(&datum)
        }
    }

    static func bad(_ detail: String) -> HTTPServerError { .init(errorClass: .badTLSFiles, detail: detail) }
}

/// Attributes of files that show whether they have been changed or replaced.
struct FileStamps: Equatable, Sendable {
    private struct Stamp: Equatable {
        var inode: ino_t = 0
        var size: off_t = 0
        var seconds = 0
        var nanoseconds = 0
    }
    private let stamps: [Stamp]

    init(_ files: TLSFiles) {
        stamps = [files.certificateFile, files.keyFile, files.clientCAFile].filter { !$0.isEmpty }.map { path in
            var found = stat()
            // Links are followed: a secret of Kubernetes is replaced by exchanging a link.
            guard stat(path, &found) == 0 else { return Stamp() }
            return Stamp(
                inode: found.st_ino, size: found.st_size, seconds: found.st_mtim.tv_sec,
                nanoseconds: found.st_mtim.tv_nsec)
        }
    }
}

/// `withCString` for an optional string.
func withOptionalCString<R>(_ text: String?, _ body: (UnsafePointer<CChar>?) -> R) -> R {
    guard let text else { return body(nil) }
    return text.withCString { body($0) }
}
