import PosternCore
import PosternStore

/// What a worker is told.
enum WorkerEvent: Sendable {
    /// The row that records the request is committed, or could not be.
    case opened(InFlightBatch, Result<Void, StoreError>)
    case answered(InFlightBatch, TransferResult)
    case recorded(InFlightBatch, Settlement, Result<[StateChange], StoreError>)
    case tokenAnswered(TransferResult, fetch: Int)
    case pause, resume, stop, end
    case flush(@Sendable (FlushReport) -> Void)
    /// What was to wait longer is due now, because of a flush.
    case flushBegan
    case adopt(DeliverySettings, upstream: RegisteredUpstream?)
}

/// A batch from its claim until its result is on disk.
struct InFlightBatch: Sendable {
    let batch: Batch
    /// The claim on exactly its messages.
    let claim: Claim
    let startedAt: MonotonicInstant
    /// The token it is sent under, and which one that is.
    var token: Token?
    var generation = 0
    /// What the upstream answered; nil if nothing was sent or the request was cancelled.
    var result: TransferResult?
    /// When the result was judged: state changes are computed as of then.
    var judgedAt: Timestamp?

    var endpoint: String { batch.request?.endpoint ?? "" }
    var number: Int { Int(batch.id.rawValue) }
    var isLoneSuspect: Bool { claim.isLoneSuspect }
}

extension Claim {
    /// Whether it is one message that had a doubtful answer while it was sent alone.
    var isLoneSuspect: Bool { messages.count == 1 && history.suspectTries > 0 }
}
