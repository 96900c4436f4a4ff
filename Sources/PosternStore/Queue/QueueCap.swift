import PosternCore
public import PosternUpstream

/// The limits of one upstream's queue.
public struct QueueCap: Sendable, Equatable {
    /// What happens to a new message when the queue is at its limit.
    public enum WhenFull: String, Sendable, CaseIterable { case reject, dropOldest }

    /// 0 means no limit.
    public var maxMessages = 0
    /// Payload bytes; 0 means no limit.
    public var maxBytes = 0
    /// Also decides what happens when the disk is full.
    public var whenFull = WhenFull.reject

    public init() {}

    func admits(messages: Int, bytes: Int) -> Bool {
        (maxMessages == 0 || messages <= maxMessages) && (maxBytes == 0 || bytes <= maxBytes)
    }
}

extension QueueCap: SettingsSection {
    public static let fields: [SettingField<Self>] = [
        .integer("maxMessages", 0...1_000_000_000_000, \.maxMessages, "Messages that may wait; 0: no cap."),
        .integer("maxBytes", 0...(1 << 50), \.maxBytes, "Bytes of payload that may wait; 0: no cap."),
        .choice("whenFull", \.whenFull, "At a cap: refuse new messages with 503, or drop the oldest ones."),
    ]
}
