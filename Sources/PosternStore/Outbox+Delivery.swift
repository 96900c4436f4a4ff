public import PosternCore
public import PosternUpstream

/// The operations of a worker. All of them run on the writer's thread, in the next commit, and so do their completions.
extension Outbox {
    /// Records a request before it is sent: the completion runs once that is on disk. `ids`: not empty, ascending.
    /// `step` and `progress`: see `UpstreamRequest`.
    public func openAttempt(
        _ batch: BatchID, carrying ids: [MessageID], step: String? = nil, progress: [UInt8]? = nil,
        at startedAt: Timestamp, of queue: UpstreamQueue,
        completion: @escaping @Sendable (Result<Void, StoreError>) -> Void
    ) {
        writer.change(
            { transaction in
                try transaction.openAttempt(
                    batch, carrying: ids, step: step, progress: progress, at: startedAt, of: queue.target)
            },
            completion: completion)
    }

    /// Applies the result of an attempt. `changes` computes the state changes from the state inside the transaction;
    /// the completion gets those changes once they are on disk.
    public func settle(
        _ settlement: Settlement, of queue: UpstreamQueue,
        changes: StateChanges?,
        completion: @escaping @Sendable (Result<[StateChange], StoreError>) -> Void
    ) {
        writer.change(
            { transaction in try transaction.settle(settlement, of: queue.target, changes: changes) },
            completion: completion)
    }
}
