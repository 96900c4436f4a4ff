public import PosternCore

/// The result of a flush.
public struct FlushReport: Sendable, Equatable {
    /// The last message that the flush covers.
    public let through: MessageID
    /// The covered messages that reached a final state since the flush began.
    public internal(set) var delivered = 0
    /// The covered messages that reached another final state.
    public internal(set) var failed = 0
}
