public import PosternCore

extension Outbox {
    /// Cancels those of `ids` that are queued and not being sent, all in one transaction; answers which. The completion
    /// runs on the writer's thread after the commit.
    public func cancel(
        _ ids: [MessageID], completion: @escaping @Sendable (Result<[MessageID], StoreError>) -> Void
    ) {
        let now = time.now
        writer.change(
            { [self] transaction in
                try ids.filter { id in
                    try queue(id.upstream).map { try transaction.cancel(id, in: $0, at: now) } ?? false
                }
            }, completion: completion)
    }
}
