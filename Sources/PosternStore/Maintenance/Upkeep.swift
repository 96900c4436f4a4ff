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
    /// The messages up to here are not examined for their age: an operator queued them again.
    private var passedForAge: [UpstreamNumber: MessageID] = [:]
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
            if try purgeDelivered(of: account, before: now - isShort, with: transaction.sql) { hasMore = true }
            if try purgeEnded(of: account, before: now - isLong, with: transaction.sql) { hasMore = true }
            if let queue = outbox.queue(account.number), try expire(from: queue, at: now, in: transaction) {
                hasMore = true
            }
        }
        if try expireState(at: now, with: transaction.sql) { hasMore = true }
        if try forgetCredentials(at: now, with: transaction.sql) { hasMore = true }
        if try purgeAttempts(delivered: now - isShort, others: now - isLong, with: transaction.sql) { hasMore = true }
        let responseLimit = now - outbox.options.idempotencyRetention
        if try purgeResponses(before: responseLimit, with: transaction.sql) { hasMore = true }
        if try shrink(transaction.sql) { hasMore = true }
        return hasMore
    }

    /// Receipts are stored in the order of acceptance, which is nearly that of delivery: the oldest few thousand are
    /// looked at, and those past their time go. A second index, by time, would cost more than it saves.
    private func purgeDelivered(of account: Account, before limit: Timestamp, with sql: SQL) throws -> Bool {
        let gone = try sql.run(
            """
            DELETE FROM delivered_# WHERE id IN (SELECT id FROM
              (SELECT id, settledAtMs FROM delivered_# ORDER BY id LIMIT ?) WHERE settledAtMs < ?)
            """, of: account.number, Self.rowsPerTurn, limit)
        if gone > 0 { account.ledger.purge(gone, of: .delivered) }
        return gone == Self.rowsPerTurn
    }

    private func purgeEnded(of account: Account, before limit: Timestamp, with sql: SQL) throws -> Bool {
        var gone = 0
        try sql.each(
            """
            DELETE FROM ended_# WHERE id IN
              (SELECT id FROM ended_# WHERE settledAtMs < ? ORDER BY settledAtMs LIMIT ?) RETURNING state
            """, of: account.number, limit, Self.heavyRowsPerTurn
        ) { row in
            account.ledger.purge(1, of: row[0])
            gone += 1
        }
        return gone == Self.heavyRowsPerTurn
    }

    /// Messages that are past their own end or have reached the age at which those of their upstream expire, whatever
    /// they wait for. Those that are being sent are left to their attempt.
    private func expire(from queue: UpstreamQueue, at now: Timestamp, in transaction: Transaction) throws -> Bool {
        var ids: [MessageID] = []
        try transaction.sql.walk(
            "SELECT id FROM queue_# WHERE expiresAtMs <= ? ORDER BY expiresAtMs", of: queue.number, now
        ) { row in
            if transaction.tryRemoving(row[0], from: queue) { ids.append(row[0]) }
            return ids.count < Self.heavyRowsPerTurn
        }
        let hasMore = try expire(ids, from: queue, at: now, in: transaction)
        let age = queue.collecting.expireAfter
        guard age > .zero else { return hasMore }
        return try expire(from: queue, acceptedBefore: now - age, at: now, in: transaction) || hasMore
    }

    /// Ids are in the order of acceptance, so the rows in front are the oldest. Those that an operator queued again stay
    /// there, with an end of their own; they are passed over once.
    private func expire(
        from queue: UpstreamQueue, acceptedBefore limit: Timestamp, at now: Timestamp, in transaction: Transaction
    ) throws -> Bool {
        var ids: [MessageID] = []
        var isFront = true
        try transaction.sql.walk(
            "SELECT id, acceptedAtMs, tried & 4 <> 0 FROM queue_# WHERE id > ? ORDER BY id", of: queue.number,
            passedForAge[queue.number] ?? MessageID(rawValue: 0)
        ) { row in
            guard row[1] <= limit else { return false }
            if row[2] {
                if isFront { passedForAge[queue.number] = row[0] as MessageID }
                return true
            }
            isFront = false
            if transaction.tryRemoving(row[0], from: queue) { ids.append(row[0]) }
            return ids.count < Self.heavyRowsPerTurn
        }
        return try expire(ids, from: queue, at: now, in: transaction)
    }

    /// Returns whether there may be more of them.
    private func expire(
        _ ids: [MessageID], from queue: UpstreamQueue, at now: Timestamp, in transaction: Transaction
    ) throws -> Bool {
        for id in ids { try transaction.end(id, in: queue, as: .expired, error: nil, at: now) }
        return ids.count == Self.heavyRowsPerTurn
    }

    /// Deletes expired values, unless their lane still has queued messages: those are checked again later.
    private func expireState(at now: Timestamp, with sql: SQL) throws -> Bool {
        let rows = try sql.all(
            """
            SELECT upstream, key, EXISTS (SELECT 1 FROM lanes
              WHERE lanes.upstream = state.upstream AND lanes.name = state.lane)
            FROM state WHERE expiresAtMs <= ? ORDER BY expiresAtMs LIMIT ?
            """, now, Self.heavyRowsPerTurn
        ) { (upstream: $0[0] as UpstreamNumber, key: $0[1] as String, isNeeded: $0[2] as Bool) }
        for (upstream, key, isNeeded) in rows {
            if isNeeded {
                try sql.run(
                    "UPDATE state SET expiresAtMs = ? WHERE upstream = ? AND key = ?", now + Self.stateRecheck,
                    upstream, key)
            } else {
                try sql.run(
                    "DELETE FROM state WHERE upstream = ? AND (key = ? OR key > ? AND key < ?)", upstream, key,
                    key + "/", key + "0")
            }
        }
        return rows.count == Self.heavyRowsPerTurn
    }

    /// Deletes the values of expired credentials. What remains says that another one is needed.
    private func forgetCredentials(at now: Timestamp, with sql: SQL) throws -> Bool {
        try sql.run(
            """
            UPDATE credentials SET isRefused = 1, keyId = NULL, nonce = NULL, sealed = NULL
            WHERE expiresAtMs <= ? AND isRefused = 0 AND isKept = 0
            """, now)
        try sql.run("DELETE FROM credentials WHERE expiresAtMs <= ? AND isKept = 1", now)
        let forgotten = try sql.run(
            """
            DELETE FROM formerCredentials WHERE (upstream, owner, digest) IN
              (SELECT upstream, owner, digest FROM formerCredentials WHERE atMs < ? ORDER BY atMs LIMIT ?)
            """, now - Self.formerCredentialRetention, Self.rowsPerTurn)
        try sweepMemory(sql)
        return forgotten == Self.rowsPerTurn
    }

    private func sweepMemory(_ sql: SQL) throws {
        let vault = outbox.vault
        guard vault.countInMemory > 0 else { return }
        var inUse: Set<Vault.Place> = []
        try sql.each("SELECT upstream, owner, version FROM credentials WHERE sealed IS NULL AND isRefused = 0") {
            inUse.insert(.init(upstream: $0[0], owner: $0[1], version: $0[2]))
        }
        vault.sweep { inUse.contains($0) }
    }

    /// Attempts that delivered are kept as long as the receipts, others as long as the dead letters. Batches count up
    /// with the time, so both kinds are found in front: the others in front of all, the delivered ones behind those
    /// that were passed over before.
    private func purgeAttempts(delivered: Timestamp, others: Timestamp, with sql: SQL) throws -> Bool {
        let old = try sql.run(
            """
            DELETE FROM attempts WHERE batch IN (SELECT batch FROM
              (SELECT batch, endedAtMs FROM attempts ORDER BY batch LIMIT ?) WHERE endedAtMs < ?)
            """, Self.heavyRowsPerTurn, min(others, delivered))
        var looked = 0
        var gone: [Int64] = []
        try sql.walk(
            "SELECT batch, outcome, endedAtMs FROM attempts WHERE batch > ? ORDER BY batch LIMIT ?", lookedAtBatch,
            Self.heavyRowsPerTurn
        ) { row in
            guard let endedAt = row[2] as Timestamp?, endedAt < delivered else { return false }
            looked += 1
            lookedAtBatch = row[0]
            if row[1] as String == "delivered" { gone.append(lookedAtBatch) }
            return true
        }
        for batch in gone { try sql.run("DELETE FROM attempts WHERE batch = ?", batch) }
        return old == Self.heavyRowsPerTurn || looked == Self.heavyRowsPerTurn
    }

    private func purgeResponses(before limit: Timestamp, with sql: SQL) throws -> Bool {
        let gone = try sql.run(
            """
            DELETE FROM responses WHERE key IN
              (SELECT key FROM responses WHERE createdAtMs <= ? ORDER BY createdAtMs LIMIT ?)
            """, limit, Self.rowsPerTurn)
        return gone == Self.rowsPerTurn
    }

    /// Free pages are used again first; what stays free beyond a quarter of the file is given back.
    private func shrink(_ sql: SQL) throws -> Bool {
        let free = try sql.value("PRAGMA freelist_count", as: Int.self) ?? 0
        let all = try sql.value("PRAGMA page_count", as: Int.self) ?? 0
        // While the disk is full everything is given back, in steps that the log has room for.
        if outbox.isFull {
            guard free > Self.pagesPerTurn else { return false }
            try sql.run("PRAGMA incremental_vacuum(32)")
            return true
        }
        guard free > Self.pagesPerTurn, free > all / 4 else { return false }
        try sql.run("PRAGMA incremental_vacuum(256)")
        return true
    }
}
