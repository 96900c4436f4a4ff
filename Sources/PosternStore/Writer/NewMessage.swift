public import PosternCore
public import PosternUpstream

/// A message to be stored.
public struct NewMessage: Sendable {
    /// The queue that it is stored in.
    let queue: QueueTarget
    public let kind: Kind
    public let lane: Lane
    /// The caller's own key, 1 to 255 bytes.
    public let key: String?
    public let acceptedAt: Timestamp
    /// The time before which it is not sent.
    let notBefore: Timestamp?
    /// The time at which the message expires.
    let expiresAt: Timestamp?
    /// The payload is `bytes[range]`: usually a part of the request's body, which is not copied.
    public let bytes: [UInt8]
    public let range: Range<Int>
    /// What its lane waits for if the message is the first in it; see `ValidPayload.waitsFor`.
    let waitsFor: WaitReason?
    /// A secret that was part of the payload; see `ValidPayload.credential`.
    public let credential: Credential?
    /// What its row says of it from the start.
    var flags: MessageFlags = []
    /// Whether an SDK has posted it, to an endpoint that takes the place of its platform's.
    public var isFromSDK: Bool { flags.contains(.isFromSDK) }
    /// What is wrong with it, without a payload or a secret; nil: nothing. If not nil, it is stored as failed: it waits for
    /// nothing, takes no room in its queue, and is sent only if an operator retries it.
    public let failure: String?
    /// Whether it is stored as failed if its upstream rejects it in the transaction. If not, or if the upstream rejects it
    /// for lack of room (`AcceptanceError.Reason.full`), nothing of its request is stored.
    public let failsIfRejected: Bool

    /// See `Message.traceParent`.
    let traceParent: String?
    /// The turn in which it waits, unless messages of its lane wait in another one; see `Fairness`. 0 without turns.
    let turn: Int64

    /// Whether it can be stored without the state of its upstream.
    var needsNoState: Bool { !queue.validatesAgainstState && credential == nil }

    public init(
        queue: QueueTarget, kind: Kind, lane: Lane = .none, key: String? = nil, acceptedAt: Timestamp,
        notBefore: Timestamp? = nil, expiresAt: Timestamp? = nil, bytes: [UInt8], range: Range<Int>? = nil,
        waitsFor: WaitReason? = nil, credential: Credential? = nil, traceParent: String? = nil, turn: Int64 = 0,
        isFromSDK: Bool = false, failure: String? = nil, failsIfRejected: Bool = false
    ) {
        self.queue = queue
        self.kind = kind
        self.lane = lane
        self.key = key
        self.traceParent = traceParent
        self.turn = turn
        self.acceptedAt = acceptedAt
        self.notBefore = notBefore
        self.expiresAt = expiresAt
        self.bytes = bytes
        self.range = range ?? 0..<bytes.count
        self.waitsFor = waitsFor
        self.credential = credential
        self.failure = failure
        self.failsIfRejected = failsIfRejected
        if isFromSDK { flags = .isFromSDK }
    }
}

/// What is decided about a request as a whole, in the transaction that stores its messages and before the first of them, also if
/// there are none or all of them repeat others.
public struct Admission: Sendable {
    let queue: QueueTarget
    /// Sees the state of the queue's upstream, and returns how it changes. Throws if the request is refused.
    let decide: @Sendable (any UpstreamState) throws -> [StateChange]

    public init(
        to queue: QueueTarget,
        _ decide: @escaping @Sendable (any UpstreamState) throws(AcceptanceError) -> [StateChange]
    ) {
        self.queue = queue
        self.decide = decide
    }

    /// Why the request would be refused in that state; nil if it would not be, or if the state cannot be read.
    public func refusal(in state: any UpstreamState) -> AcceptanceError? {
        do {
            _ = try decide(state)
            return nil
        } catch {
            return error as? AcceptanceError
        }
    }
}

/// The result of storing messages.
public struct AppendReceipt: Sendable {
    /// The ids, in the order of the messages.
    public internal(set) var ids: [MessageID] = []
    /// Messages that were evicted by the queue's `dropOldest` policy.
    public internal(set) var evicted: [MessageID] = []
    /// The indices of events and of other messages that had been stored before. `ids` has the ids that they got then.
    public internal(set) var repeated: Set<Int> = []
    /// The ids of these messages.
    public var repeatedIDs: Set<MessageID> { Set(repeated.map { ids[$0] }) }
    /// The messages that were stored as failed, by their indices.
    public internal(set) var failed: [Int: AttemptError] = [:]
    /// Whether a caller handed in a credential that its upstream had rejected before.
    public internal(set) var needsCredential = false

    /// The ends of these messages, for replies that wait for them.
    public var notices: [SettledNotice] {
        failed.map { SettledNotice(id: ids[$0], state: .failed, error: $1, result: nil) }
    }

    /// An empty receipt, for a request without messages.
    public init() {}
}

/// Why messages were not stored. None of them was.
public enum AppendError: Error, Sendable, Equatable {
    /// The queue of this upstream, or the whole outbox if nil, is at its cap.
    case queueFull(UpstreamName?)
    /// As above, but the messages would not fit into it even if it were empty.
    case neverFits(UpstreamName?)
    /// Upstreams rejected some of them, each with its index.
    case refused([Refused])
    /// The request as a whole was not admitted.
    case notAdmitted(AcceptanceError)
    /// The events with these indices have the identities of others.
    case reused([Int])
    /// Since the caller looked, a request with the same key was stored, here or at another node, with this record.
    case recorded(StoredResponse)
    /// The store is full or closed, or failed; see `StoreError` for what that means for the messages.
    case store(StoreError)

    /// A message that its upstream rejected in the transaction.
    public struct Refused: Sendable, Equatable {
        /// Its index in the request.
        public let index: Int
        public let refusal: AcceptanceError
    }
}
