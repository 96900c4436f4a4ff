import GRDB
import PosternCore

/// Enters an upstream into the store.
enum Registration {
    static func number(of name: UpstreamName, in db: Database) throws -> UpstreamNumber {
        let number = try UInt8.fetchOne(
            db, sql: "SELECT number FROM upstreams WHERE name = ?", arguments: [name.description])
        guard let number else { throw StoreError.failed(detail: "upstream \(name) has no number") }
        return UpstreamNumber(rawValue: number)
    }

    /// Numbers are never given out twice: rows of an upstream that is configured no more stay its own.
    static func write(_ upstream: any Upstream, type: String, kinds: KindTable, in db: Database) throws {
        if try Row.fetchOne(db, sql: "SELECT 1 FROM store") == nil {
            throw StoreError.failed(detail: "the store has no counters")
        }
        let name = upstream.name.description
        let known = try UInt8.fetchOne(db, sql: "SELECT number FROM upstreams WHERE name = ?", arguments: [name])
        let highest = try Int.fetchOne(db, sql: "SELECT max(number) FROM upstreams") ?? 0
        guard known != nil || highest < 255 else {
            throw StoreError.failed(detail: "the store has held 255 upstreams already; begin another one")
        }
        let number = known ?? UInt8(highest + 1)
        if known == nil {
            try db.execute(
                sql: "INSERT INTO upstreams (number, name, type) VALUES (?, ?, ?)", arguments: [number, name, type])
        } else {
            try db.execute(sql: "UPDATE upstreams SET type = ? WHERE number = ?", arguments: [type, number])
        }
        try Migrations.createTables(of: number, in: db)
        if case .separate = upstream.laneRule { try Migrations.createLaneIndex(of: number, in: db) }
        for kind in upstream.kinds where kinds.number(of: kind) == 0 {
            try db.execute(sql: "INSERT INTO kinds (name) VALUES (?)", arguments: [kind.description])
            kinds.learn(kind, number: Int(db.lastInsertedRowID))
        }
        try closeAttemptsOfDeadRun(number: number, in: db)
    }

    /// Requests that were under way when a former run ended: nobody knows what became of them, so they count as
    /// ambiguous, and their messages are still queued.
    private static func closeAttemptsOfDeadRun(number: UInt8, in db: Database) throws {
        try db.execute(
            sql: """
                UPDATE attempts SET endedAtMs = startedAtMs, outcome = 'unknown',
                  detail = 'the gateway ended before the answer came'
                WHERE endedAtMs IS NULL AND upstream = ?
                """, arguments: [number])
        try db.execute(
            sql: "UPDATE upstreams SET ambiguousSends = ambiguousSends + ? WHERE number = ?",
            arguments: [db.changesCount, number])
    }
}
