import Crypto
import PosternCore

/// The keys that encrypt credentials: 32 bytes each (`outbox.encryptionKey`). Their description shows only their
/// number.
public struct EncryptionKeys: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    /// Bytes of a key: AES-256.
    public static let length = 32
    /// The key that encrypts; nil if no upstream stores credentials.
    public var current: [UInt8]?
    /// Previous keys, which decrypt what was encrypted before the current one was configured.
    public var previous: [[UInt8]]

    public init(current: [UInt8]? = nil, previous: [[UInt8]] = []) {
        for key in previous + (current.map { [$0] } ?? []) {
            precondition(key.count == Self.length, "a key has \(Self.length) bytes")
        }
        self.current = current
        self.previous = previous
    }

    public var description: String { "\((current == nil ? 0 : 1) + previous.count) keys" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// A key with its id, which an encrypted row names instead of the key.
struct SealingKey: Sendable {
    /// The first 8 bytes of a digest of the key, in hexadecimal. The prefix separates it from any other use.
    let id: String
    let key: SymmetricKey

    init(_ bytes: [UInt8]) {
        key = SymmetricKey(data: bytes)
        id = Array(SHA256.hash(data: Array("postern encryption key\0".utf8) + bytes).prefix(8)).hexadecimal
    }
}
