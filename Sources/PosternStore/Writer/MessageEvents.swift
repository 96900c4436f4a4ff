import PosternCore
import PosternEvents

/// What a transaction does with messages, in order; published after its commit.
struct MessageEvents {
    /// The same for consecutive messages, which can be published as one event.
    struct Run {
        let type: EventType
        let upstream: UpstreamNumber
        let kind: Kind
        /// Whether an operator queued the messages again: they had an end before.
        let isAgain: Bool
        /// The key of the operator; nil if none has caused it, or without a key.
        let by: String?
        var ids: [MessageID]
    }
    private(set) var runs: [Run] = []

    mutating func add(_ type: EventType, of id: MessageID, _ kind: Kind, isAgain: Bool, by key: String? = nil) {
        if let last = runs.indices.last, runs[last].type == type, runs[last].upstream == id.upstream,
            runs[last].isAgain == isAgain, runs[last].kind == kind, runs[last].by == key
        {
            runs[last].ids.append(id)
        } else {
            runs.append(Run(type: type, upstream: id.upstream, kind: kind, isAgain: isAgain, by: key, ids: [id]))
        }
    }

    // MARK: Undoing

    /// A position between two messages.
    struct Position {
        fileprivate let runs: Int
        fileprivate let idsOfLast: Int
    }

    var end: Position { Position(runs: runs.count, idsOfLast: runs.last?.ids.count ?? 0) }

    /// Removes what was added since.
    mutating func remove(from position: Position) {
        runs.removeSubrange(position.runs...)
        guard let last = runs.indices.last else { return }
        runs[last].ids.removeSubrange(position.idsOfLast...)
    }
}

extension EventType {
    /// The event for the end of a message.
    init?(_ state: MessageState) {
        switch state {
        case .delivered: self = .messageDelivered
        case .failed: self = .messageFailed
        case .dropped: self = .messageDropped
        case .expired: self = .messageExpired
        case .cancelled: self = .messageCancelled
        case .queued: return nil
        }
    }
}
