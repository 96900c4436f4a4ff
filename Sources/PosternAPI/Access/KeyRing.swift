public import PosternCore
import Synchronization

/// The configured keys. Any thread.
public final class KeyRing: Sendable {
    private struct Callers {
        var all: [Caller] = []
        /// By the prefix of the digest.
        var byDigest: [UInt64: (digest: KeyDigest, caller: Caller)] = [:]
        var byCertificate: [String: Caller] = [:]
    }
    private let callers = Mutex(Callers())
    private let hasKeys = Atomic<Bool>(false)

    public init() {}

    /// Whether callers need no key at all.
    public var isEmpty: Bool { !hasKeys.load(ordering: .acquiring) }

    /// Puts these keys in force. A key that is configured as before keeps its allowance and the time of its last use.
    public func replace(with keys: [APIKey], at now: MonotonicInstant) {
        callers.withLock { callers in
            let former = callers.all
            callers = Callers()
            for key in keys {
                let caller = former.first { $0.key == key } ?? Caller(key, at: now)
                callers.all.append(caller)
                if let digest = KeyDigest(key.sha256) { callers.byDigest[digest.prefix] = (digest, caller) }
                if let name = key.certificateName { callers.byCertificate[name] = caller }
            }
            hasKeys.store(!keys.isEmpty, ordering: .releasing)
        }
    }

    var all: [Caller] { callers.withLock { $0.all }.sorted { $0.key.name < $1.key.name } }

    /// Whether a caller that was let in before would be let in again.
    func admits(_ caller: Caller, now: Timestamp) -> Bool {
        callers.withLock { $0.all.contains { $0 === caller } } && caller.key.expiresAt.map { now < $0 } ?? true
    }

    enum Authentication {
        case caller(Caller)
        /// No key was presented.
        case missing
        case unknown
        case expired
    }

    /// Who presents this value of `Authorization`, or else a client certificate of this common name. A certificate does
    /// not make up for a wrong key.
    ///
    /// A key is looked up by its digest, so the time that this takes reveals nothing about the configured keys.
    func authenticate(_ authorization: String?, certificateName: String? = nil, now: Timestamp) -> Authentication {
        let found: Caller
        if let digest = authorization.flatMap(KeyDigest.init(ofBearer:)) {
            let candidate = callers.withLock { $0.byDigest[digest.prefix] }
            guard let candidate, digest == candidate.digest else { return .unknown }
            found = candidate.caller
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
}
