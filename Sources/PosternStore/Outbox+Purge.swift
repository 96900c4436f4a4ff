public import PosternCore

/// The settled messages to delete.
public struct PurgeRequest: Sendable, Equatable {
    /// The upstream whose messages are deleted.
    var upstream: UpstreamNumber
    /// Any state except `queued`.
    var state: MessageState
    /// Only messages that were settled before this time; nil means all.
    var settledBefore: Timestamp?

    public init(_ state: MessageState, of upstream: UpstreamNumber, settledBefore: Timestamp? = nil) {
        precondition(state != .queued, "what is queued is cancelled, not purged")
        self.upstream = upstream
        self.state = state
        self.settledBefore = settledBefore
    }
}

extension Outbox {
    /// The maximum number of rows that one transaction deletes; more would delay writes.
    static let rowsPerPurge = 2000

    /// Deletes settled messages, some thousands per transaction, and counts them in the ledger as removed. The
    /// completion gets their number; it runs on the writer's thread after the last commit.
    public func purge(_ request: PurgeRequest, completion: @escaping @Sendable (Result<Int, StoreError>) -> Void) {
        purge(request, after: 0, count: 0, completion)
    }

    private func purge(
        _ request: PurgeRequest, after id: Int64, count: Int,
        _ completion: @escaping @Sendable (Result<Int, StoreError>) -> Void
    ) {
        writer.change { transaction in
            try transaction.purge(request, after: id, limit: Self.rowsPerPurge)
        } completion: { [self] result in
            switch result {
            case .failure(let error): completion(.failure(error))
            case .success((let gone, nil)): completion(.success(count + gone))
            case .success((let gone, let last?)): purge(request, after: last, count: count + gone, completion)
            }
        }
    }
}

extension Transaction {
    /// Deletes up to `limit` rows with ids above `id`. `last` is where to continue; nil at the end.
    fileprivate func purge(_ request: PurgeRequest, after id: Int64, limit: Int) throws -> (gone: Int, last: Int64?) {
        let before = request.settledBefore ?? .never
        let ids: [Int64]
        if request.state == .delivered {
            ids = try sql.all(
                """
                DELETE FROM delivered_# WHERE id IN
                  (SELECT id FROM delivered_# WHERE id > ? AND settledAtMs < ? ORDER BY id LIMIT ?) RETURNING id
                """, of: request.upstream, id, before, limit
            ) { $0[0] }
        } else {
            ids = try sql.all(
                """
                DELETE FROM ended_# WHERE id IN
                  (SELECT id FROM ended_# WHERE id > ? AND state = ? AND settledAtMs < ? ORDER BY id LIMIT ?) RETURNING id
                """, of: request.upstream, id, request.state, before, limit
            ) { $0[0] }
        }
        writeStates[request.upstream].change.purge(ids.count, of: request.state)
        return (ids.count, ids.count == limit ? ids.max() : nil)
    }
}
