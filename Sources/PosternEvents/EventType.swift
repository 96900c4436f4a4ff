public import PosternCore
public import PosternUpstream

/// The types of events in the event stream, in the order in which the events of one message happen.
public enum EventType: String, Sendable, CaseIterable {
    /// Accepted, or queued again by an operator.
    case messageQueued = "message.queued"
    /// A request with these messages is on its way.
    case batchSent = "batch.sent"
    /// The request did not deliver them; they are sent again later.
    case messageRetrying = "message.retrying"
    case messageDelivered = "message.delivered"
    case messageFailed = "message.failed"
    case messageDropped = "message.dropped"
    case messageExpired = "message.expired"
    case tokenRefreshed = "token.refreshed"
    case tokenFailed = "token.failed"
    /// Nothing is sent to the upstream but probes.
    case upstreamDown = "upstream.down"
    case upstreamUp = "upstream.up"
    case flushFinished = "flush.finished"
}

/// Events of one type and upstream that happened at about the same time.
public struct Event: Sendable, Equatable {
    public let type: EventType
    let upstream: UpstreamName
    /// The messages concerned, or the first of them; see `EventFeed.Limits`.
    public internal(set) var ids: [MessageID]
    /// How many messages are concerned, also those that are not in `ids`; 0 for events that concern none.
    public internal(set) var count: Int
    /// Nil if the SDK of the upstream's service has no such event.
    public let named: NamedEvent?

    public init(
        _ type: EventType, _ upstream: UpstreamName, ids: [MessageID] = [], count: Int? = nil,
        named: NamedEvent? = nil
    ) {
        self.type = type
        self.upstream = upstream
        self.ids = ids
        self.count = count ?? ids.count
        self.named = named
    }
}
