/// An upstream's durable state: values under keys, which change in the same transaction as its messages.
public protocol UpstreamState {
    func value(of key: String) -> [UInt8]?
    /// The values whose keys begin with `key` and a slash, in the order of their keys, `most` at most.
    func values(below key: String, atMost most: Int) -> [(key: String, value: [UInt8])]
    /// How many messages of that named lane are queued, the one being looked at not counted; counts no further than
    /// `most`.
    func queued(inLane name: String, atMost most: Int) -> Int
}

extension UpstreamState {
    public func queued(inLane name: String, atMost most: Int) -> Int { 0 }
}

/// When a value is of no use any more: some time after `at`, but never while something of `lane` is queued. What stands
/// below its key, behind a slash, goes with it.
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
    /// Plans that lane anew at once, should a plan have said that it waits.
    case wake(lane: String)
}
