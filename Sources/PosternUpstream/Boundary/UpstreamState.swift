public import PosternCore

/// An upstream's durable state: values under keys, which change in the same transaction as its messages.
///
/// Reads do not throw. If the store cannot be read, they return what they would if nothing was stored, and the store
/// discards what the upstream decided. So a decision must be pure, and must not trap on a missing value.
public protocol UpstreamState {
    func value(of key: String) -> [UInt8]?
    /// The values whose keys begin with `key` and a slash, in the order of their keys, `most` at most.
    func values(below key: String, atMost most: Int) -> [(key: String, value: [UInt8])]
    /// The number of messages of that named lane that are queued, without the one being validated; at most `most`.
    func queued(inLane name: String, atMost most: Int) -> Int
    /// Whether the message is still queued, including while it is being sent.
    func isQueued(_ id: MessageID) -> Bool
    /// The credential that is stored for `owner`; nil if there is none, or none that can be decrypted.
    func credential(of owner: String) -> HeldCredential?
    /// Whether the upstream has rejected this credential before. If so, it is not stored.
    func wasRefused(_ credential: Credential) -> Bool
    /// For `accept`: what the messages of the same request that were accepted before change together, as the last of them
    /// has returned it. Nil if there is none.
    var draft: StateChange.Draft? { get }
}

/// A change of the state. If a message causes it, it is committed in the same transaction as the message's own change.
public enum StateChange: Sendable, Equatable {
    /// Sets a value. Without an `expiry`, it is kept until it is removed.
    case set(key: String, value: [UInt8], expiry: Expiry? = nil)
    case remove(key: String)
    /// Sets a value that may be lost. It is left out while the disk is full, is in no backup, and is deleted at `until`.
    /// Its key begins with `cacheRoot` and a slash.
    case cache(key: String, value: [UInt8], until: Timestamp)
    /// Removes the values whose keys begin with `key` and a slash.
    case removeAll(below: String)
    /// Releases the lanes of `group` that were parked for a token.
    case release(group: String)
    /// Plans the lane again at once, if a plan has made it wait.
    case wake(lane: String)
    /// Stores a credential and replaces its owner's previous one. If the value is different and was not rejected
    /// before, the parked lanes of the group `owner` are released.
    case hold(Credential)
    /// Deletes the credential of that owner.
    case drop(credentialOf: String)
    /// Applies the changes of the draft when all messages of the request are accepted. Only `accept` returns it.
    case draft(Draft)
    /// The message repeats that one, which was accepted before: it is not stored, and the caller gets the first one's id.
    /// Only the second validation of a message returns it, alone.
    case repeats(MessageID)
    /// The upstream rejected that version. It is not sent again, and not accepted again if a caller hands it in.
    case refuse(credentialOf: String, version: Int64)

    /// What the keys of values that may be lost are below. No other values are.
    public static let cacheRoot = "cache"
}

extension StateChange {
    /// What the messages of one request change together. A value that many of them change is decoded once, kept here, and
    /// encoded after the last of them, so that a request costs as much as its messages and that value, and not their product.
    open class Draft: Equatable, @unchecked Sendable {
        // @unchecked: used by the thread that stores the request only.
        public init() {}
        /// The changes of the state in the end. Among them is no draft.
        open var changes: [StateChange] { [] }
        public static func == (left: Draft, right: Draft) -> Bool { left === right }
    }

    /// When a value is deleted: some time after `at`, but never while a message of `lane` is queued. Values whose keys are
    /// below its key, after a slash, are deleted with it.
    public struct Expiry: Sendable, Equatable {
        /// The earliest time at which the value is deleted.
        public var at: Timestamp
        /// The value is kept while a message of this lane is queued. Nil means that only `at` counts.
        public var lane: String?

        public init(at: Timestamp, lane: String? = nil) {
            self.at = at
            self.lane = lane
        }
    }
}
