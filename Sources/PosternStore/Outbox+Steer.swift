public import PosternCore
public import PosternUpstream

/// What an operator may do with many messages.
public enum MessageAction: String, Sendable, CaseIterable {
    /// Queues failed or dropped messages again.
    case retry
    /// Settles queued messages that are not being sent.
    case cancel
    /// Deletes settled messages, and counts them in the ledger as removed.
    case purge

    /// The states that messages may be in.
    public var states: [MessageState] {
        switch self {
        case .retry: [.failed, .dropped]
        case .cancel: [.queued]
        case .purge: MessageState.allCases.filter { $0 != .queued }
        }
    }

    /// What was done with the messages, as a member of a response.
    public var past: String {
        switch self {
        case .retry: "retried"
        case .cancel: "cancelled"
        case .purge: "purged"
        }
    }

    /// Which messages it is for, in a sentence.
    public var rule: String {
        switch self {
        case .retry: "only failed or dropped ones can be sent again"
        case .cancel: "only a queued one can be cancelled"
        case .purge: "only a settled one can be removed"
        }
    }

    /// Why a message was not changed, without a full stop. `record`: what is stored of it; nil if nothing is.
    public func refusal(of record: MessageRecord?) -> String {
        guard let record else { return "there is no such message" }
        guard states.contains(record.state) else { return "the message is \(record.state.name); \(rule)" }
        return switch self {
        case .retry: record.isErased ? "the message was erased" : "the payload of the message is no longer kept"
        case .cancel: "the message is being sent"
        case .purge: "the message has changed meanwhile"
        }
    }
}

extension Outbox {
    /// Does `action` with those of `ids` that allow it, and returns them: those of the queues of a process in one transaction. The
    /// completion runs on the writer's thread after the commit.
    ///
    /// - Parameters:
    ///   - state: The state of messages that are purged; nil means any but `queued`.
    ///   - key: The name of the caller's key, for events.
    public func perform(
        _ action: MessageAction, on ids: [MessageID], in state: MessageState? = nil, by key: String? = nil,
        completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        let here = ids.filter { !mustRelay($0.upstream) }
        guard here.count < ids.count else { return performHere(action, on: ids, in: state, by: key, completion) }
        let owned = Set(here)
        var parts = Dictionary(grouping: ids.filter { !owned.contains($0) }, by: \.upstream)
            .sorted { $0.key.rawValue < $1.key.rawValue }.map { (queue: UpstreamNumber?.some($0.key), ids: $0.value) }
        if !here.isEmpty { parts.insert((nil, here), at: 0) }
        perform(action, onEach: parts[...], in: state, by: key, completion)
    }

    /// One part after the other. `queue`: that to whose owner it is relayed; nil: it is done here.
    private func perform(
        _ action: MessageAction, onEach parts: ArraySlice<(queue: UpstreamNumber?, ids: [MessageID])>,
        in state: MessageState?, by key: String?, after done: [MessageID] = [],
        _ completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        guard let part = parts.first else { return completion(.success(done)) }
        let goOn: @Sendable (Result<[MessageID], StoreError>) -> Void = { [self] result in
            switch result {
            case .success(let more):
                perform(action, onEach: parts.dropFirst(), in: state, by: key, after: done + more, completion)
            case .failure(let error): completion(.failure(error))
            }
        }
        if let queue = part.queue {
            relay(RelayedAction(action: action, ids: part.ids, state: state, key: key), to: queue, completion: goOn)
        } else {
            performHere(action, on: part.ids, in: state, by: key, goOn)
        }
    }

    func performHere(
        _ action: MessageAction, on ids: [MessageID], in state: MessageState?, by key: String?,
        _ completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        switch action {
        case .retry: requeue(ids, by: key, completion: completion)
        case .cancel: cancel(ids, by: key, completion: completion)
        case .purge: purge(ids, in: state, completion: completion)
        }
    }

    /// Deletes settled messages; the ledger still counts them.
    private func purge(
        _ ids: [MessageID], in state: MessageState?,
        completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        writer.change(
            { [self] transaction in
                try ids.filter { id in try names[id.upstream] != nil && transaction.purge(id, in: state) }
            }, completion: completion)
    }

    /// Cancels those of `ids` that are queued and not being sent.
    public func cancel(
        _ ids: [MessageID], by key: String? = nil,
        completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        let now = time.now
        writer.change(
            { [self] transaction in
                transaction.operatorKey = key
                defer { transaction.operatorKey = nil }
                return try ids.filter { id in
                    try target(id.upstream).map { try transaction.cancel(id, in: $0, at: now) } ?? false
                }
            }, completion: completion)
    }

    /// Queues failed or dropped messages again.
    public func requeue(
        _ ids: [MessageID], by key: String? = nil,
        completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        let now = time.now
        writer.change { [self] transaction in
            transaction.operatorKey = key
            defer { transaction.operatorKey = nil }
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

    /// Stores that an upstream is paused; nil: that it is not.
    public func setPause(
        _ pause: Pause?, of number: UpstreamNumber,
        completion: @escaping @Sendable (Result<Void, StoreError>) -> Void
    ) {
        writer.change(
            { transaction in
                try transaction.borrow(number)
                try transaction.sql.run(
                    "UPDATE upstreams SET isPaused = ?, pausedBy = ?, pausedAtMs = ? WHERE number = ?", pause != nil,
                    pause?.key, pause?.at, number)
            }, completion: completion)
    }

    /// Does so for an upstream for which no worker sends, and tells one that has begun to meanwhile.
    public func setPause(_ pause: Pause?, of target: QueueTarget) {
        setPause(pause, of: target.number) { [queues] _ in queues.adopted(target.number)?.paused(pause) }
    }

    /// Makes everything due now in a queue from which no worker sends, stores what the flush covers, and tells a worker
    /// that has begun to send meanwhile. `completion` runs on the writer's thread after that.
    public func flush(_ target: QueueTarget, completion: @escaping @Sendable () -> Void = {}) {
        let now = time.now
        writer.change { transaction in
            try transaction.borrow(target.number)
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
