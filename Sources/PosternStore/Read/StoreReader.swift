import PosternCore

/// Reads messages from one snapshot, whatever table they are in. Also used by other processes while a gateway is
/// running.
struct StoreReader {
    /// The maximum number of rows that are examined for one page.
    static let rowsPerPage = 200_000
    /// The maximum number of requests that are examined for one message.
    static let maxAttempts = 20_000

    let sql: SQL
    let kinds: KindTable
    let names: [UpstreamNumber: UpstreamName]

    func oldestQueued(of number: UpstreamNumber, at now: Timestamp) throws -> Timestamp? {
        var accepted: Timestamp?
        var rows = 0
        try sql.walk("SELECT id, waiting, acceptedAtMs FROM queued_# ORDER BY id", of: number) { row in
            rows += 1
            if row[1] as Int64 != QueueColumn.scheduled { accepted = row[2] }
            return accepted == nil && rows < Self.rowsPerPage
        }
        let scheduled = try sql.value(
            "SELECT nextAttemptAtMs FROM queue_# WHERE waiting = ? AND nextAttemptAtMs <= ? ORDER BY nextAttemptAtMs LIMIT 1",
            of: number, QueueColumn.scheduled, now, as: Timestamp.self)
        return [accepted, scheduled].compactMap { $0 }.min()
    }

    // MARK: Attempts

    /// The requests that carried a message, oldest first. A request carries neighbors, so the ones to examine are
    /// close together; the search ends after `most` requests that carried it or later messages.
    func attempts(of id: MessageID, examining most: Int) throws -> [AttemptRow] {
        var found: [AttemptRow] = []
        try sql.each(
            """
            SELECT batch, startedAtMs, endedAtMs, outcome, status, detail, ids, step FROM
              (SELECT * FROM attempts WHERE upstream = ?1 AND lastId >= ?2 ORDER BY lastId LIMIT ?3) AS later
            WHERE firstId <= ?2
            """, id.upstream, id, most
        ) { row in
            let ids = MessageIDList.decode(row[6])
            if ids.contains(id) { found.append(AttemptRow(row, carrying: ids.count)) }
        }
        return found.sorted { $0.batch.rawValue < $1.batch.rawValue }
    }

    func batch(_ id: BatchID, of number: UpstreamNumber) throws -> AttemptReceipt? {
        let found = try sql.first(
            """
            SELECT batch, startedAtMs, endedAtMs, outcome, status, detail, ids, step FROM attempts
            WHERE batch = ? AND upstream = ?
            """, id, number
        ) { row in
            let ids = MessageIDList.decode(row[6])
            return (AttemptRow(row, carrying: ids.count), ids)
        }
        guard let (attempt, ids) = found else { return nil }
        return AttemptReceipt(attempt: attempt, ids: ids, kind: try ids.first.flatMap(kind))
    }

    func batches(
        of number: UpstreamNumber, before cursor: BatchID?, limit: Int
    ) throws -> (batches: [AttemptRow], next: BatchID?) {
        var (found, examined): ([AttemptRow], Int) = ([], 0)
        var next: BatchID?
        try sql.walk(
            """
            SELECT batch, startedAtMs, endedAtMs, outcome, status, detail, ids, step, upstream FROM attempts
            WHERE batch < ? ORDER BY batch DESC
            """, cursor?.rawValue ?? .max
        ) { row in
            if row[8] == number {
                if found.count == limit { next = found.last?.batch }
                guard next == nil else { return false }
                found.append(AttemptRow(row, carrying: MessageIDList.decode(row[6]).count))
            }
            examined += 1
            if examined == Self.maxAttempts { next = row[0] }
            return next == nil
        }
        return (found, next)
    }

    /// Nil if the message is not kept any more.
    private func kind(of id: MessageID) throws -> Kind? {
        let number = try sql.value(
            """
            SELECT kind FROM queued_# WHERE id = ?1 UNION ALL SELECT kind FROM received_# WHERE id = ?1
            UNION ALL SELECT kind FROM ended_# WHERE id = ?1 LIMIT 1
            """, of: id.upstream, id, as: Int.self)
        return number.map { kinds.kind($0) }
    }
}

extension AttemptRow {
    init(_ row: borrowing SQLRow, carrying messages: Int) {
        self.init(
            batch: row[0], startedAt: row[1], endedAt: row[2], outcome: row[3], status: row[4], detail: row[5],
            messages: messages, step: row[7])
    }
}
