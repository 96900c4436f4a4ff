import Foundation
import GRDB
import PosternCore

/// Reads one upstream's queue on a read-only connection.
struct QueueReader: Sendable {
    let pool: DatabasePool
    let kinds: KindTable
    let number: UpstreamNumber

    func read<T>(_ body: (QueueRows) throws -> T) throws -> T {
        try pool.read { db in try body(QueueRows(db: db, kinds: kinds, number: number)) }
    }
}

/// A queue row with its payload.
struct QueueRow {
    let message: Message
    let expiresAt: Timestamp?
}

/// The rows of one queue, during one look at it.
struct QueueRows {
    let db: Database
    let kinds: KindTable
    let number: UpstreamNumber

    private static let columns =
        "id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, progress, payload, tried"

    enum Query: CaseIterable {
        case row, exists, fresh, scheduled, nextScheduled, retrying, readyLanes, inLane, isBehindOthers

        func sql(for number: UInt8) -> String {
            let queue = "queue_\(number)"
            switch self {
            case .row: return "SELECT \(columns) FROM \(queue) WHERE id = ?"
            case .exists: return "SELECT 1 FROM \(queue) WHERE id = ?"
            case .fresh: return "SELECT \(columns) FROM \(queue) WHERE id > ? AND waiting = 0 ORDER BY id"
            case .scheduled:
                return """
                    SELECT id, nextAttemptAtMs, lane FROM \(queue)
                    WHERE waiting = 2 AND (nextAttemptAtMs, id) > (?, ?) AND nextAttemptAtMs <= ?
                    ORDER BY nextAttemptAtMs, id LIMIT ?
                    """
            case .nextScheduled:
                return "SELECT min(nextAttemptAtMs) FROM \(queue) WHERE waiting = 2 AND nextAttemptAtMs > ?"
            case .retrying:
                return """
                    SELECT id, lane, nextAttemptAtMs FROM \(queue) WHERE waiting = 1 AND nextAttemptAtMs IS NOT NULL
                    """
            case .readyLanes:
                return """
                    SELECT number, name, laneGroup, readyAtMs, failures, wakes FROM lanes
                    WHERE upstream = \(number) AND readyAtMs IS NOT NULL ORDER BY readyAtMs
                    """
            case .inLane: return "SELECT \(columns) FROM \(queue) WHERE lane = ? ORDER BY id"
            case .isBehindOthers:
                return """
                    SELECT 1 FROM \(queue) WHERE lane = ? AND id < ? AND (waiting <> 2 OR nextAttemptAtMs <= ?) LIMIT 1
                    """
            }
        }
    }

    private func statement(_ query: Query) throws -> Statement {
        try db.cachedStatement(sql: query.sql(for: number.rawValue))
    }

    func row(_ id: MessageID) throws -> QueueRow? {
        let statement = try statement(.row)
        statement.bind(id.rawValue, at: 1)
        var found: QueueRow?
        try statement.forEachRow(in: db) { row in
            found = Self.queueRow(row, kinds: kinds)
            return false
        }
        return found
    }

    func exists(_ id: MessageID) throws -> Bool {
        let statement = try statement(.exists)
        statement.bind(id.rawValue, at: 1)
        return try hasRow(statement)
    }

    private func hasRow(_ statement: Statement) throws -> Bool {
        var hasRow = false
        try statement.forEachRow(in: db) { _ in
            hasRow = true
            return false
        }
        return hasRow
    }

    struct Scheduled {
        let id: MessageID
        let lane: Int64
        let place: ScheduledPlace
    }

    /// Scheduled rows behind `place` whose time has come, in the order of that time. Reads the index alone.
    func scheduled(after place: ScheduledPlace, until now: Timestamp, limit: Int) throws -> [Scheduled] {
        let statement = try statement(.scheduled)
        statement.bind(place.dueAtMs, at: 1)
        statement.bind(place.id, at: 2)
        statement.bind(now.milliseconds, at: 3)
        statement.bind(limit, at: 4)
        var found: [Scheduled] = []
        try statement.forEachRow(in: db) { row in
            let id = row.integer(0)
            found.append(
                Scheduled(
                    id: MessageID(rawValue: id), lane: row.integer(2),
                    place: ScheduledPlace(dueAtMs: row.integer(1), id: id)))
            return true
        }
        return found
    }

    func nextScheduled(after now: Timestamp) throws -> Timestamp? {
        let statement = try statement(.nextScheduled)
        statement.bind(now.milliseconds, at: 1)
        var next: Timestamp?
        try statement.forEachRow(in: db) { row in
            next = row.integerOrNil(0).map(Timestamp.init(milliseconds:))
            return false
        }
        return next
    }

    /// Rows that wait for nothing, from `cursor` on, until `body` answers false. Payloads are copied on demand.
    func forEachFresh(after cursor: MessageID, _ body: (borrowing FoundRow) throws -> Bool) throws {
        let statement = try statement(.fresh)
        statement.bind(cursor.rawValue, at: 1)
        try forEachFound(statement, body)
    }

    /// The rows of a separate lane, oldest first.
    func forEach(inLane lane: Int64, _ body: (borrowing FoundRow) throws -> Bool) throws {
        let statement = try statement(.inLane)
        statement.bind(lane, at: 1)
        try forEachFound(statement, body)
    }

    private func forEachFound(_ statement: Statement, _ body: (borrowing FoundRow) throws -> Bool) throws {
        try statement.forEachRow(in: db) { row in
            try body(FoundRow(row: SQLiteRow(statement: row.statement), kinds: kinds))
        }
    }

    /// Lanes that are ready or will be, in that order.
    func forEachReadyLane(_ body: (ReadyLane) throws -> Bool) throws {
        try statement(.readyLanes).forEachRow(in: db) { row in
            try body(
                ReadyLane(
                    number: row.integer(0), name: row.text(1) ?? "", group: row.text(2),
                    readyAt: Timestamp(milliseconds: row.integer(3)), failures: Int(row.integer(4)),
                    wakes: Int(row.integer(5))))
        }
    }

    /// Whether an earlier message of its separate lane is queued, not counting those that are scheduled for later.
    func isBehindOthers(_ id: MessageID, lane: Int64, now: Timestamp) throws -> Bool {
        let statement = try statement(.isBehindOthers)
        statement.bind(lane, at: 1)
        statement.bind(id.rawValue, at: 2)
        statement.bind(now.milliseconds, at: 3)
        return try hasRow(statement)
    }

    /// Retries that a former run left, and when the first scheduled one is due.
    func leftovers() throws -> (retries: [(id: MessageID, lane: Int64, dueAt: Timestamp)], scheduled: Timestamp?) {
        var retries: [(id: MessageID, lane: Int64, dueAt: Timestamp)] = []
        try statement(.retrying).forEachRow(in: db) { row in
            retries.append(
                (MessageID(rawValue: row.integer(0)), row.integer(1), Timestamp(milliseconds: row.integer(2))))
            return true
        }
        return (retries, try nextScheduled(after: Timestamp(milliseconds: .min)))
    }

    /// A row during its visit.
    struct FoundRow: ~Copyable {
        fileprivate let row: SQLiteRow
        fileprivate let kinds: KindTable
        var id: MessageID { MessageID(rawValue: row.integer(0)) }
        var laneNumber: Int64 { row.integer(2) }
        var acceptedAt: Timestamp { Timestamp(milliseconds: row.integer(3)) }
        var waiting: Int64 { row.integer(4) }
        /// 0 when it has none.
        var nextAttemptAtMs: Int64 { row.integer(5) }
        var byteCount: Int { row.byteCount(10) }
        func queueRow(lane: ReadyLane? = nil) -> QueueRow { QueueRows.queueRow(row, kinds: kinds, lane: lane) }
    }

    private static func queueRow(_ row: borrowing SQLiteRow, kinds: KindTable, lane: ReadyLane? = nil) -> QueueRow {
        let number = row.integer(2)
        let mixed: Lane = number == 0 ? .none : .digest(number)
        return QueueRow(
            message: Message(
                id: MessageID(rawValue: row.integer(0)), kind: kinds.kind(Int(row.integer(1))),
                lane: lane.map { .named($0.name, group: $0.group) } ?? mixed, key: row.text(8),
                acceptedAt: Timestamp(milliseconds: row.integer(3)), payload: row.bytes(10) ?? [],
                attempts: Int(row.integer(7)), progress: row.bytes(9),
                wasTried: row.integer(11) != 0),
            expiresAt: row.integerOrNil(6).map(Timestamp.init(milliseconds:)))
    }
}

/// The state of one upstream, read inside a transaction or off a read-only connection.
struct StoredState: UpstreamState {
    let upstream: UpstreamNumber
    let db: Database
    let vault: Vault

    func value(of key: String) throws -> [UInt8]? {
        let statement = try db.cachedStatement(sql: "SELECT value FROM state WHERE upstream = ? AND key = ?")
        statement.bind(Int64(upstream.rawValue), at: 1)
        statement.bind(key, at: 2)
        var value: [UInt8]?
        try statement.forEachRow(in: db) { row in
            value = row.bytes(0)
            return false
        }
        return value
    }

    /// `0` follows `/` in ASCII, which is how SQLite compares texts: byte by byte.
    func values(below key: String, atMost most: Int) throws -> [(key: String, value: [UInt8])] {
        let sql = "SELECT key, value FROM state WHERE upstream = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
        let statement = try db.cachedStatement(sql: sql)
        statement.bind(Int64(upstream.rawValue), at: 1)
        statement.bind(key + "/", at: 2)
        statement.bind(key + "0", at: 3)
        statement.bind(most, at: 4)
        var found: [(key: String, value: [UInt8])] = []
        try statement.forEachRow(in: db) { row in
            found.append((row.text(0) ?? "", row.bytes(1) ?? []))
            return true
        }
        return found
    }

    func queued(inLane name: String, atMost most: Int) throws -> Int {
        let sql = """
            SELECT count(*) FROM (SELECT 1 FROM queue_\(upstream.rawValue)
              WHERE lane = (SELECT number FROM lanes WHERE upstream = ? AND name = ?) LIMIT ?)
            """
        let statement = try db.cachedStatement(sql: sql)
        statement.bind(Int64(upstream.rawValue), at: 1)
        statement.bind(name, at: 2)
        statement.bind(most, at: 3)
        var count = 0
        try statement.forEachRow(in: db) { row in
            count = Int(row.integer(0))
            return false
        }
        return count
    }
}
