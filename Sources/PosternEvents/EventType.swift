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
    case messageCancelled = "message.cancelled"
    case tokenRefreshed = "token.refreshed"
    case tokenFailed = "token.failed"
    /// Nothing is sent to the upstream but probes.
    case upstreamDown = "upstream.down"
    case upstreamUp = "upstream.up"
    /// An operator has stopped the sending.
    case upstreamPaused = "upstream.paused"
    case upstreamResumed = "upstream.resumed"
    case flushFinished = "flush.finished"
    /// A bulk request that was carried out step by step has ended, or was stopped.
    case operationFinished = "operation.finished"
    case configurationReloaded = "configuration.reloaded"
}

/// Events of one type and upstream that happened at about the same time.
public struct Event: Sendable, Equatable {
    public let type: EventType
    /// Nil if it concerns more than one. It is then for those that may see all upstreams.
    let upstream: UpstreamName?
    /// The messages concerned, or the first of them; see `EventFeed.Limits`.
    public internal(set) var ids: [MessageID]
    /// How many messages are concerned, also those that are not in `ids`; 0 for events that concern none.
    public internal(set) var count: Int
    /// How many requests `batch.sent` is about; 0 for other events.
    public internal(set) var requests: Int
    /// Nil if the SDK of the upstream's service has no such event.
    public let named: NamedEvent?
    /// The name of the key of the operator who caused it; nil for other events, and without a key.
    public let by: String?
    /// The id of the operation that it is about.
    public let operation: String?

    public init(
        _ type: EventType, _ upstream: UpstreamName?, ids: [MessageID] = [], count: Int? = nil,
        named: NamedEvent? = nil, by: String? = nil, operation: String? = nil
    ) {
        self.type = type
        self.upstream = upstream
        self.ids = ids
        self.count = count ?? ids.count
        requests = type == .batchSent ? 1 : 0
        self.named = named
        self.by = by
        self.operation = operation
    }
}
