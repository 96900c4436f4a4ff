import GRDB
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
        let number = wish.upstream.rawValue
        let table = wish.state == .delivered ? "delivered_\(number)" : "ended_\(number)"
        var condition = "id > :after"
        var arguments: StatementArguments = ["after": id, "limit": limit]
        if wish.state != .delivered {
            condition += " AND state = :state"
            arguments += ["state": wish.state.rawValue]
        }
        if let before = wish.settledBefore {
            condition += " AND settledAtMs < :before"
            arguments += ["before": before.milliseconds]
        }
        let ids = try Int64.fetchAll(
            db, sql: "SELECT id FROM \(table) WHERE \(condition) ORDER BY id LIMIT :limit", arguments: arguments)
        let delete = try db.cachedStatement(sql: "DELETE FROM \(table) WHERE id = ?")
        for id in ids { try delete.execute(arguments: [id]) }
        accounts[wish.upstream].ledger.purge(ids.count, of: wish.state)
        return (ids.count, ids.count == limit ? ids.last : nil)
    }
}
