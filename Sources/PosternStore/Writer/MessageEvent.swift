import PosternCore

/// What a transaction does with a message; published after its commit.
struct MessageEvent {
    let type: EventType
    let id: MessageID
    /// Nil if the upstream does not name events by it.
    let kind: Kind?
    /// Whether an operator queued the message again: it had an end before.
    var isAgain = false
}

extension [MessageEvent] {
    /// Runs of consecutive events that can be published as one.
    var runs: [ArraySlice<MessageEvent>] {
        var runs: [ArraySlice<MessageEvent>] = []
        var start = startIndex
        for index in indices where index > start {
            let (first, next) = (self[start], self[index])
            if first.type == next.type, first.isAgain == next.isAgain, first.id.upstream == next.id.upstream,
                first.kind == next.kind
            {
                continue
            }
            runs.append(self[start..<index])
            start = index
        }
        if start < endIndex { runs.append(self[start...]) }
        return runs
    }
}

extension EventType {
    /// The event for the end of a message; nil for an end that a caller requested.
    init?(_ state: MessageState) {
        switch state {
        case .delivered: self = .messageDelivered
        case .failed: self = .messageFailed
        case .dropped: self = .messageDropped
        case .expired: self = .messageExpired
        case .queued, .cancelled: return nil
        }
    }
}
