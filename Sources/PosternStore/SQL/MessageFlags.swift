import PosternCore

/// The bits of the column `tried` of a message.
struct MessageFlags: OptionSet, SQLInteger {
    let rawValue: Int64

    /// The upstream may have received it.
    static let mayHaveArrived = Self(rawValue: 1)
    /// It failed, and an operator queued it again.
    static let wasRetried = Self(rawValue: 2)
    /// An operator queued it again, so that only its own expiry ends it.
    static let wasRequeued = Self(rawValue: 4)
    /// It is an event about another message; see `Callback`.
    static let isCallback = Self(rawValue: 8)
    /// Its content was erased; see `EraseRequest`.
    static let wasErased = Self(rawValue: 16)
    /// An SDK has posted it. A block and a receipt keep this flag, and no other.
    static let isFromSDK = Self(rawValue: 32)

    init(rawValue: Int64) { self.rawValue = rawValue }

    /// What is added when an operator queues a message again that has ended as `state`.
    static func requeued(from state: MessageState) -> Self {
        state == .failed ? [.wasRequeued, .wasRetried] : .wasRequeued
    }

    @inline(__always) var sqlInteger: Int64 { rawValue }
    @inline(__always) init(sqlInteger: Int64) { rawValue = sqlInteger }
}
