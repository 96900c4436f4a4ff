internal import CMicrohttpd
public import PosternCore

/// A PEM file with certificates, as libmicrohttpd's TLS library reads it.
public struct CertificateFile: Sendable {
    /// SHA-256 of the SubjectPublicKeyInfo of the first certificate: 32 bytes.
    public let publicKeyDigest: [UInt8]

    /// - Throws: If the file cannot be read, or contains no valid certificate.
    public init(_ path: String) throws(HTTPServerError) {
        let text = try TLSIdentity.read(path)
        var list: UnsafeMutablePointer<gnutls_x509_crt_t?>?
        var count: UInt32 = 0
        let code = TLSIdentity.withDatum(text) {
            gnutls_x509_crt_list_import2(&list, &count, $0, GNUTLS_X509_FMT_PEM, 0)
        }
        guard code >= 0, let list, count > 0 else {
            throw TLSIdentity.bad("\(path) holds no valid certificate: \(String(cString: gnutls_strerror(code)))")
        }
        var digest = [UInt8](repeating: 0, count: 32)
        var size = digest.count
        let result = gnutls_x509_crt_get_key_id(list[0], GNUTLS_KEYID_USE_SHA256.rawValue, &digest, &size)
        for index in 0..<Int(count) { gnutls_x509_crt_deinit(list[index]) }
        postern_gnutls_free(list)
        guard result >= 0 else { throw TLSIdentity.bad("the key of \(path) cannot be read") }
        publicKeyDigest = digest
    }
}

/// A certificate and its key in PEM files, for a connection to another server.
public struct CertificatePair: Sendable {
    /// When the certificate expires.
    public let expiresAt: Timestamp
    /// The text of its file.
    public let certificate: String

    /// - Throws: If one of the files cannot be read, the key is encrypted, or they do not belong together.
    public init(certificateFile: String, keyFile: String) throws(HTTPServerError) {
        var files = TLSFiles()
        (files.certificateFile, files.keyFile) = (certificateFile, keyFile)
        let identity = try TLSIdentity(files)
        (expiresAt, certificate) = (identity.expiresAt, identity.certificate)
    }
}
