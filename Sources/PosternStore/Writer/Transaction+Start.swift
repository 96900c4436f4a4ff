import PosternCore
import PosternUpstream

/// An attempt that was open when the owner of its queue ended.
struct LeftAttempt: Sendable {
    let batch: BatchID
    let upstream: UpstreamNumber
    let startedAt: Timestamp
    let ids: [MessageID]

    static let detail = "the gateway ended before the response arrived"

    /// Those of one upstream, or of all.
    static func all(of number: UpstreamNumber?, with sql: SQL) throws -> [LeftAttempt] {
        // Few are open, so that the others are left out here.
        try sql.all("SELECT batch, upstream, startedAtMs, ids FROM attempts WHERE endedAtMs IS NULL") {
            LeftAttempt(batch: $0[0], upstream: $0[1], startedAt: $0[2], ids: MessageIDList.decode($0[3]))
        }.filter { number == nil || $0.upstream == number }
    }
}

extension Transaction {
    /// Marks messages of an attempt whose outcome is unknown.
    func markInterrupted(_ ids: [MessageID], of attempt: LeftAttempt) throws {
        guard outbox.names[attempt.upstream] != nil else { return }
        // A row that becomes longer may need a page that a full disk does not have.
        let error = AttemptError(.interrupted, detail: LeftAttempt.detail, at: attempt.startedAt)
        let text = outbox.isFull ? nil : JSONRecord.encode(error)
        for id in ids { try giveRow(to: id) }
        try sql.sendEach(
            Statement(
                sqlite: "UPDATE queue_# SET tried = tried | ?, lastError = coalesce(lastError, ?) WHERE id = ?",
                postgres: "UPDATE queue_# SET tried = tried | ?, lastError = coalesce(lastError, ?) WHERE id = ANY (?)"),
            of: attempt.upstream, MessageFlags.mayHaveArrived, text, for: ids)
        // It may be the first of several requests of the message.
        guard attempt.ids.count == 1, let id = ids.first else { return }
        try sql.run(
            """
            UPDATE queue_# SET progress = coalesce(progress, ?1),
              nextAttemptAtMs = CASE WHEN waiting = ?2 THEN NULL ELSE nextAttemptAtMs END,
              waiting = CASE WHEN waiting = ?2 THEN 0 ELSE waiting END
            WHERE id = ?3
            """, of: attempt.upstream, [] as [UInt8], QueueColumn.scheduled, id)
    }

    /// Ends an attempt whose messages are marked.
    func close(_ attempt: LeftAttempt) throws {
        if outbox.names[attempt.upstream] != nil { writeStates[attempt.upstream].change.ambiguousSends += 1 }
        try sql.run(
            "UPDATE attempts SET endedAtMs = startedAtMs, outcome = ?, detail = ? WHERE batch = ?",
            Settlement.Outcome.unknown.rawValue, LeftAttempt.detail, attempt.batch)
    }
}
