public import PosternCore

/// How the messages of one queue become batches: which rows are sent next, and which have to wait for which.
///
/// There is one implementation for each `LaneRule`, and nothing else asks which one a queue has. Each keeps its memory
/// in plain values behind locks. The writer's thread takes a lock only to change such a value, and no claim holds that
/// lock while it reads the store.
///
/// The writer's thread calls the first group; one worker calls the second, from one thread at a time; any thread calls
/// the last.
protocol QueueDiscipline: Sendable {
    // MARK: After the commit. True: wake the worker

    func arrived(_ arrival: Arrival, at instant: MonotonicInstant, limits: BatchLimits) -> Bool
    /// Something is due at `moment`.
    func isDue(at moment: Timestamp) -> Bool
    /// Keeps a message from being claimed until `doneRemoving`. False while it is being sent.
    func tryRemoving(_ id: MessageID) -> Bool
    /// The removal is committed (`areGone`) or undone.
    func doneRemoving(_ ids: [MessageID], areGone: Bool) -> Bool
    /// Ended messages are queued again, under ids from `id` on.
    func cameBack(from id: MessageID)

    // MARK: The worker's side; `UpstreamQueue` says what each does

    /// Adopts what a former run left.
    func adoptLeftovers(of queue: UpstreamQueue) throws
    func readiness(limits: BatchLimits, wait: Duration, now: Timestamp, instant: MonotonicInstant) -> Readiness
    func claim(_ request: ClaimRequest, from queue: UpstreamQueue) throws -> Claim
    func release(_ messages: [Message])
    func sendAgain(_ messages: [Message], from dueAt: Timestamp, history: BatchHistory, now: Timestamp)
    func giveBack(_ claim: Claim, now: Timestamp)
    func postpone(_ claim: Claim, until dueAt: Timestamp, for reason: WaitingFor?, of queue: UpstreamQueue)
    func park(_ claim: Claim, of queue: UpstreamQueue)
    func makeDue(at now: Timestamp, of queue: UpstreamQueue, completion: @escaping @Sendable () -> Void)

    // MARK: Any thread

    func isInFlight(_ id: MessageID) -> Bool
    /// Whether an earlier message of its lane keeps it waiting.
    func isHeldUp(_ id: MessageID, lane: Int64, in queue: UpstreamQueue) -> Bool
    /// How many lanes, or rows that were left, take up memory.
    var countInMemory: Int { get }
}

extension LaneRule {
    func makeDiscipline(newest: MessageID) -> any QueueDiscipline {
        switch self {
        case .mixed: MixedQueue(newest: newest)
        case .separate: LaneQueue()
        }
    }

    /// Whether batches are found by lane, so that the table needs an index for that.
    var needsLaneIndex: Bool {
        switch self {
        case .mixed: false
        case .separate: true
        }
    }
}

/// When there will be something to claim, as far as is known.
public enum Readiness: Sendable, Equatable {
    case now
    /// New messages collect until then.
    case collecting(until: MonotonicInstant)
    /// Something is due at that time.
    case due(at: Timestamp)
    /// Only an arrival, or the end of a batch in flight, can change that.
    case nothing
}

/// Which messages a claim takes if there are both new ones and ones that have failed before.
public enum ClaimPreference: Sendable, Equatable {
    /// One after the other, so that neither starves.
    case inTurn
    /// New ones as long as there are any.
    case fresh
}

/// What a worker may send now.
public struct Claim: Sendable {
    public let messages: [Message]
    /// Too old to be sent.
    public let expired: [Message]
    /// Whether they were sent before and form a batch of their own.
    public let isGroup: Bool
    public let history: BatchHistory
    /// How often its separate lane had been woken when it was claimed.
    var wakes = 0

    /// The claim on some of its messages.
    public func narrowed(to messages: [Message], history: BatchHistory? = nil) -> Claim {
        Claim(messages: messages, expired: [], isGroup: isGroup, history: history ?? self.history, wakes: wakes)
    }
}

/// What a batch has been through, as far as this run knows.
public struct BatchHistory: Sendable, Equatable {
    /// Failures in a row.
    public var failures = 0
    /// The number of the request whose doubtful answer put the batch under suspicion; nil if it is not. For a message
    /// alone, of the latest such request that counts against it.
    public var suspectedAfter: Int?
    /// Doubtful answers in a row that count against a message that was sent alone.
    public var suspectTries = 0
    /// When the first of these came.
    public var suspectedSince: Timestamp?
    /// How many of these had a success of something else after the one before. The others count because nothing else
    /// could be sent.
    public var provenTries = 0
    /// Whether the batch is part of one that was halved because nothing else could be sent.
    public var isSplit = false
    /// How many requests the worker had sent at the latest doubtful answer.
    public var requestsBefore = 0

    public init(failures: Int = 0, suspectedAfter: Int? = nil) {
        self.failures = failures
        self.suspectedAfter = suspectedAfter
    }

    /// The same without suspicion: another answer starts the count again.
    public var cleared: BatchHistory { BatchHistory(failures: failures) }
}
