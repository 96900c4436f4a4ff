import PosternCore
import PosternUpstream

extension Transaction {
    /// What PostgreSQL does when messages are delivered: nothing is stored in blocks there, and one statement replaces the rows of all
    /// messages by their receipts.
    func deliverRows(
        _ messages: [Message], of queue: QueueTarget, result: [UInt8]?, at moment: Timestamp,
        with postgres: PostgresStatements
    ) throws {
        guard !messages.isEmpty else { return }
        var ids = PostgresArray.bigint
        for index in messages.indices { ids.append(messages[index].id.rawValue) }
        if outbox.keepsPayloads {
            var values = PostgresValues()
            moment.add(to: &values)
            values.add(MessageFlags.isCallback.rawValue)
            values.add(ids)
            try postgres.send(Self.keepPayloads, of: queue.number, values)
        }
        var values = PostgresValues()
        if outbox.keepsDelivered {
            moment.add(to: &values)
            result.add(to: &values)
            values.add(MessageFlags.isFromSDK.rawValue)
        }
        values.add(ids)
        var removed: [MessageID] = []
        try postgres.each(outbox.keepsDelivered ? Self.receive : Self.remove, of: queue.number, values) {
            removed.append($0[0])
        }
        var delivered = messages
        if removed.count < messages.count {
            let removed = Set(removed)
            delivered.removeAll { !removed.contains($0.id) }
        }
        let writeState = writeStates[queue.number]
        writeState.change.counts.queued -= delivered.count
        writeState.change.queuedBytes -= delivered.reduce(0) { $0 + $1.payload.count }
        for index in delivered.indices {
            countLane(delivered[index].lane, -1, of: queue)
            if index == 0 || delivered[index].lane != delivered[index - 1].lane {
                try touchLane(of: delivered[index], in: queue)
            }
        }
        book(delivered[...], of: queue, result: result, at: moment)
    }

    private static let keepPayloads: Statement = """
        INSERT INTO payloads_# (first, last, acceptedAtMs, settledAtMs, checksum, payloads)
        SELECT id, id, acceptedAtMs, ?, checksum, payload FROM queue_# WHERE (tried & ?) = 0 AND id = ANY (?)
        """

    private static let receive: Statement = """
        WITH gone AS (DELETE FROM queue_# WHERE id = ANY (?4) RETURNING id, kind, acceptedAtMs, attempts, key, tried)
        INSERT INTO delivered_# (id, kind, acceptedAtMs, settledAtMs, attempts, key, result, tried)
        SELECT id, kind, acceptedAtMs, ?1, attempts + 1, key, ?2, tried & ?3 FROM gone RETURNING id
        """

    private static let remove: Statement = "DELETE FROM queue_# WHERE id = ANY (?) RETURNING id"
}
