import PosternCore

/// A queue row with its payload.
struct QueueRow {
    let message: Message
    let expiresAt: Timestamp?
    /// Whether an operator queued it again, so that only `expiresAt` ends it.
    let wasRequeued: Bool
    /// Whether the payload is the one that was accepted.
    let isWhole: Bool
}

/// The rows of one queue, during one scan.
struct QueueRows {
    let sql: SQL
    let kinds: KindTable
    let number: UpstreamNumber
    let blocks = ReadBlocks()

    // MARK: Messages

    /// - Parameter lane: Its separate lane, whose name the row does not have.
    func row(_ id: MessageID, in lane: Lane? = nil) throws -> QueueRow? {
        let row = try sql.first(
            """
            SELECT id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, progress,
              tried, checksum, payload, traceParent FROM queue_# WHERE id = ?
            """, of: number, id
        ) { queueRow($0, lane) }
        return try row ?? rowInBlock(id)
    }

    /// Those of mixed lanes with these ids, in their order; nil for one that is gone.
    func rows(_ ids: [MessageID]) throws -> [QueueRow?] {
        guard let postgres = sql.postgres else { return try ids.map { try row($0) } }
        var array = PostgresArray.bigint
        for id in ids { array.append(id.rawValue) }
        var values = PostgresValues()
        values.add(array)
        var found: [MessageID: QueueRow] = [:]
        try postgres.each(
            """
            SELECT id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, progress,
              tried, checksum, payload, traceParent FROM queue_# WHERE id = ANY (?)
            """, of: number, values
        ) { found[$0.id] = queueRow($0) }
        return ids.map { found[$0] }
    }

    /// An ended message, as if it were queued again.
    func endedRow(_ id: MessageID, in lane: Lane) throws -> QueueRow? {
        try sql.first(
            """
            SELECT id, kind, 0, acceptedAtMs, 0, NULL, NULL, 0, key, progress,
              CASE WHEN state = ? THEN tried | ? ELSE tried | ? END, checksum, payload, traceParent
            FROM ended_# WHERE id = ?
            """, of: number, MessageState.failed, MessageFlags.requeued(from: .failed),
            MessageFlags.requeued(from: .dropped), id
        ) { queueRow($0, lane) }
    }

    func exists(_ id: MessageID) throws -> Bool {
        try sql.exists("SELECT 1 FROM queued_# WHERE id = ?", of: number, id)
    }

    /// The rows of a separate lane up to `last` that are not scheduled, and those of `scheduled` that still are, oldest
    /// first, of which so many are expected to be visited.
    func forEach(
        inLane lane: Int64, with scheduled: [MessageID], through last: MessageID, expecting expected: Int,
        _ body: (borrowing SQLRow) throws -> Bool
    ) throws {
        var scheduled = scheduled[...]
        var goesOn = true
        func visit(_ id: MessageID, isScheduled: Bool = false) throws {
            goesOn = try visitRow(id) { row in
                try isScheduled && row.waiting != QueueColumn.scheduled ? true : body(row)
            }
        }
        try sql.walk(
            Statement(
                // The ids are found in the index alone.
                sqlite: """
                    SELECT id FROM queue_# WHERE lane = ?1 AND waiting = 0 AND nextAttemptAtMs IS NULL AND id <= ?2
                    UNION ALL SELECT id FROM queue_# WHERE lane = ?1 AND waiting = 1 AND id <= ?2
                    ORDER BY id
                    """,
                // A statement for each row would be a round trip for each.
                postgres: """
                    SELECT id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, progress,
                      tried, checksum, payload, traceParent FROM queue_#
                    WHERE lane = ?1 AND waiting < 2 AND id <= ?2 ORDER BY id
                    """), of: number, lane, last, expecting: expected
        ) { found in
            let id = found.id
            while goesOn, let next = scheduled.first, next < id {
                scheduled.removeFirst()
                try visit(next, isScheduled: true)
            }
            guard goesOn else { return false }
            if sql.isPostgres { goesOn = try body(found) } else { try visit(id) }
            return goesOn
        }
        while goesOn, let next = scheduled.popFirst() { try visit(next, isScheduled: true) }
    }

    /// Returns what `body` returns; true if the row is gone.
    private func visitRow(_ id: MessageID, _ body: (borrowing SQLRow) throws -> Bool) throws -> Bool {
        try sql.first(
            """
            SELECT id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, progress,
              tried, checksum, payload, traceParent FROM queue_# WHERE id = ?
            """, of: number, id
        ) { row in try body(row) } ?? true
    }

    /// The oldest scheduled rows of a separate lane, up to `last`, that became due after `before` and until `now`.
    /// Reads only the index.
    func scheduled(
        inLane lane: Int64, after before: Timestamp = Timestamp(milliseconds: .min), until now: Timestamp,
        through last: MessageID = MessageID(rawValue: .max), limit: Int = .max
    ) throws -> [MessageID] {
        try sql.all(
            """
            SELECT id FROM queue_# WHERE lane = ? AND waiting = 2 AND nextAttemptAtMs > ? AND nextAttemptAtMs <= ?
              AND id <= ? ORDER BY id LIMIT ?
            """, of: number, lane, before, now, last, limit
        ) { $0[0] }
    }

    func isScheduled(_ id: MessageID) throws -> Bool {
        try sql.exists("SELECT 1 FROM queue_# WHERE id = ? AND waiting = 2", of: number, id)
    }

    /// The message of a visited row, with a copy of its payload.
    func queueRow(_ row: borrowing SQLRow, lane: ReadyLane) -> QueueRow {
        queueRow(row, .named(lane.name, group: lane.group))
    }

    func queueRow(_ row: borrowing SQLRow, _ lane: Lane? = nil, _ kind: Kind? = nil) -> QueueRow {
        let flags: MessageFlags = row[10]
        return QueueRow(
            message: Message(
                id: row[0], kind: kind ?? kinds.kind(row[1]),
                lane: lane ?? Lane(number: row.lane),
                key: row[8], acceptedAt: row[3], payload: row[12], attempts: row[7], progress: row[9],
                mayHaveArrived: flags.contains(.mayHaveArrived), wasRetried: flags.contains(.wasRetried),
                isCallback: flags.contains(.isCallback), isFromSDK: flags.contains(.isFromSDK), traceParent: row[13]),
            expiresAt: row[6], wasRequeued: flags.contains(.wasRequeued),
            isWhole: row.isWhole(payload: 12, checksum: 11))
    }

    // MARK: Turns

    /// The next turn of which a message waits for nothing; nil if there is none after `turn`.
    func nextTurn(after turn: Int64) throws -> Int64? {
        try sql.value(
            """
            SELECT min(turn) FROM (SELECT min(turn) AS turn FROM queue_# WHERE turn > ?1 AND waiting = 0
              UNION ALL SELECT min(turn) FROM blocks_# WHERE turn > ?1) AS turns
            """, of: number, turn, as: Int64?.self) ?? nil
    }

    /// The turn of a message; 0 also if it is gone.
    func turn(of id: MessageID) throws -> Int64 {
        if let turn = try sql.value("SELECT turn FROM queue_# WHERE id = ?", of: number, id, as: Int64.self) {
            return turn
        }
        return try sql.value(
            "SELECT turn FROM blocks_# WHERE first <= ?1 AND last >= ?1 ORDER BY first DESC LIMIT 1", of: number, id,
            as: Int64.self) ?? 0
    }

    /// The next turn of which a separate lane is due.
    func nextTurn(after turn: Int64, dueAt now: Timestamp) throws -> Int64? {
        try sql.value(
            """
            SELECT turn FROM lanes WHERE upstream = # AND readyAtMs IS NOT NULL AND turn > ? AND readyAtMs <= ?
            ORDER BY turn LIMIT 1
            """, of: number, turn, now, as: Int64.self)
    }

    // MARK: Times

    /// Scheduled rows after `position` that are due, in the order of their time.
    func scheduled(after position: ScheduledPosition, until now: Timestamp, limit: Int) throws -> [(
        position: ScheduledPosition, lane: Int64, kind: Kind
    )] {
        try sql.all(
            """
            SELECT id, nextAttemptAtMs, lane, kind FROM queue_#
            WHERE waiting = 2 AND (nextAttemptAtMs, id) > (?, ?) AND nextAttemptAtMs <= ?
            ORDER BY nextAttemptAtMs, id LIMIT ?
            """, of: number, position.dueAtMs, position.id, now, limit
        ) { (ScheduledPosition(dueAtMs: $0[1], id: $0[0]), $0[2], kinds.kind($0[3])) }
    }

    func nextScheduled(after now: Timestamp) throws -> Timestamp? {
        try sql.value(
            "SELECT min(nextAttemptAtMs) FROM queue_# WHERE waiting = 2 AND nextAttemptAtMs > ?", of: number, now,
            as: Timestamp?.self) ?? nil
    }

    /// The retries that an earlier run left, and when the first scheduled message is due.
    func leftovers() throws -> (retries: [(id: MessageID, lane: Int64, dueAt: Timestamp)], scheduled: Timestamp?) {
        let retries = try sql.all(
            "SELECT id, lane, nextAttemptAtMs FROM queue_# WHERE waiting = 1 AND nextAttemptAtMs IS NOT NULL",
            of: number
        ) { (id: $0[0] as MessageID, lane: $0[1] as Int64, dueAt: $0[2] as Timestamp) }
        return (retries, try nextScheduled(after: Timestamp(milliseconds: .min)))
    }

    // MARK: Lanes

    /// Lanes in the order of the times at which they are ready: those of a turn, or all.
    func forEachReadyLane(inTurn turn: Int64? = nil, _ body: (ReadyLane) throws -> Bool) throws {
        func visit(_ row: borrowing SQLRow) throws -> Bool {
            try body(
                ReadyLane(
                    number: row[0], name: row[1], group: row[2], readyAt: row[3], failures: row[4], wakes: row[5]))
        }
        if let turn {
            try sql.walk(
                """
                SELECT number, name, laneGroup, readyAtMs, failures, wakes FROM lanes
                WHERE upstream = # AND readyAtMs IS NOT NULL AND turn = ? ORDER BY readyAtMs
                """, of: number, turn, body: visit)
        } else {
            try sql.walk(
                """
                SELECT number, name, laneGroup, readyAtMs, failures, wakes FROM lanes
                WHERE upstream = ? AND readyAtMs IS NOT NULL ORDER BY readyAtMs
                """, number, body: visit)
        }
    }

    /// When the first lane is due that is not due yet.
    func nextReadyLane(after now: Timestamp) throws -> Timestamp? {
        try sql.value(
            "SELECT min(readyAtMs) FROM lanes WHERE upstream = ? AND readyAtMs > ?", number, now, as: Timestamp?.self)
            ?? nil
    }

    /// The first message of a separate lane, not counting those that are scheduled, due or not.
    func head(ofLane lane: Int64) throws -> LaneHead? {
        try sql.first(
            Statement(
                sqlite: """
                    SELECT id, acceptedAtMs, nextAttemptAtMs, progress IS NOT NULL FROM queue_#
                    WHERE id = (SELECT min(id) FROM (
                      SELECT min(id) AS id FROM queue_# WHERE lane = ?1 AND waiting = 0 AND nextAttemptAtMs IS NULL
                      UNION ALL SELECT min(id) FROM queue_# WHERE lane = ?1 AND waiting = 1) AS heads)
                    """,
                postgres: """
                    SELECT id, acceptedAtMs, nextAttemptAtMs, progress IS NOT NULL FROM queue_#
                    WHERE lane = ? AND waiting < 2 ORDER BY id LIMIT 1
                    """), of: number, lane
        ) { row in LaneHead(id: row[0], acceptedAt: row[1], retryAt: row[2], hasBegun: row[3]) }
    }

    /// The first message of a separate lane, not counting scheduled ones, if some of its requests were sent. No other
    /// message of the lane comes between them, not even an earlier one that becomes due.
    func begunMessage(inLane lane: Int64) throws -> MessageID? {
        try head(ofLane: lane).flatMap { $0.hasBegun ? $0.id : nil }
    }

    /// When the first scheduled message of a separate lane is due, of those up to `last` that are due by `latest`.
    func nextScheduled(
        inLane lane: Int64, through last: MessageID = MessageID(rawValue: .max), by latest: Timestamp = .never
    ) throws -> Timestamp? {
        try sql.value(
            """
            SELECT nextAttemptAtMs FROM queue_# WHERE lane = ? AND waiting = 2 AND nextAttemptAtMs <= ? AND id <= ?
            ORDER BY nextAttemptAtMs LIMIT 1
            """, of: number, lane, latest, last, as: Timestamp.self)
    }

    /// Whether a separate lane has a message up to `last` that is not scheduled.
    func hasUnscheduled(inLane lane: Int64, through last: MessageID) throws -> Bool {
        try sql.exists(
            """
            SELECT 1 FROM queue_# WHERE lane = ?1 AND waiting = 0 AND nextAttemptAtMs IS NULL AND id <= ?2
            UNION ALL SELECT 1 FROM queue_# WHERE lane = ?1 AND waiting = 1 AND id <= ?2
            LIMIT 1
            """, of: number, lane, last)
    }

    /// Whether another message of its separate lane goes before it, not counting those that are scheduled for later.
    func isBehindOthers(_ id: MessageID, lane: Int64, now: Timestamp) throws -> Bool {
        if let begun = try begunMessage(inLane: lane) { return begun != id }
        return try sql.exists(
            """
            SELECT 1 FROM queue_# WHERE lane = ?1 AND waiting = 0 AND nextAttemptAtMs IS NULL AND id < ?2
            UNION ALL SELECT 1 FROM queue_# WHERE lane = ?1 AND waiting = 1 AND id < ?2
            UNION ALL SELECT 1 FROM queue_# WHERE lane = ?1 AND waiting = 2 AND nextAttemptAtMs <= ?3 AND id < ?2
            LIMIT 1
            """, of: number, lane, id, now)
    }
}

/// The first message of a separate lane that is not scheduled.
struct LaneHead {
    let id: MessageID
    let acceptedAt: Timestamp
    /// When it is sent again; nil if it has not failed.
    let retryAt: Timestamp?
    /// Whether some of its requests were sent.
    let hasBegun: Bool
}

/// The columns of a row that `QueueRows` visits; `queueRow` reads all of them.
extension SQLRow {
    var id: MessageID { self[0] }
    var lane: Int64 { self[2] }
    var waiting: Int64 { self[4] }
    /// 0 if it has none.
    var nextAttemptAtMs: Int64 { self[5] }
    var payloadCount: Int { byteCount(12) }
}
