import PosternCore

/// Messages that a transaction adds to a queue, until one statement writes their rows: one for each message would cost the
/// server several times as much.
struct NewRows {
    private struct Row {
        let message: NewMessage
        let id: MessageID
        let kind: Int64
        let lane: Int64
        let turn: Int64
        let scheduledAt: Timestamp?

        /// Whether it has a value in a column that most rows leave at its default.
        var hasMore: Bool {
            scheduledAt != nil || message.expiresAt != nil || message.key != nil || message.traceParent != nil
                || !message.flags.isEmpty || turn != 0 || message.lane.isNamed
        }
    }

    /// The limits of one statement.
    private static let (maxRows, maxBytes) = (1024, 1 << 20)
    private var rows: [Row] = []
    private var bytes = 0

    var isFull: Bool { rows.count >= Self.maxRows || bytes >= Self.maxBytes }

    mutating func append(
        _ message: NewMessage, as id: MessageID, kind: Int64, lane: Int64, turn: Int64, scheduledAt: Timestamp?
    ) {
        rows.append(Row(message: message, id: id, kind: kind, lane: lane, turn: turn, scheduledAt: scheduledAt))
        bytes += message.range.count
    }

    mutating func removeAll() {
        guard !rows.isEmpty else { return }
        rows.removeAll(keepingCapacity: true)
        bytes = 0
    }

    /// Writes the rows into the queue `number`.
    mutating func write(to number: UpstreamNumber, with sql: SQL) throws {
        guard !rows.isEmpty, let postgres = sql.postgres else { return }
        defer { removeAll() }
        var values = PostgresValues()
        values.add(integers { $0.id.rawValue })
        values.add(integers(\.kind))
        values.add(integers(\.lane))
        values.add(integers { $0.message.acceptedAt.milliseconds })
        var (checksums, payloads) = (PostgresArray.bigint, PostgresArray.bytea)
        // By index: to copy each message would take longer.
        for index in rows.indices {
            let range = rows[index].message.range
            rows[index].message.bytes.withUnsafeBytes { bytes in
                let payload = UnsafeRawBufferPointer(rebasing: bytes[range])
                checksums.append(Checksum.of(payload))
                payloads.append(bytes: payload)
            }
        }
        values.add(checksums)
        values.add(payloads)
        // Arrays of what most messages do not have would cost as much again.
        guard rows.contains(where: \.hasMore) else { return try postgres.send(Self.insert, of: number, values) }
        values.add(integers { $0.scheduledAt == nil ? QueueColumn.ready : QueueColumn.scheduled })
        values.add(integers { $0.scheduledAt?.milliseconds })
        values.add(integers { $0.message.expiresAt?.milliseconds })
        values.add(texts(\.message.key))
        values.add(integers(\.message.flags.rawValue))
        values.add(texts(\.message.traceParent))
        values.add(integers(\.turn))
        values.add(texts { if case .named(let name, _) = $0.message.lane { name } else { nil } })
        values.add(texts(\.message.lane.group))
        try postgres.send(Self.insertMore, of: number, values)
    }

    private func integers(_ value: (Row) -> Int64?) -> PostgresArray {
        var array = PostgresArray.bigint
        for index in rows.indices { array.append(value(rows[index])) }
        return array
    }

    private func texts(_ value: (Row) -> String?) -> PostgresArray {
        var array = PostgresArray.text
        for index in rows.indices { array.append(value(rows[index])) }
        return array
    }

    private static let insert: Statement = """
        INSERT INTO queue_# (id, kind, lane, acceptedAtMs, checksum, payload)
        SELECT unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]),
          unnest(?::BYTEA[])
        """

    private static let insertMore: Statement = """
        INSERT INTO queue_# (id, kind, lane, acceptedAtMs, checksum, payload, waiting, nextAttemptAtMs, expiresAtMs, key,
          tried, traceParent, turn, laneName, laneGroup)
        SELECT unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]),
          unnest(?::BYTEA[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::BIGINT[]), unnest(?::TEXT[]),
          unnest(?::BIGINT[]), unnest(?::TEXT[]), unnest(?::BIGINT[]), unnest(?::TEXT[]), unnest(?::TEXT[])
        """
}
