import Crypto
import PosternCore

/// Encrypts credentials for the disk with AES-256-GCM. Any thread.
///
/// A sealed value is bound to its upstream, owner and version (the associated data): if it is moved to another row, it
/// cannot be decrypted. The nonce is random, and new for each encryption.
final class Vault: Sendable {
    struct Sealed: Equatable {
        let keyID: String
        let nonce: [UInt8]
        /// Ciphertext and tag.
        let box: [UInt8]
    }

    /// The owner of a credential, and its version.
    struct CredentialKey: Hashable {
        let upstream: UpstreamNumber
        let owner: String
        let version: Int64

        fileprivate var associatedData: [UInt8] {
            Array("postern credential 1\0\(upstream.rawValue)\0\(version)\0\(owner)".utf8)
        }
    }

    private let current: SealingKey?
    private let previous: [SealingKey]

    init(_ keys: EncryptionKeys) {
        current = keys.current.map { SealingKey($0) }
        previous = keys.previous.map { SealingKey($0) }
    }

    var currentKeyID: String? { current?.id }

    // MARK: Sealing

    /// The encrypted value to store; nil if there is no key, so that the value cannot be stored. A gateway with a type that
    /// stores credentials does not start without one.
    func put(_ value: [UInt8], at credentialKey: CredentialKey) throws -> Sealed? {
        guard let current else { return nil }
        let box = try AES.GCM.seal(value, using: current.key, authenticating: credentialKey.associatedData)
        return Sealed(keyID: current.id, nonce: Array(box.nonce), box: Array(box.ciphertext) + Array(box.tag))
    }

    /// The value; nil if no configured key decrypts it.
    func value(_ sealed: Sealed, at credentialKey: CredentialKey) -> [UInt8]? {
        guard let key = key(sealed.keyID), sealed.box.count >= 16, let nonce = try? AES.GCM.Nonce(data: sealed.nonce),
            let box = try? AES.GCM.SealedBox(
                nonce: nonce, ciphertext: sealed.box.dropLast(16), tag: sealed.box.suffix(16)),
            let value = try? AES.GCM.open(box, using: key, authenticating: credentialKey.associatedData)
        else { return nil }
        return Array(value)
    }

    // MARK: Between nodes

    /// Encrypts what another node reads with the same key: the length of the key's id, the id, the nonce, and the box. Without a
    /// key, a zero and the value.
    func seal(_ value: [UInt8], for purpose: String) throws -> [UInt8] {
        guard let current else { return [0] + value }
        let box = try AES.GCM.seal(value, using: current.key, authenticating: Array("postern \(purpose) 1".utf8))
        let id = Array(current.id.utf8)
        return [UInt8(id.count)] + id + Array(box.nonce) + Array(box.ciphertext) + Array(box.tag)
    }

    /// What was sealed for the same purpose; nil if no configured key decrypts it.
    func open(_ sealed: [UInt8], for purpose: String) -> [UInt8]? {
        guard let length = sealed.first.map(Int.init), sealed.count > length else { return nil }
        let rest = sealed.dropFirst(1 + length)
        guard length > 0 else { return current == nil ? Array(rest) : nil }
        guard let key = key(String(decoding: sealed[1...length], as: UTF8.self)),
            let box = try? AES.GCM.SealedBox(combined: rest)
        else { return nil }
        return (try? AES.GCM.open(box, using: key, authenticating: Array("postern \(purpose) 1".utf8))).map {
            Array($0)
        }
    }

    private func key(_ id: String) -> SymmetricKey? {
        if current?.id == id { return current?.key }
        return previous.first { $0.id == id }?.key
    }

    // MARK: Digests

    /// A digest that distinguishes values without revealing them. With a key, a guess cannot be verified either.
    func digest(of value: [UInt8], upstream: UpstreamNumber, owner: String) -> [UInt8] {
        digests(of: value, upstream: upstream, owner: owner)[0]
    }

    /// That digest, and those that the value may have with previous keys, or without one.
    func digests(of value: [UInt8], upstream: UpstreamNumber, owner: String) -> [[UInt8]] {
        let text = Array("postern digest\0\(upstream.rawValue)\0\(owner)\0".utf8) + value
        return ([current] + previous + [nil]).map { key in
            guard let key else { return Array(SHA256.hash(data: text).prefix(16)) }
            return Array(HMAC<SHA256>.authenticationCode(for: text, using: key.key).prefix(16))
        }
    }
}
