public import PosternCore

/// Which settled messages are to go.
public struct PurgeWish: Sendable, Equatable {
    public var upstream: UpstreamNumber
    /// Any but `queued`.
    public var state: MessageState
    /// Only those settled before; nil for all.
    public var settledBefore: Timestamp?

    public init(_ state: MessageState, of upstream: UpstreamNumber, settledBefore: Timestamp? = nil) {
        precondition(state != .queued, "what is queued is cancelled, not purged")
        self.upstream = upstream
        self.state = state
        self.settledBefore = settledBefore
    }
}

extension Outbox {
    /// Rows that one transaction looks for; more would keep writes waiting.
    static let rowsPerPurge = 2000

    /// Removes settled messages for good, some thousand in a transaction, and enters them in the books as removed. The
    /// completion says how many; it runs on the writer's thread after the last commit.
    public func purge(_ wish: PurgeWish, completion: @escaping @Sendable (Result<Int, StoreError>) -> Void) {
        purge(wish, after: 0, count: 0, completion)
    }

    private func purge(
        _ wish: PurgeWish, after id: Int64, count: Int,
        _ completion: @escaping @Sendable (Result<Int, StoreError>) -> Void
    ) {
        writer.change { transaction in
            try transaction.purge(wish, after: id, limit: Self.rowsPerPurge)
        } completion: { [self] result in
            switch result {
            case .failure(let error): completion(.failure(error))
            case .success((let gone, nil)): completion(.success(count + gone))
            case .success((let gone, let last?)): purge(wish, after: last, count: count + gone, completion)
            }
        }
    }
}

extension Transaction {
    /// Removes up to `limit` rows with ids above `id`. `last` is where to go on; nil at the end.
    fileprivate func purge(_ wish: PurgeWish, after id: Int64, limit: Int) throws -> (gone: Int, last: Int64?) {
        let before = wish.settledBefore ?? .never
        let ids: [Int64]
        if wish.state == .delivered {
            ids = try sql.all(
                """
                DELETE FROM delivered_# WHERE id IN
                  (SELECT id FROM delivered_# WHERE id > ? AND settledAtMs < ? ORDER BY id LIMIT ?) RETURNING id
                """, of: wish.upstream, id, before, limit
            ) { $0[0] }
        } else {
            ids = try sql.all(
                """
                DELETE FROM ended_# WHERE id IN
                  (SELECT id FROM ended_# WHERE id > ? AND state = ? AND settledAtMs < ? ORDER BY id LIMIT ?) RETURNING id
                """, of: wish.upstream, id, wish.state, before, limit
            ) { $0[0] }
        }
        accounts[wish.upstream].ledger.purge(ids.count, of: wish.state)
        return (ids.count, ids.count == limit ? ids.max() : nil)
    }
}
