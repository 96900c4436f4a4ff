/// An upstream's durable state: values under keys, which change in the same transaction as its messages.
///
/// A read throws if the store cannot be read. An upstream passes that error on: a value that could not be read is not a
/// value that is missing.
public protocol UpstreamState {
    func value(of key: String) throws -> [UInt8]?
    /// The values whose keys begin with `key` and a slash, in the order of their keys, `most` at most.
    func values(below key: String, atMost most: Int) throws -> [(key: String, value: [UInt8])]
    /// How many messages of that named lane are queued, the one being looked at not counted; counts no further than
    /// `most`.
    func queued(inLane name: String, atMost most: Int) throws -> Int
    /// Whether the message is still queued, including while it is being sent.
    func isQueued(_ id: MessageID) throws -> Bool
    /// The credential that is held for `owner`; nil when there is none, or none that can be read.
    func credential(of owner: String) throws -> HeldCredential?
    /// Whether the upstream rejected this very credential before. It is not held then.
    func wasRefused(_ credential: Credential) throws -> Bool
    /// Whether credentials outlive this run. Without a key to encrypt them they do not.
    var keepsCredentials: Bool { get }
}

extension UpstreamState {
    public func queued(inLane name: String, atMost most: Int) -> Int { 0 }
    public func isQueued(_ id: MessageID) -> Bool { false }
    public func credential(of owner: String) -> HeldCredential? { nil }
    public func wasRefused(_ credential: Credential) -> Bool { false }
    public var keepsCredentials: Bool { true }
}

/// When a value is deleted: some time after `at`, but never while a message of `lane` is queued. Values whose keys are
/// below its key, after a slash, are deleted with it.
public struct StateExpiry: Sendable, Equatable {
    public var at: Timestamp
    public var lane: String?

    public init(at: Timestamp, lane: String? = nil) {
        self.at = at
        self.lane = lane
    }
}

/// One change of that state.
public enum StateChange: Sendable, Equatable {
    /// Without an `expiry` it stays until it is removed.
    case set(key: String, value: [UInt8], expiry: StateExpiry? = nil)
    case remove(key: String)
    /// Lets the lanes of `group` go on that were parked for a token.
    case release(group: String)
    /// Plans the lane again at once, if a plan has made it wait.
    case wake(lane: String)
    /// Holds a credential in the place of its owner's former one. One of another value that was not refused before
    /// lets the lanes of the group `owner` go on that were parked.
    case hold(Credential)
    /// Forgets the credential of that owner.
    case drop(credentialOf: String)
    /// The upstream rejected that version. It is not sent again, and not accepted again if a caller hands it in.
    case refuse(credentialOf: String, version: Int64)
}
