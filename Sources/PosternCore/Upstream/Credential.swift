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
    /// Of no use from then on; nil when nobody said.
    public let expiresAt: Timestamp?
    /// Is it kept until it expires or is dropped, although nothing queued needs it?
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
    /// Has the upstream turned it down? Then it is not sent any more.
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

    /// May it be sent? One that is known to have expired counts as refused.
    public func isUsable(at now: Timestamp) -> Bool { !isRefused && (expiresAt.map { $0 > now } ?? true) }

    public var description: String { "credential \(version)" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: ["version": version]) }
}
