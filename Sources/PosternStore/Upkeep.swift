import GRDB
import PosternCore

/// The small jobs beside accepting and delivering: retention, expiry, shrinking the file. Each turn does a little, on
/// the writer's connection, so that no write waits long for it.
final class Upkeep: @unchecked Sendable {
    // @unchecked: lives on the writer's thread alone.
    static let interval = Duration.seconds(1)
    /// Rows a turn removes at most, per table.
    private static let rowsPerTurn = 2000
    /// Pages a turn gives back to the file system at most.
    private static let pagesPerTurn = 256

    private unowned let outbox: Outbox
    init(outbox: Outbox) { self.outbox = outbox }

    func run(in transaction: Transaction) throws {
        let now = outbox.time.now
        for number in transaction.ledgers.keys {
            try purgeDelivered(of: number, before: now - outbox.options.deliveredRetention, in: transaction)
            try purgeEnded(of: number, before: now - outbox.options.failedRetention, in: transaction)
            try expire(in: number, at: now, in: transaction)
        }
        try purgeAttempts(at: now, in: transaction)
        try shrink(transaction.db)
    }

    func afterCommit() { outbox.lookForRoom() }

    /// Receipts are stored in the order of acceptance, which is nearly that of delivery: the oldest few thousand are
    /// looked at, and those past their time go. A second index, by time, would cost more than it saves.
    private func purgeDelivered(
        of number: UpstreamNumber, before limit: Timestamp, in transaction: Transaction
    ) throws {
        let table = "delivered_\(number.rawValue)"
        try transaction.db.execute(
            sql: """
                DELETE FROM \(table) WHERE id IN (SELECT id FROM
                  (SELECT id, settledAtMs FROM \(table) ORDER BY id LIMIT ?) WHERE settledAtMs < ?)
                """, arguments: [Self.rowsPerTurn, limit.milliseconds])
        let gone = transaction.db.changesCount
        if gone > 0 { transaction.ledger(number) { $0.purge(gone, of: .delivered) } }
    }

    private func purgeEnded(of number: UpstreamNumber, before limit: Timestamp, in transaction: Transaction) throws {
        let table = "ended_\(number.rawValue)"
        let rows = try Row.fetchAll(
            transaction.db, sql: "SELECT id, state FROM \(table) WHERE settledAtMs < ? ORDER BY settledAtMs LIMIT ?",
            arguments: [limit.milliseconds, Self.rowsPerTurn / 10])
        for row in rows {
            try transaction.db.execute(sql: "DELETE FROM \(table) WHERE id = ?", arguments: [row["id"] as Int64])
            guard let state = MessageState(rawValue: row["state"]) else { continue }
            transaction.ledger(number) { $0.purge(1, of: state) }
        }
    }

    /// Messages with an end of their own; those of `expireAfterSeconds` are settled when they are claimed.
    private func expire(in number: UpstreamNumber, at now: Timestamp, in transaction: Transaction) throws {
        guard let queue = outbox.queue(number) else { return }
        let ids = try Int64.fetchAll(
            transaction.db,
            sql: "SELECT id FROM queue_\(number.rawValue) WHERE expiresAtMs <= ? ORDER BY expiresAtMs LIMIT ?",
            arguments: [now.milliseconds, Self.rowsPerTurn / 10])
        for id in ids.map(MessageID.init(rawValue:)) where transaction.tryRemoving(id, from: queue) {
            try transaction.end(id, in: queue, as: .expired, error: nil, at: now)
        }
    }

    private func purgeAttempts(at now: Timestamp, in transaction: Transaction) throws {
        let delivered = now - outbox.options.deliveredRetention
        let others = now - outbox.options.failedRetention
        try transaction.db.execute(
            sql: """
                DELETE FROM attempts WHERE batch IN (SELECT batch FROM
                  (SELECT batch, outcome, endedAtMs FROM attempts ORDER BY batch LIMIT ?)
                  WHERE endedAtMs < ? AND (outcome = 'delivered' OR endedAtMs < ?))
                """, arguments: [Self.rowsPerTurn, delivered.milliseconds, others.milliseconds])
    }

    /// Free pages are used again first; what stays free beyond a quarter of the file is given back.
    private func shrink(_ db: Database) throws {
        let free = try Int.fetchOne(db, sql: "PRAGMA freelist_count") ?? 0
        let all = try Int.fetchOne(db, sql: "PRAGMA page_count") ?? 0
        guard free > 256, free > all / 4 else { return }
        _ = try Row.fetchAll(db, sql: "PRAGMA incremental_vacuum(\(Self.pagesPerTurn))")
    }
}
