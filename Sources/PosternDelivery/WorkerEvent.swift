import PosternCore
import PosternStore

/// What a worker is told.
enum WorkerEvent: Sendable {
    case answered(Flight, TransferResult)
    case recorded(Flight, Ruling, Result<[StateChange], StoreError>)
    case tokenAnswered(TransferResult, fetch: Int)
    case pause, resume, stop, end
    case flush(@Sendable (FlushReport) -> Void)
    /// What was to wait longer is due now.
    case flushBegan(MessageID)
    case adopt(DeliverySettings, upstream: (any Upstream)?)
}

/// A batch under way: from its claim until what came of it is on disk.
struct Flight: Sendable {
    let batch: Batch
    /// The claim on exactly its messages.
    let claim: Claim
    let startedAt: MonotonicInstant
    /// The token it went out under, and which one that was.
    var token: Token?
    var generation = 0
}

/// What follows an answer: what is written down, and what the queue does once that is on disk.
struct Ruling: Sendable {
    /// Messages that go out again, all together.
    struct Again: Sendable {
        let messages: [Message]
        let dueAt: Timestamp
        var history = BatchHistory()
    }

    var settlement: Settlement
    /// Settled: no longer the queue's.
    var released: [Message] = []
    var again: [Again] = []
    /// All of them stand where they stood before the claim.
    var isGivenBack = false
    /// Computes the state changes that go with it, in the transaction that settles it.
    var changes: @Sendable (any UpstreamState) throws -> [StateChange] = { _ in [] }
    /// What the upstream answered; nil for a batch that was not sent, or that a stop has cancelled.
    var result: TransferResult?
}
