public import PosternCore
public import PosternUpstream

/// The changes of an attempt in the store, all in one transaction.
public struct Settlement: Sendable {
    var batch: BatchID
    public var outcome: Outcome
    /// The HTTP status; nil if there was no response.
    public var status: Int?
    /// Why the request did not deliver; nil if it did.
    public var detail: String?
    public var endedAt: Timestamp
    /// Whether the messages may have arrived, although no response confirms it.
    public var isAmbiguous = false

    /// Messages that leave the queue with a receipt.
    public var delivered: [Message] = []
    /// The upstream's response, kept with the delivered messages.
    public var result: [UInt8]?
    /// The steps of the sequence of the message that is delivered or ended, to be counted.
    public var steps: [StepResult] = []
    /// Messages that leave the queue in another final state.
    public var ended: [Ended] = []
    /// Nil if no message is sent again because of a failure.
    public var waiting: Waiting?
    /// Messages whose position is unchanged, although the upstream may have received them.
    public var possiblyArrived: [MessageID] = []
    /// Messages that continue a sequence, and their progress.
    public var progressed: [(message: Message, progress: [UInt8])] = []
    /// Messages whose lane, with its group, has to stop until it is released.
    public var parked: [Message] = []
    /// The health to store with it; nil leaves the stored one.
    public var circuit: CircuitRecord?

    // What the queue does once the changes above are on disk. Messages that are delivered or ended leave it.

    /// Groups of messages, each of which is sent again together.
    public var again: [Retry] = []
    /// Whether all messages return to their position before the claim.
    public var isGivenBack = false
    /// The messages of the claim that wait for their endpoint, until when, and for what.
    public var postponed: Postponement?

    /// How an attempt ended, as the API, the metrics, and the log name it.
    public enum Outcome: String, Sendable, CaseIterable {
        case delivered
        /// A step of a sequence is done.
        case proceed
        /// The response had one verdict per message.
        case sorted
        /// An outage or a rate limit: the same messages are sent again later.
        case retry
        /// Only the lane waits.
        case backedOff = "backed-off"
        /// The messages may be the cause of the failure.
        case suspect
        /// The token was rejected; the same messages are sent again with a new one.
        case unauthorized
        /// The endpoint or the upstream waits for an operator.
        case held
        /// The lane waits for a credential.
        case parked
        /// The batch was halved.
        case split
        case rejected
        /// The request was cancelled because the gateway stopped.
        case cancelled
        /// Settled without a request.
        case unsent
        case expired
        /// The process ended before the response arrived; written by the next start.
        case unknown
    }

    /// Messages that are sent again together.
    public struct Retry: Sendable {
        public let messages: [Message]
        /// When they may be sent at the earliest.
        public let dueAt: Timestamp
        public let history: BatchHistory

        public init(_ messages: [Message], dueAt: Timestamp, history: BatchHistory = BatchHistory()) {
            self.messages = messages
            self.dueAt = dueAt
            self.history = history
        }
    }

    /// A wait of messages that were claimed, and count as not sent.
    public struct Postponement: Sendable {
        public let messages: [Message]
        public let until: Timestamp
        public let reason: WaitReason
        public let history: BatchHistory

        public init(_ messages: [Message], until: Timestamp, for reason: WaitReason, history: BatchHistory) {
            self.messages = messages
            self.until = until
            self.reason = reason
            self.history = history
        }
    }

    /// A message that is not sent again.
    public struct Ended: Sendable {
        public let message: Message
        /// `failed`, `cancelled` or `expired`.
        public let state: MessageState
        public let error: AttemptError?
        /// The upstream's response, kept with the message.
        let result: [UInt8]?
        /// Whether the last attempt may have taken effect although the message has ended.
        let mayHaveArrived: Bool
        /// The number of additional attempts that count against the message.
        let attempts: Int

        public init(
            _ message: Message, as state: MessageState, error: AttemptError?, result: [UInt8]? = nil,
            mayHaveArrived: Bool = false, attempts: Int? = nil
        ) {
            self.attempts = attempts ?? (state == .failed ? 1 : 0)
            self.message = message
            self.state = state
            self.error = error
            self.result = result
            self.mayHaveArrived = mayHaveArrived
        }
    }

    /// Messages that are sent again later.
    public struct Waiting: Sendable {
        let messages: [Message]
        /// When they are due, by the wall clock.
        public let nextAttemptAt: Timestamp
        /// Whether the attempt counts against them.
        let counts: Bool
        let error: AttemptError?
        /// Whether the upstream may have received them. Not after a response that clearly rejected everything.
        let mayHaveArrived: Bool

        public init(
            _ messages: [Message], nextAttemptAt: Timestamp, counts: Bool, error: AttemptError?,
            mayHaveArrived: Bool = true
        ) {
            self.mayHaveArrived = mayHaveArrived
            self.messages = messages
            self.nextAttemptAt = nextAttemptAt
            self.counts = counts
            self.error = error
        }
    }

    public init(batch: BatchID, outcome: Outcome, status: Int? = nil, detail: String? = nil, endedAt: Timestamp) {
        self.batch = batch
        self.outcome = outcome
        self.status = status
        self.detail = detail
        self.endedAt = endedAt
    }
}
