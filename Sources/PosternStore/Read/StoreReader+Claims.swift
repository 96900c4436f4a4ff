import PosternCore

/// The in-memory state of a gateway's queues, as far as the rows show it, for another process.
extension StoreReader {
    /// The messages whose requests have been recorded as sent and have no result yet.
    func inFlight(of number: UpstreamNumber) throws -> Set<MessageID> {
        var ids: Set<MessageID> = []
        // With the sign, the index by upstream does not apply: few attempts are open, and an upstream has very many.
        try sql.each("SELECT ids FROM attempts WHERE endedAtMs IS NULL AND +upstream = ?", number) { row in
            ids.formUnion(MessageIDList.decode(row[0]))
        }
        return ids
    }

    /// See `Outbox.unsent`.
    func unsent(_ id: MessageID) throws -> Message? {
        guard names[id.upstream] != nil else { return nil }
        let rows = QueueRows(sql: sql, kinds: kinds, number: id.upstream)
        let found = try sql.first(
            "SELECT name, laneGroup FROM lanes WHERE upstream = ? AND number = (SELECT lane FROM queue_# WHERE id = ?)",
            of: id.upstream, id.upstream, id
        ) { Lane.named($0[0], group: $0[1]) }
        if let queued = try rows.row(id, in: found) { return queued.message }
        let lane = try sql.first(
            """
            SELECT lane, laneGroup FROM ended_# WHERE id = ? AND payload IS NOT NULL AND state IN (?, ?)
            """, of: id.upstream, id, MessageState.failed, MessageState.dropped
        ) { Lane(stored: $0[0], group: $0[1]) }
        return try lane.flatMap { try rows.endedRow(id, in: $0) }?.message
    }

    func lanes(of messages: Set<MessageID>, in number: UpstreamNumber) throws -> Set<Int64> {
        var lanes: Set<Int64> = []
        for id in messages {
            if let lane = try sql.value("SELECT lane FROM queued_# WHERE id = ?", of: number, id, as: Int64.self) {
                lanes.insert(lane)
            }
        }
        return lanes
    }

    /// Adds to each queued message whether it is being sent, and whether an earlier one of its lane keeps it waiting.
    func addingClaims(to records: [MessageRecord], now: Timestamp) throws -> [MessageRecord] {
        var claims: [UpstreamNumber: StoredClaims] = [:]
        return try records.map { record in
            guard record.state == .queued else { return record }
            let number = record.id.upstream
            let known = try claims[number] ?? StoredClaims(of: number, by: self, now: now)
            claims[number] = known
            var record = record
            record.facts.isInFlight = known.inFlight.contains(record.id)
            record.isHeldUp = try known.isHeldUp(record.id, lane: record.lane)
            return record
        }
    }
}

/// What the rows of one queue show of its claims.
private struct StoredClaims {
    let inFlight: Set<MessageID>
    /// The lanes of a mixed queue in which a message is being sent.
    private let busyLanes: Set<Int64>
    /// The first message of each lane of a mixed queue that is to be sent again.
    private let retries: [Int64: MessageID]
    private let laneRule: LaneRule
    private let rows: QueueRows
    private let now: Timestamp

    init(of number: UpstreamNumber, by reader: StoreReader, now: Timestamp) throws {
        self.now = now
        rows = QueueRows(sql: reader.sql, kinds: reader.kinds, number: number)
        laneRule = try LaneRule(stored: number, with: reader.sql)
        inFlight = try reader.inFlight(of: number)
        switch laneRule {
        case .acrossLanes:
            busyLanes = try reader.lanes(of: inFlight, in: number)
            retries = Dictionary(try rows.leftovers().retries.map { ($0.lane, $0.id) }, uniquingKeysWith: min)
        case .perLane: (busyLanes, retries) = ([], [:])
        }
    }

    func isHeldUp(_ id: MessageID, lane: Int64) throws -> Bool {
        switch laneRule {
        case .acrossLanes: lane != 0 && (busyLanes.contains(lane) || retries[lane].map { $0 < id } ?? false)
        case .perLane: try rows.isBehindOthers(id, lane: lane, now: now)
        }
    }
}
