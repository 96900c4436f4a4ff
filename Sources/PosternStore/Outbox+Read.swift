import Foundation
import GRDB
import Logging
public import PosternCore

/// A message as it stands in the store.
public struct MessageRecord: Sendable, Equatable {
    public var id: MessageID
    public var upstream: String
    public var kind: Kind
    public var state: MessageState
    public var key: String?
    public var attempts: Int
    public var acceptedAt: Timestamp
    /// Not before then; nil when it waits for nothing of its own.
    public var nextAttemptAt: Timestamp?
    /// Of a queued one with a `nextAttemptAt`: was it sent before, or is it merely scheduled?
    public var isRetry = false
    public var settledAt: Timestamp?
    public var lastError: ErrorRecord?
    /// What the upstream answered to a delivered one, as JSON text, where that is kept.
    public var result: [UInt8]?
    /// Nil when it was not asked for, or is kept no more.
    public var payload: [UInt8]?
    /// The lane as the queue knows it, for the question who is in front.
    public var lane: Int64 = 0
    /// Does its lane, with its group, wait for a token that a caller has to hand in?
    public var isParked = false
    /// What its lane waits for, and until when, because a plan said so.
    public var laneWaitsFor: WaitingFor?
    public var laneWaitsUntil: Timestamp?
}

/// One request that carried a message.
public struct AttemptRow: Sendable, Equatable {
    public var batch: BatchID
    public var startedAt: Timestamp
    /// Nil while it is under way.
    public var endedAt: Timestamp?
    public var outcome: String?
    public var status: Int?
    public var detail: String?
    /// How many messages it carried.
    public var messages: Int
}

extension AttemptRow {
    init(_ row: Row, carrying messages: Int) {
        self.init(
            batch: BatchID(rawValue: row["batch"]), startedAt: Timestamp(milliseconds: row["startedAtMs"]),
            endedAt: (row["endedAtMs"] as Int64?).map(Timestamp.init(milliseconds:)), outcome: row["outcome"],
            status: row["status"], detail: row["detail"], messages: messages)
    }
}

/// Which messages to list.
public struct MessageFilter: Sendable, Equatable {
    public var upstream: UpstreamName?
    public var kind: Kind?
    public var state: MessageState?
    public var key: String?

    public init(
        upstream: UpstreamName? = nil, kind: Kind? = nil, state: MessageState? = nil, key: String? = nil
    ) {
        self.upstream = upstream
        self.kind = kind
        self.state = state
        self.key = key
    }
}

extension Outbox {
    /// Reads on one consistent snapshot. Blocks; never on the path of a write.
    func read<T>(_ body: (Database) throws -> T) throws(StoreError) -> T {
        do { return try pool.read(body) } catch { throw StoreError(error, path: path) }
    }

    public func message(_ id: MessageID, payload: Bool = false) throws(StoreError) -> MessageRecord? {
        try read { db in try StoreReader(db: db, kinds: kinds, names: names).message(id, payload: payload) }
    }

    public func attempts(of id: MessageID) throws(StoreError) -> [AttemptRow] {
        try read { db in try StoreReader(db: db, kinds: kinds, names: names).attempts(of: id) }
    }

    /// One request to an upstream, with the messages it carried; nil when it is kept no more, or was another's.
    public func batch(
        _ id: BatchID, of number: UpstreamNumber
    ) throws(StoreError) -> (attempt: AttemptRow, ids: [MessageID])? {
        try read { db in
            let row = try Row.fetchOne(
                db,
                sql: """
                    SELECT batch, startedAtMs, endedAtMs, outcome, status, detail, ids FROM attempts
                    WHERE batch = ? AND upstream = ?
                    """, arguments: [id.rawValue, number.rawValue])
            guard let row else { return nil }
            let ids = MessageIDList.decode(Array(row["ids"] as Data))
            return (AttemptRow(row, carrying: ids.count), ids)
        }
    }

    /// Messages after `cursor`, oldest first, and the cursor of the next page if there is one. A page may be short of
    /// `limit` when few of very many match; the cursor goes on from there.
    public func messages(
        _ filter: MessageFilter, after cursor: MessageID?, limit: Int, payload: Bool = false
    ) throws(StoreError) -> (messages: [MessageRecord], next: MessageID?) {
        try read { db in
            try StoreReader(db: db, kinds: kinds, names: names)
                .messages(filter, after: cursor, limit: limit, payload: payload)
        }
    }

    /// When the oldest queued message of an upstream was accepted.
    public func oldestQueued(of number: UpstreamNumber) throws(StoreError) -> Timestamp? {
        try read { db in
            try Int64.fetchOne(
                db, sql: "SELECT acceptedAtMs FROM queue_\(number.rawValue) ORDER BY id LIMIT 1"
            ).map(Timestamp.init(milliseconds:))
        }
    }

    /// The state an upstream keeps, on one snapshot.
    public func withState<T>(of number: UpstreamNumber, _ body: (any UpstreamState) throws -> T) throws(StoreError) -> T
    {
        try read { db in try body(StoredState(upstream: number, db: db, vault: vault)) }
    }

    /// Messages of an upstream up to `id` that are still queued.
    public func queued(of number: UpstreamNumber, through id: MessageID) throws(StoreError) -> Int {
        try read { db in
            try Int.fetchOne(
                db, sql: "SELECT count(*) FROM queue_\(number.rawValue) WHERE id <= ?", arguments: [id.rawValue]) ?? 0
        }
    }

    /// What a former run left of an upstream's health, and what it was told.
    public func circuit(of number: UpstreamNumber) throws(StoreError) -> Standing {
        try read { db in
            let row = try Row.fetchOne(
                db, sql: "SELECT circuit, isPaused, flushedThrough FROM upstreams WHERE number = ?",
                arguments: [number.rawValue])
            let record = row.flatMap { RecordText.decode($0["circuit"], as: CircuitRecord.self) }
            if row != nil, record == nil {
                logger.error(
                    "stored health record is not valid; starting without it",
                    metadata: ["upstream": "\(names[number]?.description ?? "unknown")"])
            }
            return Standing(
                record: record ?? CircuitRecord(), isPaused: row?["isPaused"] ?? false,
                flushedThrough: MessageID(rawValue: row?["flushedThrough"] ?? 0))
        }
    }

    public struct Standing: Sendable {
        public let record: CircuitRecord
        public let isPaused: Bool
        /// What flushes have covered so far.
        public let flushedThrough: MessageID
    }
}

/// Reads messages off one snapshot, whichever table they stand in. Also serves a process beside the gateway.
struct StoreReader {
    /// Rows a page looks at before it gives up filling itself.
    static let rowsPerPage = 200_000

    let db: Database
    let kinds: KindTable
    let names: [UpstreamNumber: UpstreamName]

    private enum Table: String, CaseIterable {
        case queue, delivered, ended

        func columns(of number: UInt8) -> String {
            switch self {
            case .queue:
                "id, kind, 0 AS state, key, attempts, acceptedAtMs, nextAttemptAtMs, waiting, NULL AS settledAtMs, "
                    + "lastError, NULL AS result, lane, "
                    + ["isParked", "waitingFor", "readyAtMs"].map { column in
                        "(SELECT \(column) FROM lanes WHERE upstream = \(number) AND number = lane) AS \(column)"
                    }.joined(separator: ", ")
            case .delivered:
                "id, kind, 1 AS state, key, attempts, acceptedAtMs, NULL AS nextAttemptAtMs, 0 AS waiting, "
                    + "settledAtMs, NULL AS lastError, result, 0 AS lane"
            case .ended:
                "id, kind, state, key, attempts, acceptedAtMs, NULL AS nextAttemptAtMs, 0 AS waiting, settledAtMs, "
                    + "lastError, result, 0 AS lane"
            }
        }

        func holds(_ state: MessageState) -> Bool {
            switch state {
            case .queued: self == .queue
            case .delivered: self == .delivered
            case .failed, .cancelled, .dropped, .expired: self == .ended
            }
        }
    }

    private func record(_ row: Row, payload: Bool, of number: UpstreamNumber) -> MessageRecord {
        var record = MessageRecord(
            id: MessageID(rawValue: row["id"]), upstream: names[number]?.description ?? "unknown",
            kind: kinds.kind(row["kind"]), state: MessageState(rawValue: row["state"]) ?? .queued, key: row["key"],
            attempts: row["attempts"], acceptedAt: Timestamp(milliseconds: row["acceptedAtMs"]))
        record.nextAttemptAt = (row["nextAttemptAtMs"] as Int64?).map(Timestamp.init(milliseconds:))
        record.isRetry = (row["waiting"] as Int64) == QueueColumn.retrying
        record.settledAt = (row["settledAtMs"] as Int64?).map(Timestamp.init(milliseconds:))
        record.lastError = (row["lastError"] as String?).flatMap { RecordText.decode($0, as: ErrorRecord.self) }
        record.result = (row["result"] as Data?).map { Array($0) }
        record.lane = row["lane"]
        if row.hasColumn("isParked") {
            record.isParked = row["isParked"] ?? false
            record.laneWaitsFor = (row["waitingFor"] as String?).flatMap(WaitingFor.init(rawValue:))
            record.laneWaitsUntil = (row["readyAtMs"] as Int64?).map(Timestamp.init(milliseconds:))
        }
        if payload, row.hasColumn("payload") { record.payload = (row["payload"] as Data?).map { Array($0) } }
        return record
    }

    func message(_ id: MessageID, payload: Bool) throws -> MessageRecord? {
        guard names[id.upstream] != nil else { return nil }
        for table in Table.allCases {
            let extra = payload && table != .delivered ? ", payload" : ""
            let row = try Row.fetchOne(
                db,
                sql:
                    "SELECT \(table.columns(of: id.upstream.rawValue))\(extra) FROM \(table.rawValue)_\(id.upstream.rawValue) WHERE id = ?",
                arguments: [id.rawValue])
            if let row { return record(row, payload: payload, of: id.upstream) }
        }
        return nil
    }

    /// Merges the tables of all upstreams that may hold such messages; each is read in the order of its ids.
    func messages(
        _ filter: MessageFilter, after cursor: MessageID?, limit: Int, payload: Bool
    ) throws -> (messages: [MessageRecord], next: MessageID?) {
        var found: [MessageRecord] = []
        var horizon: Int64?
        for (number, name) in names where filter.upstream == nil || filter.upstream == name {
            for table in Table.allCases where filter.state.map(table.holds) ?? true {
                let part = try page(of: table, number: number, filter, after: cursor, limit: limit, payload: payload)
                found += part.messages
                // Beyond the first row that some table was not read to, others may be missing.
                if let end = part.end { horizon = min(horizon ?? end, end) }
            }
        }
        found.sort { $0.id < $1.id }
        if let horizon { found.removeAll { $0.id.rawValue > horizon } }
        let page = Array(found.prefix(limit))
        if found.count > limit { return (page, page.last?.id) }
        return (page, horizon.map(MessageID.init(rawValue:)))
    }

    private func page(
        of table: Table, number: UpstreamNumber, _ filter: MessageFilter, after cursor: MessageID?, limit: Int,
        payload: Bool
    ) throws -> (messages: [MessageRecord], end: Int64?) {
        let extra = payload && table != .delivered ? ", payload" : ""
        let rows = try Row.fetchCursor(
            db,
            sql: """
                SELECT \(table.columns(of: number.rawValue))\(extra) FROM \(table.rawValue)_\(number.rawValue) WHERE id > ? ORDER BY id
                """, arguments: [cursor?.rawValue ?? 0])
        var messages: [MessageRecord] = []
        var looked = 0
        while let row = try rows.next() {
            looked += 1
            if matches(row, filter) { messages.append(record(row, payload: payload, of: number)) }
            if messages.count > limit || looked >= Self.rowsPerPage {
                let id: Int64 = row["id"]
                return (messages, messages.count > limit ? nil : id)
            }
        }
        return (messages, nil)
    }

    private func matches(_ row: Row, _ filter: MessageFilter) -> Bool {
        if let state = filter.state, row["state"] as UInt8 != state.rawValue { return false }
        if let kind = filter.kind, kinds.kind(row["kind"]) != kind { return false }
        if let key = filter.key, row["key"] as String? != key { return false }
        return true
    }

    /// The requests that carried a message, oldest first. Requests carry neighbours, so the ones to look at stand
    /// close together; the look ends after some thousands of others.
    func attempts(of id: MessageID) throws -> [AttemptRow] {
        let rows = try Row.fetchCursor(
            db,
            sql: """
                SELECT batch, startedAtMs, endedAtMs, outcome, status, detail, ids FROM attempts
                WHERE upstream = ? AND lastId >= ? AND firstId <= ? ORDER BY lastId LIMIT 20000
                """, arguments: [id.upstream.rawValue, id.rawValue, id.rawValue])
        var found: [AttemptRow] = []
        while let row = try rows.next() {
            let ids = MessageIDList.decode(Array(row["ids"] as Data))
            guard ids.contains(id) else { continue }
            found.append(AttemptRow(row, carrying: ids.count))
        }
        return found.sorted { $0.batch.rawValue < $1.batch.rawValue }
    }
}
