public import PosternCore

/// What a worker asks of the store. All of it runs on the writer's thread, in the next commit; completions do too.
extension Outbox {
    /// Writes down that a request goes out.
    public func openAttempt(_ attempt: Departure, of queue: UpstreamQueue) {
        writer.change { transaction in try transaction.depart(attempt, of: queue) }
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
