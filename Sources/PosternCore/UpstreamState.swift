/// An upstream's durable state: values under keys, which change in the same transaction as its messages.
public protocol UpstreamState {
    func value(of key: String) -> [UInt8]?
}

/// One change of that state.
public enum StateChange: Sendable, Equatable {
    case set(key: String, value: [UInt8])
    case remove(key: String)
    /// Lets the lanes of `group` go on that were parked for a token.
    case release(group: String)
}
