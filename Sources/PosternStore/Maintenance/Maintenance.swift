import PosternCore

/// Maintenance of the store: retention, expiry, unused space. Each turn does little, on the writer's connection,
/// so that no write waits long for it.
final class Maintenance: @unchecked Sendable {
    // @unchecked: belongs to the writer's thread.

    /// The time between two turns if there is nothing more to do.
    static let interval = Duration.seconds(1)
    /// The time between two turns if there is more to do: 40,000 rows per second.
    static let pause = Duration.milliseconds(50)
    /// The maximum number of rows that a turn removes, per table.
    static let rowsPerTurn = 2000
    /// The maximum number of receipts of blocks that a turn removes.
    static let blocksPerTurn = 500
    /// The maximum number of rows with a payload.
    static let heavyRowsPerTurn = 200
    /// When to check again a value that has expired but is still needed.
    static let stateRecheck = Duration.seconds(60)
    /// How long the digests of an owner's previous credentials are kept.
    static let formerCredentialRetention = Duration.seconds(30 * 86400)

    private unowned let outbox: Outbox
    /// Messages up to this one are not examined for their age, because an operator queued them again.
    private var passedForAge: [UpstreamNumber: MessageID] = [:]
    /// Attempts up to this one were examined; they are kept longer than those that delivered.
    private var lookedAtBatch: Int64 = 0
    /// When something in each table can be old enough to be removed.
    private var dueAt: [Kept: Timestamp] = [:]
    /// The time of the last turn.
    private var lastTurn = Timestamp(milliseconds: 0)
    /// Whether the last turn may have been undone. What it removed is there again then.
    private var isUncommitted = false

    /// What is removed when it has a certain age.
    private enum Kept: Hashable {
        case delivered(UpstreamNumber)
        case ended(UpstreamNumber)
        case payloads(UpstreamNumber)
        case attempts
        case responses
        case replays
    }

    init(outbox: Outbox) { self.outbox = outbox }

    /// One turn. Returns true if there is more to do.
    func run(in transaction: Transaction) throws -> Bool {
        let now = outbox.time.now
        // What has been stored since a clock was set back is older than what was the oldest.
        if now < lastTurn { dueAt = [:] }
        if isUncommitted { (dueAt, lookedAtBatch) = ([:], 0) }
        (lastTurn, isUncommitted) = (now, true)
        let mayExpire = outbox.callbacks != nil
        var hasMore = false
        for writeState in transaction.writeStates.open where outbox.isResponsible(for: writeState.number) {
            if try purgeDelivered(of: writeState, at: now, with: transaction.sql) { hasMore = true }
            if try purgeEnded(of: writeState, at: now, with: transaction.sql) { hasMore = true }
            if try purgePayloads(of: writeState.number, at: now, with: transaction.sql) { hasMore = true }
            if mayExpire, let queue = outbox.target(writeState.number),
                try expire(from: queue, at: now, in: transaction)
            {
                hasMore = true
            }
        }
        if try expireState(at: now, with: transaction.sql) { hasMore = true }
        if try forgetCredentials(at: now, with: transaction.sql) { hasMore = true }
        guard outbox.isKeeper else { return hasMore }
        if try purgeAttempts(at: now, in: transaction) { hasMore = true }
        if try purgeResponses(at: now, with: transaction.sql) { hasMore = true }
        if try purgeReplays(at: now, with: transaction.sql) { hasMore = true }
        if try transaction.writer.shrink(transaction.sql) { hasMore = true }
        return hasMore
    }

    func didCommit() { isUncommitted = false }

    // MARK: Retention

    private func isDue(_ kept: Kept, at now: Timestamp) -> Bool { dueAt[kept].map { $0 <= now } ?? true }

    /// Nothing is removed before the oldest is old enough. What is stored from now on is not older than `now`.
    private func wait(for kept: Kept, oldest: Timestamp?, at now: Timestamp, _ retention: Duration) {
        dueAt[kept] = (oldest ?? now) + retention
    }

    /// Receipts are stored in the order of acceptance, which is nearly that of delivery: the oldest few thousand are
    /// examined, and those past their retention are deleted. A second index, by time, would cost more than it saves.
    private func purgeDelivered(of writeState: UpstreamWriteState, at now: Timestamp, with sql: SQL) throws -> Bool {
        let retention = outbox.options.deliveredRetention
        guard isDue(.delivered(writeState.number), at: now) else { return false }
        let gone = try sql.run(
            """
            DELETE FROM delivered_# WHERE id IN (SELECT id FROM
              (SELECT id, settledAtMs FROM delivered_# ORDER BY id LIMIT ?) AS first WHERE settledAtMs < ?)
            """, of: writeState.number, Self.rowsPerTurn, now - retention)
        var (blocks, goneInBlocks) = (0, 0)
        try sql.each(
            """
            DELETE FROM receipts_# WHERE first IN (SELECT first FROM
              (SELECT first, settledAtMs FROM receipts_# ORDER BY first LIMIT ?) AS oldest WHERE settledAtMs < ?)
            RETURNING count
            """, of: writeState.number, Self.blocksPerTurn, now - retention
        ) { row in
            blocks += 1
            goneInBlocks += row[0]
        }
        if gone + goneInBlocks > 0 { writeState.change.purge(gone + goneInBlocks, of: .delivered) }
        guard gone < Self.rowsPerTurn, blocks < Self.blocksPerTurn else { return true }
        let oldest = try sql.value(
            """
            SELECT min(settledAtMs) FROM (
              SELECT settledAtMs FROM (SELECT settledAtMs FROM delivered_# ORDER BY id LIMIT ?1) AS first
              UNION ALL SELECT settledAtMs FROM (SELECT settledAtMs FROM receipts_# ORDER BY first LIMIT ?1) AS first) AS oldest
            """, of: writeState.number, Self.rowsPerTurn, as: Timestamp?.self
        ).flatMap(\.self)
        if let oldest, oldest > now {
            // They are of a clock that was ahead, and would keep those behind them for as long as it was.
            try sql.run(
                "UPDATE delivered_# SET settledAtMs = ? WHERE id IN (SELECT id FROM delivered_# ORDER BY id LIMIT ?)",
                of: writeState.number, now, Self.rowsPerTurn)
            try sql.run(
                """
                UPDATE receipts_# SET settledAtMs = ?
                WHERE first IN (SELECT first FROM receipts_# ORDER BY first LIMIT ?)
                """, of: writeState.number, now, Self.rowsPerTurn)
        }
        wait(for: .delivered(writeState.number), oldest: min(oldest ?? now, now), at: now, retention)
        return false
    }

    private func purgeEnded(of writeState: UpstreamWriteState, at now: Timestamp, with sql: SQL) throws -> Bool {
        let retention = outbox.options.failedRetention
        guard isDue(.ended(writeState.number), at: now) else { return false }
        var gone = 0
        try sql.each(
            """
            DELETE FROM ended_# WHERE id IN
              (SELECT id FROM ended_# WHERE settledAtMs < ? ORDER BY settledAtMs LIMIT ?) RETURNING state
            """, of: writeState.number, now - retention, Self.heavyRowsPerTurn
        ) { row in
            writeState.change.purge(1, of: row[0])
            gone += 1
        }
        guard gone < Self.heavyRowsPerTurn else { return true }
        let oldest = try sql.value(
            "SELECT settledAtMs FROM ended_# ORDER BY settledAtMs LIMIT 1", of: writeState.number, as: Timestamp.self)
        wait(for: .ended(writeState.number), oldest: oldest, at: now, retention)
        return false
    }

    /// Removes payloads of delivered messages: those that are old enough, and on a full disk all of them.
    private func purgePayloads(of number: UpstreamNumber, at now: Timestamp, with sql: SQL) throws -> Bool {
        let (retention, isFull) = (outbox.options.deliveredPayloadRetention, outbox.isFull)
        guard isFull || isDue(.payloads(number), at: now) else { return false }
        let most = isFull ? outbox.engine.messagesPerCommitWhenFull : Self.heavyRowsPerTurn
        let gone = try sql.run(
            """
            DELETE FROM payloads_# WHERE first IN
              (SELECT first FROM payloads_# WHERE settledAtMs < ? ORDER BY settledAtMs LIMIT ?)
            """, of: number, isFull ? .never : now - retention, most)
        guard gone < most else { return true }
        let oldest = try sql.value(
            "SELECT settledAtMs FROM payloads_# ORDER BY settledAtMs LIMIT 1", of: number, as: Timestamp.self)
        wait(for: .payloads(number), oldest: oldest, at: now, retention)
        // None is kept in this run.
        if oldest == nil, retention == .zero { dueAt[.payloads(number)] = .never }
        return false
    }

    /// Forgets of which messages others were copies once these are gone, and after that replays that ended long ago.
    private func purgeReplays(at now: Timestamp, with sql: SQL) throws -> Bool {
        guard outbox.hasReplays, isDue(.replays, at: now) else { return false }
        var gone: [MessageID] = []
        try sql.walk("SELECT id FROM replayed ORDER BY id LIMIT ?", Self.rowsPerTurn) { row in
            let id: MessageID = row[0]
            let isKept = try sql.exists(
                """
                SELECT 1 FROM queued_# WHERE id = ?1 UNION ALL SELECT 1 FROM received_# WHERE id = ?1
                UNION ALL SELECT 1 FROM ended_# WHERE id = ?1
                """, of: id.upstream, id)
            if !isKept { gone.append(id) }
            return !isKept
        }
        if let last = gone.last { try sql.run("DELETE FROM replayed WHERE id <= ?", last) }
        guard gone.count < Self.rowsPerTurn else { return true }
        try sql.run(
            """
            DELETE FROM replays WHERE finishedAtMs < ? AND NOT EXISTS
              (SELECT 1 FROM replayed WHERE replay = number)
            """, now - outbox.options.failedRetention)
        dueAt[.replays] = now + Self.stateRecheck
        return false
    }

    /// Ends messages that are past their own expiry or have reached the age at which those of their upstream expire,
    /// whatever they wait for. Messages that are being sent are not affected.
    private func expire(from queue: QueueTarget, at now: Timestamp, in transaction: Transaction) throws -> Bool {
        var ids: [MessageID] = []
        try transaction.sql.walk(
            "SELECT id FROM queue_# WHERE expiresAtMs <= ? ORDER BY expiresAtMs", of: queue.number, now
        ) { row in
            if try transaction.tryRemoving(row[0], from: queue) { ids.append(row[0]) }
            return ids.count < Self.heavyRowsPerTurn
        }
        let hasMore = try expire(ids, from: queue, at: now, in: transaction)
        let age = queue.collecting.expireAfter
        guard age > .zero else { return hasMore }
        return try expire(from: queue, acceptedBefore: now - age, at: now, in: transaction) || hasMore
    }

    /// Ids are in the order of acceptance, so the rows in front are the oldest. Those that an operator queued again
    /// stay there, with their own expiry; they are skipped once.
    private func expire(
        from queue: QueueTarget, acceptedBefore limit: Timestamp, at now: Timestamp, in transaction: Transaction
    ) throws -> Bool {
        var ids: [MessageID] = []
        var isFront = true
        try transaction.sql.walk(
            "SELECT id, acceptedAtMs, tried FROM queued_# WHERE id > ? ORDER BY id", of: queue.number,
            passedForAge[queue.number] ?? MessageID(rawValue: 0)
        ) { row in
            guard row[1] <= limit else { return false }
            if (row[2] as MessageFlags).contains(.wasRequeued) {
                if isFront { passedForAge[queue.number] = row[0] as MessageID }
                return true
            }
            isFront = false
            if try transaction.tryRemoving(row[0], from: queue) { ids.append(row[0]) }
            return ids.count < Self.heavyRowsPerTurn
        }
        return try expire(ids, from: queue, at: now, in: transaction)
    }

    /// Returns whether there may be more of them.
    private func expire(
        _ ids: [MessageID], from queue: QueueTarget, at now: Timestamp, in transaction: Transaction
    ) throws -> Bool {
        for id in ids { try transaction.end(id, in: queue, as: .expired, error: nil, at: now) }
        return ids.count == Self.heavyRowsPerTurn
    }

    /// Deletes expired values, unless their lane still has queued messages: those are checked again later.
    private func expireState(at now: Timestamp, with sql: SQL) throws -> Bool {
        let rows = try sql.all(
            Statement(
                sqlite: """
                    SELECT upstream, key, lane FROM state WHERE ?3 IS NULL AND expiresAtMs <= ?1 ORDER BY expiresAtMs LIMIT ?2
                    """,
                postgres: """
                    SELECT upstream, key, lane FROM state WHERE upstream IN (SELECT number FROM queues WHERE owner = ?3)
                      AND expiresAtMs <= ?1 ORDER BY expiresAtMs LIMIT ?2
                    """), now, Self.heavyRowsPerTurn, outbox.engine.node
        ) { (upstream: $0[0] as UpstreamNumber, key: $0[1] as String, lane: $0[2] as String?) }
        for (upstream, key, lane) in rows {
            let state = StoredState(upstream: upstream, sql: sql, vault: outbox.vault)
            if let lane, try state.queued(inLane: lane, atMost: 1) > 0 {
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

    /// Deletes the values of expired credentials. The remaining row records that a new one is needed.
    private func forgetCredentials(at now: Timestamp, with sql: SQL) throws -> Bool {
        let node = outbox.engine.node
        try sql.run(
            Statement(
                sqlite: """
                    UPDATE credentials SET isRefused = TRUE, keyId = NULL, nonce = NULL, sealed = NULL
                    WHERE ?2 IS NULL AND expiresAtMs <= ?1 AND NOT isRefused AND NOT isKept
                    """,
                postgres: """
                    UPDATE credentials SET isRefused = TRUE, keyId = NULL, nonce = NULL, sealed = NULL
                    WHERE upstream IN (SELECT number FROM queues WHERE owner = ?2)
                      AND expiresAtMs <= ?1 AND NOT isRefused AND NOT isKept
                    """), now, node)
        try sql.run(
            Statement(
                sqlite: "DELETE FROM credentials WHERE ?2 IS NULL AND expiresAtMs <= ?1 AND isKept",
                postgres: """
                    DELETE FROM credentials
                    WHERE upstream IN (SELECT number FROM queues WHERE owner = ?2) AND expiresAtMs <= ?1 AND isKept
                    """), now, node)
        let forgotten = try sql.run(
            """
            DELETE FROM formerCredentials WHERE (upstream, owner, digest) IN
              (SELECT upstream, owner, digest FROM formerCredentials WHERE atMs < ? ORDER BY atMs LIMIT ?)
            """, now - Self.formerCredentialRetention, Self.rowsPerTurn)
        return forgotten == Self.rowsPerTurn
    }

    /// Attempts that delivered are kept as long as the receipts, others as long as the dead letters. Batch numbers grow
    /// with time, so both kinds are found at the front: the others before all, and the delivered ones after those that
    /// were skipped before.
    private func purgeAttempts(at now: Timestamp, in transaction: Transaction) throws -> Bool {
        guard isDue(.attempts, at: now) else { return false }
        let sql = transaction.sql
        let (short, long) = (
            outbox.options.deliveredRetention, max(outbox.options.deliveredRetention, outbox.options.failedRetention)
        )
        let old = try sql.run(
            """
            DELETE FROM attempts WHERE batch IN (SELECT batch FROM
              (SELECT batch, endedAtMs FROM attempts ORDER BY batch LIMIT ?) AS first WHERE endedAtMs < ?)
            """, Self.heavyRowsPerTurn, now - long)
        // Those of a clock that was ahead would keep the ones behind them for as long as it was.
        try sql.run(
            """
            UPDATE attempts SET endedAtMs = ?1 WHERE endedAtMs > ?1 AND batch IN
              (SELECT batch FROM attempts WHERE batch > ?2 ORDER BY batch LIMIT ?3)
            """, now, lookedAtBatch, Self.heavyRowsPerTurn)
        var looked = 0
        /// When the first of those ended that are too young.
        var next: Timestamp?
        var gone: [Int64] = []
        try sql.walk(
            "SELECT batch, outcome, endedAtMs FROM attempts WHERE batch > ? ORDER BY batch LIMIT ?", lookedAtBatch,
            Self.heavyRowsPerTurn
        ) { row in
            guard let endedAt = row[2] as Timestamp?, endedAt < now - short else {
                next = row[2]
                return false
            }
            looked += 1
            lookedAtBatch = row[0]
            if row[1] as String == "delivered" { gone.append(lookedAtBatch) }
            return true
        }
        for batch in gone { try sql.run("DELETE FROM attempts WHERE batch = ?", batch) }
        if old > 0 || !gone.isEmpty { try transaction.writer.keepBatch(in: sql) }
        guard old < Self.heavyRowsPerTurn, looked < Self.heavyRowsPerTurn else { return true }
        let oldest = try sql.value(
            "SELECT min(endedAtMs) FROM (SELECT endedAtMs FROM attempts ORDER BY batch LIMIT ?) AS first",
            Self.heavyRowsPerTurn, as: Timestamp?.self)
        dueAt[.attempts] = min((oldest.flatMap(\.self) ?? now) + long, (next ?? now) + short)
        return false
    }

    private func purgeResponses(at now: Timestamp, with sql: SQL) throws -> Bool {
        let retention = outbox.options.idempotencyRetention
        guard isDue(.responses, at: now) else { return false }
        // Those of a clock that was ahead would be repeated for as long as it was.
        try sql.run("UPDATE responses SET createdAtMs = ?1 WHERE createdAtMs > ?1", now)
        let gone = try sql.run(
            """
            DELETE FROM responses WHERE key IN
              (SELECT key FROM responses WHERE createdAtMs <= ? ORDER BY createdAtMs LIMIT ?)
            """, now - retention, Self.rowsPerTurn)
        guard gone < Self.rowsPerTurn else { return true }
        let oldest = try sql.value(
            "SELECT createdAtMs FROM responses ORDER BY createdAtMs LIMIT 1", as: Timestamp.self)
        wait(for: .responses, oldest: oldest, at: now, retention)
        return false
    }
}
