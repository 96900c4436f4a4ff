internal import CMicrohttpd

/// What the client of a connection has proven over TLS.
public enum ClientCertificate: Sendable, Equatable {
    /// The server requests no certificate.
    case notRequested
    /// The client has none, or one that is not of the configured authority, is not valid now, or is not meant for
    /// clients.
    case missing
    /// `commonName` is that of its subject; nil if there is none, or more than one.
    case verified(commonName: String?)

    /// Reads the certificate of a session whose handshake is complete.
    init(of session: gnutls_session_t) {
        guard Self.isVerified(session), let commonNames = Self.commonNames(session) else {
            self = .missing
            return
        }
        self = .verified(commonName: commonNames.count == 1 ? commonNames[0] : nil)
    }

    private static func isVerified(_ session: gnutls_session_t) -> Bool {
        var status: UInt32 = 0
        return postern_verify_client(session, &status) == 0 && status == 0
    }

    /// Returns at most two names; nil if the certificate cannot be read.
    private static func commonNames(_ session: gnutls_session_t) -> [String]? {
        var count: UInt32 = 0
        guard let chain = gnutls_certificate_get_peers(session, &count), count > 0 else { return nil }
        var certificate: gnutls_x509_crt_t?
        gnutls_x509_crt_init(&certificate)
        defer { gnutls_x509_crt_deinit(certificate) }
        guard gnutls_x509_crt_import(certificate, chain, GNUTLS_X509_FMT_DER) >= 0 else { return nil }
        var names: [String] = []
        while names.count < 2 {
            var text = [CChar](repeating: 0, count: 256)
            var size = text.count
            // Special characters are escaped as in RFC 4514, so that no two names look alike.
            let code = gnutls_x509_crt_get_dn_by_oid(
                certificate, GNUTLS_OID_X520_COMMON_NAME, UInt32(names.count), 0, &text, &size)
            if code == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE { break }
            guard code >= 0 else { return nil }
            names.append(String(decoding: text.prefix(size).map(UInt8.init(bitPattern:)), as: UTF8.self))
        }
        return names
    }
}
