import PosternCore
import PosternStore
import PosternUpstream

/// An event for a worker.
enum WorkerEvent: Sendable {
    /// The row that records the request is committed, or the commit failed.
    case opened(InFlightBatch, Result<Void, StoreError>)
    case answered(InFlightBatch, TransferResult)
    case recorded(InFlightBatch, Settlement, Result<[StateChange], StoreError>)
    case tokenAnswered(TransferResult, fetch: Int)
    case pause(Pause)
    case resume, stop, end
    case pauseStored(Result<Void, StoreError>)
    /// How long a claim waits could not be stored, so that it does not wait.
    case waitNotStored(StoreError)
    case flush(@Sendable (FlushReport?) -> Void)
    /// Messages that would have waited longer are due now, because of a flush.
    case flushBegan
    case apply(DeliverySettings, upstream: AnyUpstream?)
    /// A request outside the queue got a response with a notice.
    case noticed(UpstreamNotice)
}

/// A batch from its claim until its result is on disk.
struct InFlightBatch: Sendable {
    var batch: Batch
    /// The claim on exactly its messages.
    let claim: Claim
    let startedAt: MonotonicInstant
    /// The token that it is sent with, and the generation of that token.
    var token: Token?
    var generation = 0
    /// The changes of the state that follow from its response, or from the plan that settled it.
    var changes: StateChanges?
    /// See `Decision.afterwards`.
    var afterwards: (@Sendable ([StateChange]) -> [StateChange])?

    var endpoint: String { batch.request?.endpoint ?? "" }
    var number: Int { Int(batch.id.rawValue) }
    var isLoneSuspect: Bool { claim.isLoneSuspect }
}

extension Claim {
    /// Whether it is one message that got a doubtful response while it was sent alone.
    var isLoneSuspect: Bool { messages.count == 1 && history.suspectTries > 0 }
}
