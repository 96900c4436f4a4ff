/// One payload in the queue of one upstream.
public struct Message: Sendable, Equatable {
    public let id: MessageID
    /// One of the upstream's kinds when the message was accepted.
    public let kind: Kind
    /// Decided by the upstream at acceptance, and never changed.
    public let lane: Lane
    /// The caller's own key, if one was given; has no meaning to Postern.
    public let key: String?
    /// When it was accepted by the wall clock, which may jump.
    public let acceptedAt: Timestamp
    /// JSON text, inserted byte for byte into requests.
    public let payload: [UInt8]
    /// Attempts that count against the message: those whose failure it may have caused. Outages do not count.
    public var attempts: Int
    /// What earlier steps of a sequence left for the later ones; written by the upstream, nil before the first step.
    public var progress: [UInt8]?
    /// Whether an earlier attempt may have reached the upstream: after an outage, a lost response, or a run that was
    /// killed, but not after a response that clearly rejected everything. If requests store their progress, this is
    /// about the step that `progress` names.
    public var mayHaveArrived: Bool
    /// Whether an operator has queued the message again after it failed.
    public var wasRetried: Bool
    /// Whether it is an event about another message that settled. There is none about itself.
    public let isCallback: Bool
    /// Whether an SDK has posted it, to an endpoint that takes the place of its platform's.
    public let isFromSDK: Bool
    /// The `traceparent` of the request that it was accepted in (W3C Trace Context).
    public let traceParent: String?

    public init(
        id: MessageID, kind: Kind, lane: Lane = .none, key: String? = nil, acceptedAt: Timestamp, payload: [UInt8],
        attempts: Int = 0, progress: [UInt8]? = nil, mayHaveArrived: Bool = false,
        wasRetried: Bool = false, isCallback: Bool = false, isFromSDK: Bool = false, traceParent: String? = nil
    ) {
        self.id = id
        self.kind = kind
        self.lane = lane
        self.key = key
        self.acceptedAt = acceptedAt
        self.payload = payload
        self.attempts = attempts
        self.progress = progress
        self.mayHaveArrived = mayHaveArrived
        self.wasRetried = wasRetried
        self.isCallback = isCallback
        self.isFromSDK = isFromSDK
        self.traceParent = traceParent
    }
}

/// The unit of order inside an upstream: messages of one lane are delivered in the order of their acceptance, one
/// request at a time. How lanes and batches relate is the upstream's `LaneRule`.
public enum Lane: Hashable, Sendable {
    /// No order.
    case none
    /// A lane known by a 64-bit digest of its name. Two names that collide merely wait for each other.
    case digest(Int64)
    /// A lane known by its name. Lanes of one `group` are never sent side by side and can be parked together.
    case named(String, group: String? = nil)
}

/// How batches are taken from an upstream's queue.
public enum LaneRule: Sendable {
    /// A batch takes the oldest messages of any lane; a lane that is being sent, or waits to be sent again, is
    /// passed over. Lanes are `.none` or `.digest`.
    case acrossLanes
    /// A batch holds messages of one lane, the lane that became ready first. Lanes are `.named`.
    case perLane
}

/// The state of a message. `queued` is the only state that Postern leaves by itself.
public enum MessageState: UInt8, Sendable, CaseIterable {
    case queued = 0
    case delivered = 1
    /// Rejected by the upstream: the dead letters.
    case failed = 2
    /// Cancelled by a caller.
    case cancelled = 3
    /// Evicted because its queue was full.
    case dropped = 4
    /// Grew older than it was allowed to.
    case expired = 5

    /// All that are final.
    public static let settled = allCases.filter { $0 != .queued }

    /// The word for it in the API, on the command line, and in metrics.
    public var name: String {
        switch self {
        case .queued: "queued"
        case .delivered: "delivered"
        case .failed: "failed"
        case .cancelled: "cancelled"
        case .dropped: "dropped"
        case .expired: "expired"
        }
    }

    public init?(name: some StringProtocol) {
        guard let state = Self.allCases.first(where: { $0.name == name }) else { return nil }
        self = state
    }
}

/// What a queued message waits for.
public enum WaitReason: String, Sendable, CaseIterable {
    case retry, order, circuit, token, credentials, pause, schedule
    /// Its endpoint rejected most of the latest messages; see `delivery.guard`.
    case `guard`
    /// As many as `delivery.maxRequestsPerSecond` and `maxMessagesPerSecond` permit have been sent.
    case rate
}
