import PosternCore

/// Reads messages from one snapshot, whatever table they are in. Also used by other processes while a gateway is
/// running.
struct StoreReader {
    /// The maximum number of rows that are examined for one page.
    static let rowsPerPage = 200_000

    let sql: SQL
    let kinds: KindTable
    let names: [UpstreamNumber: UpstreamName]

    func oldestQueued(of number: UpstreamNumber, at now: Timestamp) throws -> Timestamp? {
        let accepted = try sql.value(
            """
            SELECT acceptedAtMs FROM (SELECT waiting, acceptedAtMs FROM queue_# ORDER BY id LIMIT ?) WHERE waiting <> ? LIMIT 1
            """,
            of: number, Self.rowsPerPage, QueueColumn.scheduled, as: Timestamp.self)
        let scheduled = try sql.value(
            "SELECT nextAttemptAtMs FROM queue_# WHERE waiting = ? AND nextAttemptAtMs <= ? ORDER BY nextAttemptAtMs LIMIT 1",
            of: number, QueueColumn.scheduled, now, as: Timestamp.self)
        return [accepted, scheduled].compactMap { $0 }.min()
    }

    // MARK: Messages

    private enum Table: CaseIterable {
        case queue, delivered, ended

        func holds(_ state: MessageState) -> Bool {
            switch state {
            case .queued: self == .queue
            case .delivered: self == .delivered
            case .failed, .cancelled, .dropped, .expired: self == .ended
            }
        }
    }

    func message(_ id: MessageID, payload: Bool) throws -> MessageRecord? {
        guard names[id.upstream] != nil else { return nil }
        for table in Table.allCases {
            var found: MessageRecord?
            try walk(table, of: id.upstream, from: id.rawValue, payload: payload) { row in
                if row[0] as MessageID == id { found = record(row, of: id.upstream) }
                return false
            }
            if let found { return found }
        }
        return nil
    }

    /// Merges the tables of all upstreams that may hold such messages. Each is read in the order of its ids.
    func messages(
        _ filter: MessageFilter, after cursor: MessageID?, limit: Int, maxBytes: Int = .max, payload: Bool
    ) throws -> (messages: [MessageRecord], next: MessageID?) {
        var page = Page(limit: limit, maxBytes: maxBytes)
        for (number, name) in names where filter.shows(name) {
            for table in Table.allCases where filter.state.map(table.holds) ?? true {
                try add(table, of: number, filter, after: cursor, payload: payload, to: &page)
            }
        }
        return (page.messages, page.end.map(MessageID.init(rawValue:)))
    }

    /// The first messages that were found, in the order of their ids.
    private struct Page {
        let limit: Int
        let maxBytes: Int
        private(set) var messages: [MessageRecord] = []
        /// Messages after this one are not on the page.
        private(set) var end: Int64?

        init(limit: Int, maxBytes: Int) {
            self.limit = limit
            self.maxBytes = maxBytes
        }

        /// Adds messages of one table, which was read up to `end`, and keeps the first ones. One is always kept.
        mutating func add(_ more: [MessageRecord], readTo end: Int64?) {
            if let end { self.end = min(self.end ?? end, end) }
            messages += more
            messages.sort { $0.id < $1.id }
            var (count, bytes) = (0, 0)
            for message in messages {
                if let end = self.end, message.id.rawValue > end { break }
                if count == limit || bytes >= maxBytes {
                    self.end = messages[count - 1].id.rawValue
                    break
                }
                count += 1
                bytes += message.size
            }
            messages.removeSubrange(count...)
        }
    }

    private func add(
        _ table: Table, of number: UpstreamNumber, _ filter: MessageFilter, after cursor: MessageID?, payload: Bool,
        to page: inout Page
    ) throws {
        var messages: [MessageRecord] = []
        var (rows, bytes) = (0, 0)
        var end: Int64?
        let pageEnd = page.end ?? .max
        try walk(table, of: number, from: (cursor?.rawValue ?? 0) + 1, payload: payload) { row in
            let id: Int64 = row[0]
            guard id <= pageEnd else { return false }
            if matches(row, filter) {
                let message = record(row, of: number)
                messages.append(message)
                bytes += message.size
            }
            rows += 1
            if messages.count > page.limit { return false }
            if rows >= Self.rowsPerPage || bytes >= page.maxBytes { end = id }
            return end == nil
        }
        page.add(messages, readTo: end)
    }

    /// Visits the rows of a table from an id on until `body` returns false. `record` and `matches` know the columns.
    private func walk(
        _ table: Table, of number: UpstreamNumber, from id: Int64, payload: Bool,
        _ body: (borrowing SQLRow) -> Bool
    ) throws {
        switch table {
        case .queue:
            try sql.walk(
                """
                SELECT id, kind, 0, key, attempts, acceptedAtMs, lastError, NULL, NULL, CASE WHEN ?2 THEN payload END,
                  nextAttemptAtMs, waiting, lane,
                  (SELECT isParked FROM lanes WHERE upstream = ?3 AND number = lane),
                  (SELECT waitingFor FROM lanes WHERE upstream = ?3 AND number = lane),
                  (SELECT readyAtMs FROM lanes WHERE upstream = ?3 AND number = lane)
                FROM queue_# WHERE id >= ?1 ORDER BY id
                """, of: number, id, payload, number, body: body)
        case .delivered:
            try sql.walk(
                """
                SELECT id, kind, 1, key, attempts, acceptedAtMs, NULL, settledAtMs, result, NULL
                FROM delivered_# WHERE id >= ? ORDER BY id
                """, of: number, id, body: body)
        case .ended:
            try sql.walk(
                """
                SELECT id, kind, state, key, attempts, acceptedAtMs, lastError, settledAtMs, result,
                  CASE WHEN ?2 THEN payload END
                FROM ended_# WHERE id >= ?1 ORDER BY id
                """, of: number, id, payload, body: body)
        }
    }

    private func record(_ row: borrowing SQLRow, of number: UpstreamNumber) -> MessageRecord {
        var record = MessageRecord(
            id: row[0], upstream: names[number]?.description ?? "unknown", kind: kinds.kind(row[1]), state: row[2],
            key: row[3], attempts: row[4], acceptedAt: row[5], settledAt: row[7],
            lastError: (row[6] as String?).flatMap { JSONRecord.decode($0, as: AttemptError.self) }, result: row[8],
            payload: row[9])
        guard record.state == .queued else { return record }
        record.facts.nextAttemptAt = row[10]
        record.facts.isRetry = row[11] as Int64 == QueueColumn.retrying
        record.lane = row[12]
        record.facts.isParked = row[13]
        record.facts.laneWaitsFor = (row[14] as String?).flatMap(WaitReason.init(rawValue:))
        record.facts.laneWaitsUntil = row[15]
        return record
    }

    private func matches(_ row: borrowing SQLRow, _ filter: MessageFilter) -> Bool {
        if let state = filter.state, row[2] as MessageState != state { return false }
        if let kind = filter.kind, kinds.kind(row[1]) != kind { return false }
        if let key = filter.key, row[3] as String? != key { return false }
        return true
    }

    // MARK: Attempts

    /// The requests that carried a message, oldest first. A request carries neighbors, so the ones to examine are
    /// close together; the search ends after some thousands of others.
    func attempts(of id: MessageID) throws -> [AttemptRow] {
        var found: [AttemptRow] = []
        try sql.each(
            """
            SELECT batch, startedAtMs, endedAtMs, outcome, status, detail, ids FROM attempts
            WHERE upstream = ?1 AND lastId >= ?2 AND firstId <= ?2 ORDER BY lastId LIMIT 20000
            """, id.upstream, id
        ) { row in
            let ids = MessageIDList.decode(row[6])
            if ids.contains(id) { found.append(AttemptRow(row, carrying: ids.count)) }
        }
        return found.sorted { $0.batch.rawValue < $1.batch.rawValue }
    }

    func batch(_ id: BatchID, of number: UpstreamNumber) throws -> (attempt: AttemptRow, ids: [MessageID])? {
        try sql.first(
            """
            SELECT batch, startedAtMs, endedAtMs, outcome, status, detail, ids FROM attempts
            WHERE batch = ? AND upstream = ?
            """, id, number
        ) { row in
            let ids = MessageIDList.decode(row[6])
            return (AttemptRow(row, carrying: ids.count), ids)
        }
    }
}

extension AttemptRow {
    init(_ row: borrowing SQLRow, carrying messages: Int) {
        self.init(
            batch: row[0], startedAt: row[1], endedAt: row[2], outcome: row[3], status: row[4], detail: row[5],
            messages: messages)
    }
}
