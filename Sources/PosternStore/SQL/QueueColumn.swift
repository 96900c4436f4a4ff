/// Values of the `waiting` column of a queue.
enum QueueColumn {
    static let ready: Int64 = 0
    /// Sent before, due again at `nextAttemptAtMs`; delays later messages of its lane.
    static let retrying: Int64 = 1
    /// Not to be sent before `nextAttemptAtMs`; delays no other message.
    static let scheduled: Int64 = 2
}
