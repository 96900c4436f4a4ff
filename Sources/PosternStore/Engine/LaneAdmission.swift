import PosternCore

/// When the lane of a message gets its row in `lanes`, for queues with separate lanes. The engine decides.
enum LaneAdmission: Hashable, Sendable {
    /// In the transaction that stores the message. Requires that all messages are stored by one writer.
    case inAppend
    /// An append writes only the row of the message, which names its lane. The owner of the queue opens the lane when it
    /// hears of the message, before it can be claimed. `after`: how long it waits before that; zero but in tests.
    case byOwner(after: Duration)
}

extension Lane {
    /// The number of a lane that its owner admits. It follows from the name, so that rows are found by lane before and after
    /// that, and an append need not look for other rows of the lane.
    static func number(of name: String, in upstream: UpstreamNumber) -> Int64 {
        guard case .digest(let digest) = digest(of: [upstream.rawValue] + Array(name.utf8)) else { return 1 }
        // Numbers are positive: 0 is no lane, and pages of lanes begin behind it.
        return max(1, digest & .max)
    }
}
