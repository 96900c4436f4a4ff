import GRDB
import PosternCore

/// Enters an upstream into the store.
enum Registration {
    /// Numbers are never given out twice: rows of an upstream that is configured no more stay its own.
    static func write(
        _ upstream: RegisteredUpstream, type: String, kinds: KindTable, in transaction: Transaction
    ) throws -> (number: UpstreamNumber, newest: Int64) {
        let db = transaction.db
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
        if upstream.laneRule.needsLaneIndex { try Migrations.createLaneIndex(of: number, in: db) }
        try lookAtParkedLanes(of: number, in: transaction)
        try enter(upstream.kinds, in: kinds, transaction)
        let account = transaction.accounts[UpstreamNumber(rawValue: number)]
        return (account.number, Int64(account.ledger.lastID))
    }

    /// Gives each kind that the store has not held yet a number.
    static func enter(_ new: [Kind], in kinds: KindTable, _ transaction: Transaction) throws {
        for kind in new where kinds.number(of: kind) == 0 {
            try transaction.db.execute(sql: "INSERT INTO kinds (name) VALUES (?)", arguments: [kind.description])
            kinds.learn(kind, number: Int(transaction.db.lastInsertedRowID))
        }
    }

    /// A run with another key could not read what this one can: lanes for which something is held go on, or are parked
    /// anew.
    private static func lookAtParkedLanes(of number: UInt8, in transaction: Transaction) throws {
        try transaction.db.execute(
            literal: """
                UPDATE lanes SET isParked = 0, isHeld = 0, readyAtMs = \(transaction.outbox.time.now.milliseconds)
                WHERE upstream = \(number) AND isParked = 1 AND laneGroup IN
                  (SELECT owner FROM credentials WHERE upstream = \(number) AND isRefused = 0)
                """)
    }
}
