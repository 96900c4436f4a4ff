import PosternCore
import PosternStore

/// What a worker is told.
enum WorkerEvent: Sendable {
    case answered(Flight, TransferResult)
    case recorded(Flight, Ruling, Result<Void, StoreError>)
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
    /// Says what to change in the state as it is in the transaction that changes it: messages may have been accepted
    /// since the answer was judged, and what they changed must not be undone.
    var changesAnew: (@Sendable (any UpstreamState) -> [StateChange])?
}
