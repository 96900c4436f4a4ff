import Crypto
public import PosternCore
import Synchronization

/// The configured keys. Any thread.
public final class KeyRing: Sendable {
    /// By the first 8 bytes of the digest.
    private let callers: Mutex<[UInt64: Caller]>

    public init() { callers = Mutex([:]) }

    /// Whether callers need a key at all.
    public var isEmpty: Bool { callers.withLock { $0.isEmpty } }

    /// Puts these keys in force. A key that is configured as before keeps its allowance and the time of its last use.
    public func replace(with keys: [APIKey], at now: MonotonicInstant) {
        callers.withLock { callers in
            let former = callers
            callers = [:]
            for key in keys {
                let prefix = Self.prefix(of: key.sha256)
                callers[prefix] = former[prefix].flatMap { $0.key == key ? $0 : nil } ?? Caller(key, at: now)
            }
        }
    }

    private static func prefix(of digest: some Sequence<UInt8>) -> UInt64 {
        digest.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    var all: [Caller] { callers.withLock { Array($0.values) }.sorted { $0.key.name < $1.key.name } }

    enum Authentication {
        case caller(Caller)
        /// No key was presented.
        case missing
        case unknown
        case expired
    }

    /// Who presents this value of `Authorization` (RFC 6750, section 2.1).
    ///
    /// A key is looked up by its digest, so that the time which this takes tells nothing about the configured keys.
    func authenticate(_ authorization: String?, now: Timestamp) -> Authentication {
        guard let authorization, let key = Self.bearer(authorization) else { return .missing }
        let digest = SHA256.hash(data: key)
        // Crypto compares digests in constant time.
        guard let caller = callers.withLock({ $0[Self.prefix(of: digest)] }), digest == caller.key.sha256 else {
            return .unknown
        }
        if let expiresAt = caller.key.expiresAt, expiresAt <= now { return .expired }
        caller.used(at: now)
        return .caller(caller)
    }

    /// What follows the scheme, whose case does not matter (RFC 9110, section 11.1).
    private static func bearer(_ authorization: String) -> [UInt8]? {
        let bytes = Array(authorization.utf8)
        let scheme = Array("bearer".utf8)
        guard bytes.count > scheme.count, bytes[scheme.count] == UInt8(ascii: " "),
            zip(bytes, scheme).allSatisfy({ $0 | 0x20 == $1 })
        else { return nil }
        let key = bytes[scheme.count...].drop { $0 == UInt8(ascii: " ") }
        return key.isEmpty ? nil : Array(key)
    }
}
