public import PosternCore
import PosternEvents

/// What is stored when messages settle: an event for each, which is a message for the upstream that is notified.
public struct Callback: Sendable {
    /// The queue of that upstream. The limits of the queue apply to events as to any other message.
    let queue: QueueTarget
    /// One of the upstream's kinds.
    let kind: Kind
    let includesPayload: Bool
    private let states: Set<MessageState>
    private let upstreams: Set<UpstreamName>?
    let events: @Sendable ([SettledMessage]) -> [Event]
    /// The alerts that are events, too.
    let alerts: Set<AlertEvent>
    let alertLane: @Sendable ([UInt8]) -> Lane

    /// The text of an event, and its lane at its upstream.
    public struct Event: Sendable {
        let lane: Lane
        let bytes: [UInt8]

        public init(_ bytes: [UInt8], lane: Lane) {
            self.lane = lane
            self.bytes = bytes
        }
    }

    /// - Parameters:
    ///   - states: The ends that are reported.
    ///   - upstreams: The upstreams whose messages and alerts are reported; nil means all.
    ///   - includesPayload: Whether `events` needs payloads.
    ///   - alertLane: The lane of the event about an alert, by its payload.
    ///   - events: One event for each message, in their order. Called on the writer's thread, inside the transaction,
    ///     as `alertLane` is.
    public init(
        to queue: QueueTarget, as kind: Kind, of states: Set<MessageState>, in upstreams: Set<UpstreamName>?,
        includesPayload: Bool, alerts: Set<AlertEvent> = [],
        alertLane: @escaping @Sendable ([UInt8]) -> Lane = { _ in .none },
        events: @escaping @Sendable ([SettledMessage]) -> [Event]
    ) {
        precondition(!queue.validatesAgainstState, "events are not validated a second time when they are stored")
        self.queue = queue
        self.kind = kind
        self.includesPayload = includesPayload
        self.states = states
        self.upstreams = upstreams
        self.events = events
        self.alerts = alerts
        self.alertLane = alertLane
    }

    func reports(_ state: MessageState, of upstream: UpstreamName) -> Bool {
        states.contains(state) && upstreams.map { $0.contains(upstream) } ?? true
    }

    func tells(_ alert: AlertKey) -> Bool {
        guard alerts.contains(alert.event) else { return false }
        guard let upstreams, let upstream = alert.upstream else { return true }
        return upstreams.contains(upstream)
    }
}

/// A message that has just settled, for the events about it.
public struct SettledMessage: Sendable {
    public let id: MessageID
    public let upstream: UpstreamName
    public let kind: Kind
    public let state: MessageState
    public let key: String?
    /// Attempts that count against the message.
    public let attempts: Int
    public let settledAt: Timestamp
    /// Nil for a delivered message, as in its receipt.
    public let lastError: AttemptError?
    /// The upstream's response, as it is kept with the message.
    public let result: [UInt8]?
    /// Nil if no callback needs it, or if it is no longer stored as it was accepted.
    public let payload: [UInt8]?
    /// Whether an SDK has posted it.
    public let isFromSDK: Bool
    /// The event belongs to the same trace.
    let traceParent: String?
    /// The message of which it is a copy; nil if it is none.
    public internal(set) var replayOf: MessageID?
}

/// The events that a transaction stored for a callback.
struct CallbackCount {
    let callback: Callback
    /// All of them.
    let accepted: Int
    /// How many of them did not fit into the queue.
    let dropped: Int
}
