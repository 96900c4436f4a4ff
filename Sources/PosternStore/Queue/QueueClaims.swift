public import PosternCore

/// How the messages of one queue become batches: which rows are sent next, and which have to wait for which. A plain
/// value, which the worker owns: it is locked while a claim reads the store, and the writer's thread never touches it.
///
/// There is one implementation for each `LaneRule`, and nothing else asks which one a queue has.
protocol QueueClaims: Sendable {
    // MARK: Queries

    /// Whether there may be messages that were not announced.
    var mustScan: Bool { get }
    /// Whether there is no room for what is scheduled or new.
    var isAtScanLimit: Bool { get }
    /// When the next batch is due that is to be sent again, if that is not stored in the rows.
    var nextGroupDue: Timestamp? { get }
    /// Every id up to this one has been examined.
    var cursor: MessageID { get }
    /// No id after this one has been examined.
    var frontier: MessageID { get }
    /// The number of lanes, or of skipped rows, in memory.
    var countInMemory: Int { get }
    /// Whether an earlier message of its lane keeps it waiting; nil if that has to be read from the rows.
    func isHeldUp(_ id: MessageID, in lane: Int64) -> Bool?

    /// Whether a message up to `id` that is not being sent could be sent now, or after one of its lane that is. Not a
    /// single message under suspicion: it waits until nothing else is ready.
    func maySend(through id: MessageID, now: Timestamp, from rows: QueueRows) throws -> Bool

    /// Has the messages take turns from now on, each as often as its weight says, which is 1 if it is missing. Nil ends that.
    mutating func share(by weights: [Int64: Int]?)

    // MARK: Claiming

    /// Loads what an earlier run left. Returns when the first scheduled message is due; nil if only a scan can
    /// determine it.
    mutating func adoptLeftovers(from rows: QueueRows) throws -> Timestamp?
    mutating func apply(_ updates: QueueMailbox.PendingUpdates)
    /// Collects the rows to be sent next. `end` is called with those that could be leased.
    mutating func look(_ scan: inout ClaimScan, from rows: QueueRows, isLeased: (MessageID) -> Bool) throws
    /// The scan has failed, perhaps after its look: nothing that it took is sent.
    mutating func abandon(_ scan: ClaimScan)
    /// The scan has ended. If `refused` is nil, all that it `found` is leased. Otherwise, some of it may have been removed
    /// since, or is being removed.
    mutating func end(_ scan: ClaimScan, found: [Message], as leases: Leases, refused: Set<MessageID>?)

    // MARK: Results of a claim

    /// The messages are no longer being sent.
    mutating func end(_ ended: [Lease], as end: ClaimEnd)
    /// Makes everything due now. Returns false if the times are stored in the rows of lanes.
    mutating func makeDue(at now: Timestamp) -> Bool
    /// Makes due now what was postponed. Returns as above.
    mutating func makePostponedDue(at now: Timestamp) -> Bool
}

/// How the claim on some messages ends.
enum ClaimEnd {
    /// The messages are deleted, or no longer this queue's.
    case settled
    /// They are to be sent again, together as far as their lanes are free then.
    case again(from: Timestamp, isDueNow: Bool, history: BatchHistory)
    /// The same for a batch that was not sent, because what it needs is missing. `kind`: of its first message.
    case postponed(kind: Kind, until: Timestamp, history: BatchHistory)
    /// They were not sent after all, and keep their position.
    case unsent
}

extension LaneRule {
    /// The claims of a queue, and how its arrivals are counted: not at all if they are collected in the rows of their
    /// lanes.
    ///
    /// `hasOtherWriters`: whether other processes add messages, too.
    func makeClaims(
        newest: MessageID, hasOtherWriters: Bool, sendsKindsApart: Bool
    ) -> (any QueueClaims, Announcements?) {
        switch self {
        case .acrossLanes:
            (
                CrossLaneClaims(sendsKindsApart: sendsKindsApart),
                Announcements(newest: newest, hasOtherWriters: hasOtherWriters)
            )
        case .perLane: (PerLaneClaims(), nil)
        }
    }

    /// Whether batches are found by lane, so that the table needs an index by lane.
    var needsLaneIndex: Bool {
        switch self {
        case .acrossLanes: false
        case .perLane: true
        }
    }
}

/// When there will be something to claim, as far as it is known.
public enum Readiness: Sendable, Equatable {
    case now
    /// New messages are collected until this time.
    case collecting(until: MonotonicInstant)
    /// Something is due at this time.
    case due(at: Timestamp)
    /// Only an arrival, or the end of a batch in flight, can change that.
    case nothing
}

/// Which messages a claim takes if there are both new messages and messages that have failed before.
public enum ClaimPreference: Sendable, Equatable {
    /// Alternates between them, so that neither starves.
    case inTurn
    /// Takes new ones as long as there are any.
    case fresh
}

/// Messages that a worker may send now.
public struct Claim: Sendable {
    /// In accepted order.
    public let messages: [Message]
    /// Messages that have expired and are not sent.
    public let expired: [Message]
    /// Whether they were sent before and form a batch of their own.
    let isGroup: Bool
    /// Empty for messages that were not sent in this run.
    public let history: BatchHistory
    /// The `wakes` of its separate lane when it was claimed.
    var wakes = 0

    /// Returns the claim on some of its messages.
    public func narrowed(to messages: [Message], history: BatchHistory? = nil) -> Claim {
        Claim(messages: messages, expired: [], isGroup: isGroup, history: history ?? self.history, wakes: wakes)
    }
}

/// The failures of a batch in this run.
public struct BatchHistory: Sendable, Equatable {
    /// The number of failures in a row.
    public var failures = 0
    /// The number of the request whose doubtful response put the batch under suspicion; nil if it is not. For a single
    /// message, the latest such request that counts against it.
    public var suspectedAfter: Int?
    /// The number of doubtful responses in a row that count against a message that was sent alone.
    public var suspectTries = 0
    /// When the request with the first of these was sent.
    public var suspectedSince: MonotonicInstant?
    /// How many of these were followed by a success of another message before the next one. The others count because
    /// nothing else could be sent.
    public var provenTries = 0
    /// Whether the batch is part of one that was halved because nothing else could be sent.
    public var isSplit = false
    /// How many requests the worker had sent at the latest doubtful response.
    public var requestsBefore = 0
    /// Whether the batch was sent again because the token may have been stale. If it is refused once more although the
    /// token is fresh, or is accepted from others, the token is not the cause.
    public var hasNewToken = false

    public init(failures: Int = 0, suspectedAfter: Int? = nil) {
        self.failures = failures
        self.suspectedAfter = suspectedAfter
    }

    /// The same history without suspicion: any other response resets the count.
    public var cleared: BatchHistory {
        var history = BatchHistory(failures: failures)
        history.hasNewToken = hasNewToken
        return history
    }
}
