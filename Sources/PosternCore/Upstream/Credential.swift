/// Something secret that a caller hands in for later use, e.g. a user's token. The store keeps it sealed, or in memory
/// only, and no longer than something queued needs it.
///
/// Printed, it shows whose it is and no more.
public struct Credential: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable
{
    /// Whom it belongs to: the group of the lanes that it is for.
    public let owner: String
    /// Verbatim, as it goes into requests.
    public let value: [UInt8]
    /// What is no secret and goes with it, e.g. who issued it.
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

/// A credential as the store holds it. Printed, it shows its version and no more.
public struct HeldCredential: Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible,
    CustomReflectable
{
    public let value: [UInt8]
    public let note: String
    /// Another one with each other value of the same owner.
    public let version: Int64
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
