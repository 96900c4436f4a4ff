import GRDB
import PosternCore

/// The small jobs next to accepting and delivering: retention, expiry, shrinking the file. Each turn does a little, on
/// the writer's connection, so that no write waits long for it.
final class Upkeep: @unchecked Sendable {
    // @unchecked: lives on the writer's thread alone.

    /// Between two turns, when one has done all there was to do.
    static let interval = Duration.seconds(1)
    /// Between two turns, when there is more to do: 40 000 rows a second.
    static let pause = Duration.milliseconds(50)
    /// Rows a turn removes at most, per table.
    static let rowsPerTurn = 2000
    /// Rows with a payload.
    static let heavyRowsPerTurn = 200
    /// When to look again at a value that had expired but was still needed.
    static let stateRecheck = Duration.seconds(60)
    /// How long it is remembered, by digest, which credentials an owner has had.
    static let formerCredentialRetention = Duration.seconds(30 * 86400)
    /// Pages a turn gives back to the file system at most.
    static let pagesPerTurn = 256

    private unowned let outbox: Outbox
    /// Attempts up to here were looked at; those that are kept longer than the delivered ones lie behind.
    private var lookedAtBatch: Int64 = 0

    init(outbox: Outbox) { self.outbox = outbox }

    /// One turn. True when it left something to do.
    func run(in transaction: Transaction) throws -> Bool {
        let now = outbox.time.now
        let isShort = outbox.options.deliveredRetention
        let isLong = outbox.options.failedRetention
        var hasMore = false
        for account in transaction.accounts.open {
            if try purgeDelivered(of: account, before: now - isShort, in: transaction.db) { hasMore = true }
            if try purgeEnded(of: account, before: now - isLong, in: transaction.db) { hasMore = true }
            if let queue = outbox.queue(account.number), try expire(from: queue, at: now, in: transaction) {
                hasMore = true
            }
        }
        if try expireState(at: now, in: transaction.db) { hasMore = true }
        if try forgetCredentials(at: now, in: transaction.db) { hasMore = true }
        if try purgeAttempts(delivered: now - isShort, others: now - isLong, in: transaction.db) { hasMore = true }
        if try shrink(transaction.db) { hasMore = true }
        return hasMore
    }

    /// Receipts are stored in the order of acceptance, which is nearly that of delivery: the oldest few thousand are
    /// looked at, and those past their time go. A second index, by time, would cost more than it saves.
    private func purgeDelivered(of account: Account, before limit: Timestamp, in db: Database) throws -> Bool {
        let table = "delivered_\(account.number.rawValue)"
        try db.cachedStatement(
            sql: """
                DELETE FROM \(table) WHERE id IN (SELECT id FROM
                  (SELECT id, settledAtMs FROM \(table) ORDER BY id LIMIT ?) WHERE settledAtMs < ?)
                """
        ).execute(arguments: [Self.rowsPerTurn, limit.milliseconds])
        let gone = db.changesCount
        if gone > 0 { account.ledger.purge(gone, of: .delivered) }
        return gone == Self.rowsPerTurn
    }

    private func purgeEnded(of account: Account, before limit: Timestamp, in db: Database) throws -> Bool {
        let table = "ended_\(account.number.rawValue)"
        let rows = try Row.fetchAll(
            db.cachedStatement(
                sql: "SELECT id, state FROM \(table) WHERE settledAtMs < ? ORDER BY settledAtMs LIMIT ?"),
            arguments: [limit.milliseconds, Self.heavyRowsPerTurn])
        let remove = try db.cachedStatement(sql: "DELETE FROM \(table) WHERE id = ?")
        for row in rows {
            try remove.execute(arguments: [row["id"] as Int64])
            guard let state = MessageState(rawValue: row["state"]) else { continue }
            account.ledger.purge(1, of: state)
        }
        return rows.count == Self.heavyRowsPerTurn
    }

    /// Messages that are past their own end or have reached the age at which those of their upstream expire, whatever
    /// they wait for. Those that are being sent are left to their attempt.
    private func expire(from queue: UpstreamQueue, at now: Timestamp, in transaction: Transaction) throws -> Bool {
        let table = "queue_\(queue.number.rawValue)"
        let byTime = try transaction.db.cachedStatement(
            sql: "SELECT id FROM \(table) WHERE expiresAtMs <= ? ORDER BY expiresAtMs")
        byTime.bind(now.milliseconds, at: 1)
        let hasMore = try expire(from: queue, at: now, in: transaction, foundBy: byTime) { _ in true }
        let age = queue.collecting.expireAfter
        guard age > .zero else { return hasMore }
        let limit = (now - age).milliseconds
        // Ids are in the order of acceptance, so the rows in front are the oldest.
        let byAge = try transaction.db.cachedStatement(sql: "SELECT id, acceptedAtMs FROM \(table) ORDER BY id")
        return try expire(from: queue, at: now, in: transaction, foundBy: byAge) { $0.integer(1) <= limit } || hasMore
    }

    /// Expires what the statement finds until `hasExpired` says no. True when there may be more of it.
    private func expire(
        from queue: UpstreamQueue, at now: Timestamp, in transaction: Transaction, foundBy statement: Statement,
        _ hasExpired: (borrowing SQLiteRow) -> Bool
    ) throws -> Bool {
        var ids: [MessageID] = []
        try statement.forEachRow(in: transaction.db) { row in
            guard hasExpired(row) else { return false }
            let id = MessageID(rawValue: row.integer(0))
            if transaction.tryRemoving(id, from: queue) { ids.append(id) }
            return ids.count < Self.heavyRowsPerTurn
        }
        for id in ids { try transaction.end(id, in: queue, as: .expired, error: nil, at: now) }
        return ids.count == Self.heavyRowsPerTurn
    }

    /// Values that are of no use any more, unless their lane still has something queued: those are looked at again
    /// later.
    private func expireState(at now: Timestamp, in db: Database) throws -> Bool {
        let rows = try Row.fetchAll(
            db.cachedStatement(
                sql: """
                    SELECT upstream, key, EXISTS (SELECT 1 FROM lanes
                      WHERE lanes.upstream = state.upstream AND lanes.name = state.lane) AS isNeeded
                    FROM state WHERE expiresAtMs <= ? ORDER BY expiresAtMs LIMIT ?
                    """), arguments: [now.milliseconds, Self.heavyRowsPerTurn])
        for row in rows {
            let key: String = row["key"]
            let place: StatementArguments = [row["upstream"] as Int, key]
            if row["isNeeded"] {
                try db.cachedStatement(sql: "UPDATE state SET expiresAtMs = ? WHERE upstream = ? AND key = ?")
                    .execute(arguments: [(now + Self.stateRecheck).milliseconds] + place)
            } else {
                try db.cachedStatement(
                    sql: "DELETE FROM state WHERE upstream = ? AND (key = ? OR key > ? AND key < ?)"
                ).execute(arguments: place + [key + "/", key + "0"])
            }
        }
        return rows.count == Self.heavyRowsPerTurn
    }

    /// A credential that has expired is of no use to anybody; what is left of it says that another one is needed.
    private func forgetCredentials(at now: Timestamp, in db: Database) throws -> Bool {
        try db.cachedStatement(
            sql: """
                UPDATE credentials SET isRefused = 1, keyId = NULL, nonce = NULL, sealed = NULL
                WHERE expiresAtMs <= ? AND isRefused = 0 AND isKept = 0
                """
        ).execute(arguments: [now.milliseconds])
        try db.cachedStatement(sql: "DELETE FROM credentials WHERE expiresAtMs <= ? AND isKept = 1")
            .execute(arguments: [now.milliseconds])
        try db.cachedStatement(
            sql: """
                DELETE FROM formerCredentials WHERE (upstream, owner, digest) IN
                  (SELECT upstream, owner, digest FROM formerCredentials WHERE atMs < ? ORDER BY atMs LIMIT ?)
                """
        ).execute(arguments: [(now - Self.formerCredentialRetention).milliseconds, Self.rowsPerTurn])
        let hasMore = db.changesCount == Self.rowsPerTurn
        try sweepMemory(db)
        return hasMore
    }

    private func sweepMemory(_ db: Database) throws {
        let vault = outbox.vault
        guard vault.countInMemory > 0 else { return }
        var inUse: Set<Vault.Place> = []
        let rows = try Row.fetchCursor(
            db.cachedStatement(
                sql: "SELECT upstream, owner, version FROM credentials WHERE sealed IS NULL AND isRefused = 0"))
        while let row = try rows.next() {
            inUse.insert(
                .init(upstream: UpstreamNumber(rawValue: row["upstream"]), owner: row["owner"], version: row["version"])
            )
        }
        vault.sweep { inUse.contains($0) }
    }

    /// Attempts that delivered are kept as long as the receipts, others as long as the dead letters. Batches count up
    /// with the time, so both kinds are found in front: the others in front of all, the delivered ones behind those
    /// that were passed over before.
    private func purgeAttempts(delivered: Timestamp, others: Timestamp, in db: Database) throws -> Bool {
        try db.cachedStatement(
            sql: """
                DELETE FROM attempts WHERE batch IN (SELECT batch FROM
                  (SELECT batch, endedAtMs FROM attempts ORDER BY batch LIMIT ?) WHERE endedAtMs < ?)
                """
        ).execute(arguments: [Self.heavyRowsPerTurn, min(others, delivered).milliseconds])
        let old = db.changesCount
        var looked = 0
        let rows = try Row.fetchCursor(
            db.cachedStatement(
                sql: "SELECT batch, outcome, endedAtMs FROM attempts WHERE batch > ? ORDER BY batch LIMIT ?"),
            arguments: [lookedAtBatch, Self.heavyRowsPerTurn])
        var gone: [Int64] = []
        while let row = try rows.next() {
            guard let endedAt = row["endedAtMs"] as Int64?, endedAt < delivered.milliseconds else { break }
            looked += 1
            lookedAtBatch = row["batch"]
            if row["outcome"] as String? == "delivered" { gone.append(row["batch"]) }
        }
        let remove = try db.cachedStatement(sql: "DELETE FROM attempts WHERE batch = ?")
        for batch in gone { try remove.execute(arguments: [batch]) }
        return old == Self.heavyRowsPerTurn || looked == Self.heavyRowsPerTurn
    }

    /// Free pages are used again first; what stays free beyond a quarter of the file is given back.
    private func shrink(_ db: Database) throws -> Bool {
        let free = try Int.fetchOne(db.cachedStatement(sql: "PRAGMA freelist_count")) ?? 0
        let all = try Int.fetchOne(db.cachedStatement(sql: "PRAGMA page_count")) ?? 0
        guard free > Self.pagesPerTurn, free > all / 4 else { return false }
        _ = try Row.fetchAll(db, sql: "PRAGMA incremental_vacuum(\(Self.pagesPerTurn))")
        return true
    }
}
