import PosternCore

// Messages, whatever table they are in.
extension StoreReader {
    /// The tables of an upstream that hold messages.
    enum Table: CaseIterable {
        case queue, delivered, ended

        func holds(_ state: MessageState) -> Bool {
            switch state {
            case .queued: self == .queue
            case .delivered: self == .delivered
            case .failed, .cancelled, .dropped, .expired: self == .ended
            }
        }

        func mayHold(_ filter: MessageFilter) -> Bool {
            // Receipts have neither a lane nor an error.
            if self == .delivered, filter.lane != nil || filter.needsError { return false }
            if self == .queue, filter.needsSettlement { return false }
            return filter.state.map(holds) ?? true
        }
    }

    /// Reading the stored error of a row costs as much as examining that many rows.
    static let rowsPerError = 10

    func message(_ id: MessageID, payload: Bool) throws -> MessageRecord? {
        guard names[id.upstream] != nil else { return nil }
        let ids = IDRange(first: id.rawValue, last: id.rawValue)
        for table in Table.allCases {
            var found: MessageRecord?
            try walk(table, of: id.upstream, ids, .oldest, payload: payload) { row in
                found = try record(row, of: id.upstream, payload: payload)
                return false
            }
            if let found { return found }
        }
        return nil
    }

    /// Merges the tables of all upstreams that may hold such messages. Each is read in the order of its ids.
    func messages(
        _ filter: MessageFilter, order: MessageOrder = .oldest, after cursor: MessageID?, limit: Int,
        maxBytes: Int = .max, payload: Bool
    ) throws -> (messages: [MessageRecord], next: MessageID?) {
        var page = Page(order: order, limit: limit, maxBytes: maxBytes)
        for (number, name) in names where filter.shows(name) {
            for table in Table.allCases where table.mayHold(filter) {
                try add(table, of: number, filter, after: cursor, payload: payload, to: &page)
            }
        }
        return (page.messages, page.end.map(MessageID.init(rawValue:)))
    }

    /// The first messages that were found, in the order of the page.
    private struct Page {
        let order: MessageOrder
        let limit: Int
        let maxBytes: Int
        private(set) var messages: [MessageRecord] = []
        /// Messages after this one are not on the page.
        private(set) var end: Int64?

        init(order: MessageOrder, limit: Int, maxBytes: Int) {
            self.order = order
            self.limit = limit
            self.maxBytes = maxBytes
        }

        /// Whether a message with that id is after the end.
        func isOver(at id: Int64) -> Bool { end.map { order.precedes($0, id) } ?? false }

        /// Adds messages of one table, which was read up to `end`, and keeps the first ones. One is always kept.
        mutating func add(_ more: [MessageRecord], readTo end: Int64?) {
            if let end, !isOver(at: end) { self.end = end }
            messages += more
            messages.sort { order.precedes($0.id.rawValue, $1.id.rawValue) }
            var (count, bytes) = (0, 0)
            for message in messages {
                if isOver(at: message.id.rawValue) { break }
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
        let ids = try range(in: table, of: number, filter).after(cursor, page.order)
        let lanes = table == .queue ? try filter.lane.map { try self.lanes(called: $0, of: number) } : nil
        func isOfLane(_ row: borrowing SQLRow) -> Bool {
            guard table == .ended, let lane = filter.lane else { return lanes?.contains(row[12]) ?? true }
            return Lane(stored: row[12], group: nil).isCalled(lane)
        }
        try walk(table, of: number, ids, page.order, payload: payload) { row in
            let id: Int64 = row[0]
            guard !page.isOver(at: id) else { return false }
            rows += 1
            if matches(row, filter), isOfLane(row) {
                let error = filter.needsError ? error(in: row) : nil
                if error != nil { rows += Self.rowsPerError }
                if filter.matches(error) {
                    let message = try record(row, of: number, payload: payload)
                    messages.append(message)
                    bytes += message.size
                }
            }
            if messages.count > page.limit { return false }
            if rows >= Self.rowsPerPage || bytes >= page.maxBytes { end = id }
            return end == nil
        }
        page.add(messages, readTo: end)
    }

    // MARK: Rows

    /// Visits the rows with these ids until `body` returns false.
    func walk(
        _ table: Table, of number: UpstreamNumber, _ ids: IDRange, _ order: MessageOrder, payload: Bool,
        _ body: (borrowing SQLRow) throws -> Bool
    ) throws {
        try sql.walk(Self.statement(table, order), of: number, ids.first, ids.last, payload, body: body)
    }

    /// The columns are the same for all tables: id, kind, state, key, attempts, acceptedAtMs, lastError, settledAtMs,
    /// result, payload, nextAttemptAtMs, waiting, lane, expiresAtMs, and the flags. Receipts have no lane.
    private static func statement(_ table: Table, _ order: MessageOrder) -> Statement {
        switch (table, order) {
        case (.queue, .oldest):
            """
            SELECT id, kind, 0, key, attempts, acceptedAtMs, lastError, NULL, NULL, CASE WHEN ?3 THEN payload END,
              nextAttemptAtMs, waiting, lane, expiresAtMs, tried
            FROM queued_# WHERE id BETWEEN ?1 AND ?2 ORDER BY id
            """
        case (.queue, .newest):
            """
            SELECT id, kind, 0, key, attempts, acceptedAtMs, lastError, NULL, NULL, CASE WHEN ?3 THEN payload END,
              nextAttemptAtMs, waiting, lane, expiresAtMs, tried
            FROM queued_# WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC
            """
        case (.delivered, .oldest):
            """
            SELECT id, kind, 1, key, attempts, acceptedAtMs, NULL, settledAtMs, result,
              CASE WHEN ?3 THEN NULL END, NULL, 0, NULL, NULL, tried
            FROM received_# WHERE id BETWEEN ?1 AND ?2 ORDER BY id
            """
        case (.delivered, .newest):
            """
            SELECT id, kind, 1, key, attempts, acceptedAtMs, NULL, settledAtMs, result,
              CASE WHEN ?3 THEN NULL END, NULL, 0, NULL, NULL, tried
            FROM received_# WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC
            """
        case (.ended, .oldest):
            """
            SELECT id, kind, state, key, attempts, acceptedAtMs, lastError, settledAtMs, result,
              CASE WHEN ?3 THEN payload END, NULL, 0, lane, NULL, tried
            FROM ended_# WHERE id BETWEEN ?1 AND ?2 ORDER BY id
            """
        case (.ended, .newest):
            """
            SELECT id, kind, state, key, attempts, acceptedAtMs, lastError, settledAtMs, result,
              CASE WHEN ?3 THEN payload END, NULL, 0, lane, NULL, tried
            FROM ended_# WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC
            """
        }
    }

    func matches(_ row: borrowing SQLRow, _ filter: MessageFilter) -> Bool {
        filter.matches(
            row[2], row[5], settledAt: filter.needsSettlement ? row[7] : nil,
            kind: filter.kind == nil ? "" : kinds.kind(row[1]),
            key: filter.key == nil ? nil : row[3])
    }

    func error(in row: borrowing SQLRow) -> AttemptError? {
        (row[6] as String?).flatMap { JSONRecord.decode($0, as: AttemptError.self) }
    }

    /// - Parameter payload: Whether it is read if the row is a receipt, which does not contain it.
    private func record(
        _ row: borrowing SQLRow, of number: UpstreamNumber, payload: Bool
    ) throws -> MessageRecord {
        var record = MessageRecord(
            id: row[0], upstream: names[number]?.description ?? "unknown", kind: kinds.kind(row[1]), state: row[2],
            key: row[3], replayOf: try sql.original(of: row[0]), attempts: row[4], acceptedAt: row[5],
            settledAt: row[7], lastError: error(in: row), result: row[8], payload: row[9])
        let flags: MessageFlags = row[14]
        record.isFromSDK = flags.contains(.isFromSDK)
        guard record.state == .queued else {
            if record.state == .delivered {
                if payload { record.payload = try keptPayload(of: record.id) }
            } else {
                record.take(Lane(stored: row[12], group: nil))
                record.isErased = flags.contains(.wasErased)
            }
            return record
        }
        record.facts.nextAttemptAt = row[10]
        record.facts.isRetry = row[11] as Int64 == QueueColumn.retrying
        record.lane = row[12]
        record.expiresAt = row[13]
        try sql.each(
            "SELECT isParked, waitingFor, readyAtMs, name FROM lanes WHERE number = ? AND upstream = ?", record.lane,
            number
        ) { lane in
            record.facts.isParked = lane[0]
            record.facts.laneWaitsFor = (lane[1] as String?).flatMap(WaitReason.init(rawValue:))
            record.facts.laneWaitsUntil = lane[2]
            record.laneName = lane[3]
        }
        if sql.admitsLate, record.laneName == nil {
            record.laneName =
                try sql.value("SELECT laneName FROM queue_# WHERE id = ?", of: number, record.id, as: String?.self)
                ?? nil
        }
        return record
    }
}

extension MessageRecord {
    fileprivate mutating func take(_ lane: Lane) {
        if case .named(let name, _) = lane { laneName = name }
        self.lane = lane.number
    }
}

/// The ids from `first` to `last`; none if `first` is greater.
struct IDRange: Equatable {
    var first: Int64 = 0
    var last: Int64 = .max

    /// Those that a list has after `cursor`.
    func after(_ cursor: MessageID?, _ order: MessageOrder) -> IDRange {
        guard let cursor else { return self }
        switch order {
        // The cursor comes from a caller: it may be the greatest number there is.
        case .oldest where cursor.rawValue == .max: return IDRange(first: .max, last: 0)
        case .oldest: return IDRange(first: max(first, cursor.rawValue + 1), last: last)
        case .newest: return IDRange(first: first, last: min(last, cursor.rawValue - 1))
        }
    }
}

// MARK: - Times

extension StoreReader {
    /// Messages that were accepted at about the same time may have their ids in another order, and the clock is
    /// adjusted now and then.
    static let clockTolerance = Duration.seconds(60)

    /// The ids among which all messages of a table are that were accepted in the filter's time. Found by bisection,
    /// because ids ascend with time: a second index would have to be written with every message.
    func range(in table: Table, of number: UpstreamNumber, _ filter: MessageFilter) throws -> IDRange {
        var ids = IDRange()
        if let start = filter.createdAfter {
            ids.first = try firstID(in: table, of: number, acceptedFrom: start - Self.clockTolerance)
        }
        if let end = filter.createdBefore {
            ids.last = try firstID(in: table, of: number, acceptedFrom: end + Self.clockTolerance) - 1
        }
        if let last = filter.last { ids.last = min(ids.last, last.rawValue) }
        return ids
    }

    /// The least id from which on messages were accepted at `moment` or later.
    private func firstID(in table: Table, of number: UpstreamNumber, acceptedFrom moment: Timestamp) throws -> Int64 {
        // Everything below `low` was accepted earlier, everything from `high` on was not.
        var (low, high) = (Int64(0), Int64.max)
        while low < high {
            let middle = low + (high - low) / 2
            let found = try sql.first(Self.search(table), of: number, middle) {
                (id: $0[0] as Int64, acceptedAt: $0[1] as Timestamp)
            }
            if let found, found.acceptedAt < moment { low = found.id + 1 } else { high = middle }
        }
        return low
    }

    private static func search(_ table: Table) -> Statement {
        switch table {
        case .queue: "SELECT id, acceptedAtMs FROM queued_# WHERE id >= ? ORDER BY id LIMIT 1"
        case .delivered: "SELECT id, acceptedAtMs FROM received_# WHERE id >= ? ORDER BY id LIMIT 1"
        case .ended: "SELECT id, acceptedAtMs FROM ended_# WHERE id >= ? ORDER BY id LIMIT 1"
        }
    }
}
