public import PosternCore

/// A secret that a caller hands in for later use, for example a user's token. The store keeps it encrypted, and
/// no longer than a queued message needs it.
///
/// Its description shows only its owner.
public struct Credential: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable
{
    /// Its owner: the group of the lanes that it is for.
    public let owner: String
    /// The value, verbatim as it is sent in requests.
    public let value: [UInt8]
    /// Data that accompanies it and is not secret, for example the issuer.
    public let note: String
    /// The time at which it expires. Nil if it is not known.
    public let expiresAt: Timestamp?
    /// Whether it is kept until it expires or is dropped, although no queued message needs it.
    public let isKept: Bool

    public init(
        owner: String, value: [UInt8], note: String = "", expiresAt: Timestamp? = nil, isKept: Bool = false
    ) {
        self.owner = owner
        self.value = value
        self.note = note
        self.expiresAt = expiresAt
        self.isKept = isKept
    }

    public var description: String { "a credential of \(owner)" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: ["owner": owner]) }
}

/// A credential as it is stored. Its description shows only its version.
public struct HeldCredential: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    /// Decrypted, and verbatim as the caller handed it in. Empty if it was rejected.
    public let value: [UInt8]
    /// See `Credential.note`.
    public let note: String
    /// The version, which is different for each value of the same owner.
    public let version: Int64
    /// Nil if it is not known.
    public let expiresAt: Timestamp?
    /// Whether the upstream has rejected it. If so, it is no longer sent.
    public let isRefused: Bool

    public init(
        value: [UInt8], note: String = "", version: Int64 = 1, expiresAt: Timestamp? = nil, isRefused: Bool = false
    ) {
        self.value = value
        self.note = note
        self.version = version
        self.expiresAt = expiresAt
        self.isRefused = isRefused
    }

    /// Whether the credential may be sent. An expired one counts as refused.
    public func isUsable(at now: Timestamp) -> Bool { !isRefused && (expiresAt.map { $0 > now } ?? true) }

    public var description: String { "credential \(version)" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: ["version": version]) }
}
