public import PosternCore
public import PosternUpstream

extension Outbox {
    /// Cancels those of `ids` that are queued and not being sent, all in one transaction, and returns them. The
    /// completion runs on the writer's thread after the commit.
    public func cancel(
        _ ids: [MessageID], completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        let now = time.now
        writer.change(
            { [self] transaction in
                try ids.filter { id in
                    try target(id.upstream).map { try transaction.cancel(id, in: $0, at: now) } ?? false
                }
            }, completion: completion)
    }

    /// Queues failed or dropped messages again, all in one transaction, and returns them.
    public func requeue(
        _ ids: [MessageID], completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        let now = time.now
        writer.change { [self] transaction in
            var done: [MessageID] = []
            for id in ids.sorted() {
                guard let queue = target(id.upstream), try transaction.requeue(id, in: queue, at: now) else { continue }
                done.append(id)
            }
            return done
        } completion: { [self] result in
            for (number, members) in Dictionary(grouping: (try? result.get()) ?? [], by: \.upstream) {
                guard let first = members.min(), let last = members.max() else { continue }
                queues.adopted(number)?.requeued(first...last)
            }
            completion(result)
        }
    }

    /// Stores an upstream's health. If that fails, only a process that reads the store sees the old one.
    public func setHealth(_ record: CircuitRecord, of number: UpstreamNumber) {
        writer.change { transaction in try transaction.save(record, of: number) }
    }

    /// Stores whether an upstream is paused.
    public func setPaused(
        _ isPaused: Bool, of number: UpstreamNumber,
        completion: @escaping @Sendable (Result<Void, StoreError>) -> Void
    ) {
        writer.change(
            { transaction in
                try transaction.sql.run("UPDATE upstreams SET isPaused = ? WHERE number = ?", isPaused, number)
            }, completion: completion)
    }

    /// Stores whether an upstream is paused for which no worker sends, and tells one that has begun to meanwhile.
    public func setPaused(_ isPaused: Bool, of target: QueueTarget) {
        setPaused(isPaused, of: target.number) { [queues] _ in queues.adopted(target.number)?.paused(isPaused) }
    }

    /// Makes everything due now in a queue from which no worker sends, stores what the flush covers, and tells a worker
    /// that has begun to send meanwhile. `completion` runs on the writer's thread after that.
    public func flush(_ target: QueueTarget, completion: @escaping @Sendable () -> Void = {}) {
        let now = time.now
        writer.change { transaction in
            let newest = MessageID(rawValue: Int64(transaction.writeStates[target.number].ledger.lastID))
            try transaction.sql.run(
                "UPDATE upstreams SET flushedThrough = ? WHERE number = ?", newest, target.number)
            switch target.upstream.traits.laneRule {
            case .acrossLanes: try transaction.makeRetriesDue(of: target, at: now)
            case .perLane: try transaction.makeLanesDue(of: target, at: now)
            }
        } completion: { [queues] _ in
            queues.adopted(target.number)?.flushed(at: now)
            completion()
        }
    }

    /// Stores, also for later runs, what a flush covers.
    public func setFlushed(through id: MessageID, of number: UpstreamNumber) {
        writer.change { transaction in
            try transaction.sql.run("UPDATE upstreams SET flushedThrough = ? WHERE number = ?", id, number)
        }
    }

    /// Changes an upstream's state depending on its current one. `body` runs on the writer's thread and returns what
    /// `completion` gets.
    public func change<Value: Sendable>(
        of queue: QueueTarget,
        _ body: @escaping @Sendable (any UpstreamState) -> (changes: [StateChange], value: Value),
        completion: @escaping @Sendable (Result<Value, StoreError>) -> Void
    ) {
        writer.change(
            { transaction in
                let (changes, value) = try transaction.state(of: queue).decide(body)
                try transaction.change(changes, of: queue)
                return value
            }, completion: completion)
    }
}
