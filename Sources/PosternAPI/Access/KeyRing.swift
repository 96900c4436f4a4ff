import PosternCore
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

    init() {}

    /// Whether callers need no key at all.
    var isEmpty: Bool { !hasKeys.load(ordering: .acquiring) }

    /// Replaces the active keys. A key that is configured as before keeps its allowance and the time of its last use.
    func replace(with keys: [APIKey], at now: MonotonicInstant) {
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

    /// Whether a caller that was admitted before still would be: its key is configured and has not expired, or no key is
    /// required if it has none.
    func stillAdmits(_ caller: Caller?, now: Timestamp) -> Bool {
        guard let caller else { return isEmpty }
        return callers.withLock { $0.all.contains { $0 === caller } } && caller.key.expiresAt.map { now < $0 } ?? true
    }

    enum Authentication {
        case caller(Caller)
        /// No key was presented.
        case missing
        case unknown
        case expired
    }

    /// Identifies the caller by the digest of the key that was presented, or else by a client certificate of this common
    /// name. If the key is wrong, the certificate is ignored.
    ///
    /// A key is looked up by its digest, so the time that this takes reveals nothing about the configured keys.
    func authenticate(_ digest: KeyDigest?, certificateName: String? = nil, now: Timestamp) -> Authentication {
        let found: Caller
        if let digest {
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
