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
        "id, kind, lane, acceptedAtMs, waiting, nextAttemptAtMs, expiresAtMs, attempts, key, progress, payload"

    private func statement(_ rest: String) throws -> Statement {
        try db.cachedStatement(sql: "SELECT \(Self.columns) FROM queue_\(number.rawValue) \(rest)")
    }

    func row(_ id: MessageID) throws -> QueueRow? {
        let statement = try statement("WHERE id = ?")
        statement.bind(id.rawValue, at: 1)
        var found: QueueRow?
        try statement.forEachRow(in: db) { row in
            found = Self.queueRow(row, kinds: kinds)
            return false
        }
        return found
    }

    /// Scheduled rows whose time has come, and when the next one's comes.
    func scheduled(until now: Timestamp, limit: Int) throws -> (rows: [QueueRow], next: Timestamp?) {
        let due = try statement("WHERE waiting = 2 AND nextAttemptAtMs <= ? ORDER BY id LIMIT ?")
        due.bind(now.milliseconds, at: 1)
        due.bind(limit, at: 2)
        var rows: [QueueRow] = []
        try due.forEachRow(in: db) { row in
            rows.append(Self.queueRow(row, kinds: kinds))
            return true
        }
        let later = try db.cachedStatement(
            sql: """
                SELECT min(nextAttemptAtMs) FROM queue_\(number.rawValue)
                WHERE waiting = 2 AND nextAttemptAtMs > ?
                """)
        later.bind(now.milliseconds, at: 1)
        var next: Timestamp?
        try later.forEachRow(in: db) { row in
            next = row.integerOrNil(0).map(Timestamp.init(milliseconds:))
            return false
        }
        return (rows, rows.count == limit ? now : next)
    }

    /// Rows that wait for nothing, from `cursor` on, until `body` answers false. Payloads are copied on demand.
    func forEachFresh(after cursor: MessageID, _ body: (borrowing FreshRow) throws -> Bool) throws {
        let statement = try statement("WHERE id > ? AND waiting = 0 ORDER BY id")
        statement.bind(cursor.rawValue, at: 1)
        try statement.forEachRow(in: db) { row in
            try body(FreshRow(row: SQLiteRow(statement: row.statement), kinds: kinds))
        }
    }

    /// Retries that a former run left, and when the first scheduled one is due.
    func leftovers() throws -> (retries: [(id: MessageID, lane: Int64, dueAt: Timestamp)], scheduled: Timestamp?) {
        let waiting = try db.cachedStatement(
            sql: "SELECT id, lane, nextAttemptAtMs FROM queue_\(number.rawValue) WHERE waiting = 1")
        var retries: [(id: MessageID, lane: Int64, dueAt: Timestamp)] = []
        try waiting.forEachRow(in: db) { row in
            retries.append(
                (MessageID(rawValue: row.integer(0)), row.integer(1), Timestamp(milliseconds: row.integer(2))))
            return true
        }
        return (retries, try scheduled(until: Timestamp(milliseconds: .min), limit: 0).next)
    }

    struct FreshRow: ~Copyable {
        let row: SQLiteRow
        let kinds: KindTable
        var id: MessageID { MessageID(rawValue: row.integer(0)) }
        var laneNumber: Int64 { row.integer(2) }
        var byteCount: Int { row.byteCount(10) }
        func queueRow() -> QueueRow { QueueRows.queueRow(row, kinds: kinds) }
    }

    private static func queueRow(_ row: borrowing SQLiteRow, kinds: KindTable) -> QueueRow {
        let lane = row.integer(2)
        return QueueRow(
            message: Message(
                id: MessageID(rawValue: row.integer(0)), kind: kinds.kind(Int(row.integer(1))),
                lane: lane == 0 ? .none : .digest(lane), key: row.text(8),
                acceptedAt: Timestamp(milliseconds: row.integer(3)), payload: row.bytes(10) ?? [],
                attempts: Int(row.integer(7)), progress: row.bytes(9)),
            expiresAt: row.integerOrNil(6).map(Timestamp.init(milliseconds:)))
    }
}

/// The state of one upstream, read inside a transaction or off a read-only connection.
struct StoredState: UpstreamState {
    let upstream: UpstreamNumber
    let db: Database

    func value(of key: String) -> [UInt8]? {
        let row = try? Row.fetchOne(
            db, sql: "SELECT value FROM state WHERE upstream = ? AND key = ?", arguments: [upstream.rawValue, key])
        return row.map { Array($0["value"] as Data) }
    }
}
