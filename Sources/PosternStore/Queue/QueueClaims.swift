public import PosternCore

/// How the messages of one queue become batches: which rows are sent next, and which have to wait for which. A plain
/// value, which the worker owns: it is locked while a claim reads the store, and the writer's thread never touches it.
///
/// There is one implementation for each `LaneRule`, and nothing else asks which one a queue has.
protocol QueueClaims: Sendable {
    // MARK: Asking

    /// Whether something may be there that was not announced.
    var mustLook: Bool { get }
    /// Whether there is no room for what is scheduled or new.
    var isAtScanLimit: Bool { get }
    /// When the next batch is due that is to be sent again, as far as the rows do not say so.
    var nextGroupDue: Timestamp? { get }
    /// Every id up to this one was looked at.
    var cursor: MessageID { get }
    /// How many lanes, or rows that were left, take up memory.
    var countInMemory: Int { get }
    /// Whether an earlier message of its lane keeps it waiting; nil if the rows say so.
    func isHeldUp(_ id: MessageID, in lane: Int64) -> Bool?

    // MARK: Claiming

    /// Takes over what a former run left. Returns when the first scheduled message is due; nil if a look finds out.
    mutating func adoptLeftovers(from rows: QueueRows) throws -> Timestamp?
    mutating func hear(_ news: QueueExchange.News)
    /// Collects the rows to be sent next; `end` says what of them could be leased.
    mutating func look(_ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool) throws
    /// The look is over. Some of what it `found` may have been removed since, or is about to be.
    mutating func end(_ scan: ClaimScan, found: [Message], as leases: Leases, refused: Set<MessageID>)

    // MARK: What became of a claim

    /// They are going to be sent again, together as far as their lanes are free then. Comes before their release.
    mutating func sendAgain(_ ended: [Lease], from dueAt: Timestamp, isDueNow: Bool, history: BatchHistory)
    /// The same for a batch that was not tried, because what it needs is not there.
    mutating func postpone(_ ended: [Lease], until dueAt: Timestamp, history: BatchHistory)
    /// They were not sent after all. Comes before their release.
    mutating func giveBack(_ ended: [Lease])
    /// They are no longer being sent.
    mutating func release(_ ended: [Lease])
    /// What is due later is due now. Returns false if the rows of lanes say when that is.
    mutating func makeDue(at now: Timestamp) -> Bool
}

extension LaneRule {
    /// The claims of a queue, and how its arrivals are counted: not where they collect in the rows of their lanes.
    func makeClaims(newest: MessageID) -> (any QueueClaims, Arrivals?) {
        switch self {
        case .mixed: (MixedClaims(), Arrivals(newest: newest))
        case .separate: (LaneClaims(), nil)
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
