public import PosternCore

/// What a worker asks of the store. All of it runs on the writer's thread, in the next commit; completions do too.
extension Outbox {
    /// Records a request before it is sent: the completion runs once that is on disk. `ids`: not empty, ascending.
    public func openAttempt(
        _ batch: BatchID, carrying ids: [MessageID], at startedAt: Timestamp, of queue: UpstreamQueue,
        completion: @escaping @Sendable (Result<Void, StoreError>) -> Void
    ) {
        writer.change(
            { transaction in try transaction.openAttempt(batch, carrying: ids, at: startedAt, of: queue) },
            completion: completion)
    }

    /// Lanes that wait for their endpoint or for credentials are due at `now`.
    public func wakeHeldLanes(of queue: UpstreamQueue, at now: Timestamp) {
        writer.change { transaction in try transaction.wakeHeldLanes(of: queue, at: now) }
    }

    /// Applies the result of an attempt. `changes` computes, from the state as the transaction has left it, what
    /// changes in it; the completion gets those changes once they are on disk. An error that it throws fails the
    /// settlement, of which nothing is kept then.
    public func settle(
        _ settlement: Settlement, of queue: UpstreamQueue,
        changes: @escaping @Sendable (any UpstreamState) throws -> [StateChange],
        completion: @escaping @Sendable (Result<[StateChange], StoreError>) -> Void
    ) {
        writer.change(
            { transaction in try transaction.settle(settlement, of: queue, changes: changes) },
            completion: completion)
    }
}
