import Crypto
public import PosternCore
import Synchronization

/// The configured keys. Any thread.
public final class KeyRing: Sendable {
    private struct Callers {
        var all: [Caller] = []
        /// By the first 8 bytes of the digest.
        var byDigest: [UInt64: Caller] = [:]
        var byCertificate: [String: Caller] = [:]
    }
    private let callers = Mutex(Callers())

    public init() {}

    /// Whether callers need a key at all.
    public var isEmpty: Bool { callers.withLock { $0.all.isEmpty } }

    /// Puts these keys in force. A key that is configured as before keeps its allowance and the time of its last use.
    public func replace(with keys: [APIKey], at now: MonotonicInstant) {
        callers.withLock { callers in
            let former = callers.all
            callers = Callers()
            for key in keys {
                let caller = former.first { $0.key == key } ?? Caller(key, at: now)
                callers.all.append(caller)
                if !key.sha256.isEmpty { callers.byDigest[Self.prefix(of: key.sha256)] = caller }
                if let name = key.certificateName { callers.byCertificate[name] = caller }
            }
        }
    }

    private static func prefix(of digest: some Sequence<UInt8>) -> UInt64 {
        digest.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    var all: [Caller] { callers.withLock { $0.all }.sorted { $0.key.name < $1.key.name } }

    enum Authentication {
        case caller(Caller)
        /// No key was presented.
        case missing
        case unknown
        case expired
    }

    /// Who presents this value of `Authorization` (RFC 6750, section 2.1), or else a client certificate of this common
    /// name. A wrong key is not made good by a certificate.
    ///
    /// A key is looked up by its digest, so that the time which this takes tells nothing about the configured keys.
    func authenticate(_ authorization: String?, certificateName: String? = nil, now: Timestamp) -> Authentication {
        let found: Caller
        if let digest = authorization.flatMap(Self.digest(ofBearer:)) {
            let candidate = callers.withLock { $0.byDigest[Self.prefix(of: digest)] }
            // Crypto compares digests in constant time.
            guard let candidate, digest == candidate.key.sha256 else { return .unknown }
            found = candidate
        } else if let certificateName, let caller = callers.withLock({ $0.byCertificate[certificateName] }) {
            found = caller
        } else {
            return .missing
        }
        return admitted(found, now: now)
    }

    private func admitted(_ caller: Caller, now: Timestamp) -> Authentication {
        if let expiresAt = caller.key.expiresAt, expiresAt <= now { return .expired }
        caller.used(at: now)
        return .caller(caller)
    }

    /// Of what follows the scheme, whose case does not matter (RFC 9110, section 11.1). Nil without a key.
    private static func digest(ofBearer authorization: String) -> SHA256.Digest? {
        let scheme: StaticString = "bearer"
        var authorization = authorization
        return authorization.withUTF8 { bytes in
            let length = scheme.utf8CodeUnitCount
            guard bytes.count > length, bytes[length] == UInt8(ascii: " "),
                (0..<length).allSatisfy({ bytes[$0] | 0x20 == scheme.utf8Start[$0] }),
                let start = bytes[length...].firstIndex(where: { $0 != UInt8(ascii: " ") })
            else { return nil }
            var hash = SHA256()
            hash.update(bufferPointer: UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(bytes)[start...]))
            return hash.finalize()
        }
    }
}
