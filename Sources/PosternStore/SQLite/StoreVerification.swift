import PosternCore

/// The result of checking a whole store, or a backup of one: the structure of the file, every payload, and the ledger.
public struct StoreVerification: Sendable, Equatable {
    /// The size of the database file.
    public let bytes: Int
    /// Queued, failed, cancelled, dropped, and expired messages whose payload was compared with its checksum.
    public let payloads: Int
    public let audit: Audit
    /// What is wrong, one sentence each; empty if nothing is.
    public let findings: [String]

    /// Whether the store can be used.
    public var isSound: Bool { findings.isEmpty }

    /// Reads everything, on one snapshot. Also next to a running gateway.
    public static func run(_ path: String) throws(StoreError) -> StoreVerification {
        do {
            try StoreFile.examineUnopened(path)
            try StoreFile.inspect(path)
            let sql = try StoreFile.openForReading(path, busyTimeout: .seconds(5))
            defer { try? sql.close() }
            let bytes = try Files.size(of: path, for: path)
            return try sql.transaction(.read) { try examine(sql, bytes: bytes) }
        } catch {
            throw StoreError(error, path: path)
        }
    }

    private static func examine(_ sql: SQL, bytes: Int) throws -> StoreVerification {
        var findings = try IntegrityCheck.findings("PRAGMA integrity_check(10)", with: sql)
        let audit = try Audit.run(with: sql)
        findings += audit.accounts.flatMap { account in account.findings.map { "\(account.upstream): \($0)" } }
        var payloads = 0
        for summary in try UpstreamSummary.all(with: sql) {
            let (count, changed) = try comparePayloads(of: summary.number, with: sql)
            payloads += count
            findings += changed.map { "\(summary.name): the payload of message \($0) differs from its checksum" }
        }
        return StoreVerification(bytes: bytes, payloads: payloads, audit: audit, findings: findings)
    }

    private static func comparePayloads(
        of number: UpstreamNumber, with sql: SQL
    ) throws -> (count: Int, changed: [MessageID]) {
        var (count, changed) = (0, [MessageID]())
        func compare(_ row: borrowing SQLRow) {
            count += 1
            if changed.count < 10, !row.isWhole(payload: 2, checksum: 1) { changed.append(row[0]) }
        }
        try sql.each("SELECT id, checksum, payload FROM queued_#", of: number) { compare($0) }
        try sql.each("SELECT id, checksum, payload FROM ended_# WHERE payload IS NOT NULL", of: number) { compare($0) }
        return (count, changed)
    }
}
