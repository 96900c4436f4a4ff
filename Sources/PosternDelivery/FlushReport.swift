public import PosternCore

/// The result of a flush.
public struct FlushReport: Sendable, Equatable {
    /// It covers the messages up to this one.
    public let through: MessageID
    /// Of those, what reached a final state since it began.
    public internal(set) var delivered = 0
    public internal(set) var failed = 0
}
