import CSQLite
public import PosternCore

/// The audit of promise 2: for each upstream, the ledger, the rows, and whether they agree.
public struct Audit: Sendable, Equatable {
    /// The audit of one upstream.
    public struct Account: Sendable, Equatable {
        public let upstream: String
        public let ledger: Ledger
        /// The number of rows in each state.
        public let rows: [MessageState: Int]
        /// The differences; empty if there are none.
        public let findings: [String]
    }
    /// One for each upstream that the store has ever had, by number.
    public let accounts: [Account]
    /// Whether no upstream has a finding.
    public var isBalanced: Bool { accounts.allSatisfy(\.findings.isEmpty) }

    /// Counts every row, on one snapshot.
    static func run(with sql: SQL) throws -> Audit {
        let summaries = try UpstreamSummary.all(with: sql).sorted { $0.number.rawValue < $1.number.rawValue }
        return Audit(accounts: try summaries.map { try account(of: $0, with: sql) })
    }

    private static func account(of summary: UpstreamSummary, with sql: SQL) throws -> Account {
        let (number, ledger) = (summary.number, summary.ledger)
        var counts: [MessageState: Int] = [:]
        var queuedBytes = 0
        try sql.each("SELECT count(*), coalesce(sum(size), 0) FROM queued_#", of: number) { row in
            counts[.queued] = row[0]
            queuedBytes = row[1]
        }
        counts[.delivered] = try sql.value("SELECT count(*) FROM received_#", of: number, as: Int.self)
        for state in [MessageState.failed, .cancelled, .dropped, .expired] {
            counts[state] = try sql.value(
                "SELECT count(*) FROM ended_# WHERE state = ?", of: number, state, as: Int.self)
        }
        var findings: [String] = []
        if ledger.balance != 0 {
            findings.append(
                "accepted is \(ledger.accepted), the states add up to \(ledger.accepted - ledger.balance)")
        }
        for state in MessageState.allCases {
            let found = (counts[state] ?? 0) + ledger.purged[state]
            if found != ledger.counts[state] {
                findings.append(
                    "\(state.name) is \(ledger.counts[state]) in the ledger; rows and removed messages make \(found)")
            }
        }
        if queuedBytes != ledger.queuedBytes {
            findings.append("queued bytes are \(ledger.queuedBytes) in the ledger; the rows contain \(queuedBytes)")
        }
        let twice = try twiceKept(number, with: sql)
        if twice > 0 { findings.append("\(twice) messages are in two states") }
        let broken = try brokenBlocks(number, with: sql)
        if broken > 0 { findings.append("\(broken) blocks do not have the messages that they say") }
        return Account(upstream: summary.name.description, ledger: ledger, rows: counts, findings: findings)
    }

    private static func twiceKept(_ number: UpstreamNumber, with sql: SQL) throws -> Int {
        try sql.value(
            """
            SELECT (SELECT count(*) FROM ended_# JOIN queue_# USING (id))
              + (SELECT count(*) FROM ended_# JOIN delivered_# USING (id))
              + (SELECT count(*) FROM delivered_# JOIN queue_# USING (id))
              + (SELECT count(*) FROM blocks_# CROSS JOIN queue_# WHERE id BETWEEN first AND last)
              + (SELECT count(*) FROM blocks_# CROSS JOIN delivered_# WHERE id BETWEEN first AND last)
              + (SELECT count(*) FROM blocks_# CROSS JOIN ended_# WHERE id BETWEEN first AND last)
              + (SELECT count(*) FROM receipts_# CROSS JOIN queue_# WHERE id BETWEEN first AND last
                AND EXISTS (SELECT 1 FROM received_# AS receipt WHERE receipt.id = queue_#.id))
              + (SELECT count(*) FROM receipts_# CROSS JOIN delivered_# WHERE id BETWEEN first AND last
                AND (SELECT count(*) FROM received_# AS receipt WHERE receipt.id = delivered_#.id) > 1)
              + (SELECT count(*) FROM receipts_# CROSS JOIN ended_# WHERE id BETWEEN first AND last
                AND EXISTS (SELECT 1 FROM received_# AS receipt WHERE receipt.id = ended_#.id))
            """, of: number, as: Int.self) ?? 0
    }

    /// Blocks, of messages or of receipts, whose columns and heads differ, or that overlap another one.
    private static func brokenBlocks(_ number: UpstreamNumber, with sql: SQL) throws -> Int {
        var (broken, last) = (0, Int64.min)
        func examine(_ row: borrowing SQLRow) throws {
            let (heads, from, through): (BorrowedBytes, MessageID, MessageID) = (row[5], row[0], row[1])
            var (count, bytes, latest) = (0, 0, Int64.min)
            try MessageHead.each(in: heads, of: from, acceptedAt: row[4]) { head in
                (count, bytes, latest) = (count + 1, bytes + Int(head.size), head.id)
                return true
            }
            let isWhole = count > 0 && count == row[2] && latest == through.rawValue && from.rawValue > last
            if !isWhole || (row[3] as Int?).map({ $0 != bytes }) ?? false { broken += 1 }
            last = through.rawValue
        }
        try sql.each(
            """
            SELECT first, last, count, bytes, acceptedAtMs, heads FROM blocks_#
            UNION ALL SELECT first, last, count, NULL, acceptedAtMs, heads FROM receipts_# ORDER BY first
            """, of: number, body: examine)
        return broken
    }
}

extension Outbox {
    /// Blocks, for seconds if there are millions of rows.
    public func audit() throws(StoreError) -> Audit { try read { try Audit.run(with: $0) } }
}
