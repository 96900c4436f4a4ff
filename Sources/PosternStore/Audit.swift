import GRDB
public import PosternCore

/// Proof of promise 2: for each upstream the books, the rows behind them, and whether they agree.
public struct Audit: Sendable, Equatable {
    public struct Account: Sendable, Equatable {
        public let upstream: String
        public let ledger: Ledger
        /// Rows found in each state.
        public let rows: [MessageState: Int]
        /// What does not agree; empty when all does.
        public let findings: [String]
    }
    public let accounts: [Account]
    public var isBalanced: Bool { accounts.allSatisfy(\.findings.isEmpty) }

    /// Counts every row anew, on one snapshot.
    static func run(in db: Database) throws -> Audit {
        let rows = try Row.fetchAll(db, sql: "SELECT * FROM upstreams ORDER BY number")
        return Audit(accounts: try rows.map { row in try account(of: row, in: db) })
    }

    private static func account(of row: Row, in db: Database) throws -> Account {
        let number: UInt8 = row["number"]
        let ledger = Ledger(row)
        var counts: [MessageState: Int] = [:]
        let queue = try Row.fetchOne(
            db, sql: "SELECT count(*) AS rows, coalesce(sum(length(payload)), 0) AS bytes FROM queue_\(number)")
        counts[.queued] = queue?["rows"] ?? 0
        counts[.delivered] = try Int.fetchOne(db, sql: "SELECT count(*) FROM delivered_\(number)") ?? 0
        for state in [MessageState.failed, .cancelled, .dropped, .expired] {
            counts[state] =
                try Int.fetchOne(
                    db, sql: "SELECT count(*) FROM ended_\(number) WHERE state = ?", arguments: [state.rawValue]) ?? 0
        }
        var findings: [String] = []
        if ledger.balance != 0 {
            findings.append(
                "accepted is \(ledger.accepted), the states add up to \(ledger.accepted - ledger.balance)")
        }
        for state in MessageState.allCases {
            let found = (counts[state] ?? 0) + ledger.purged(state)
            if found != ledger.count(state) {
                findings.append(
                    "\(state.name) is \(ledger.count(state)) in the books; rows and removed ones make \(found)")
            }
        }
        let bytes: Int = queue?["bytes"] ?? 0
        if bytes != ledger.queuedBytes {
            findings.append("queued bytes are \(ledger.queuedBytes) in the books; the rows hold \(bytes)")
        }
        let twice = try twiceKept(number: number, in: db)
        if twice > 0 { findings.append("\(twice) messages stand in two states") }
        return Account(upstream: row["name"], ledger: ledger, rows: counts, findings: findings)
    }

    private static func twiceKept(number: UInt8, in db: Database) throws -> Int {
        try Int.fetchOne(
            db,
            sql: """
                SELECT (SELECT count(*) FROM ended_\(number) JOIN queue_\(number) USING (id))
                  + (SELECT count(*) FROM ended_\(number) JOIN delivered_\(number) USING (id))
                  + (SELECT count(*) FROM delivered_\(number) JOIN queue_\(number) USING (id))
                """) ?? 0
    }
}

extension Outbox {
    public func audit() throws(StoreError) -> Audit { try read { db in try Audit.run(in: db) } }
}
