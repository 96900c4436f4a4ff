import Glibc
import PosternCore

/// Ends writers, so that nothing of them becomes visible later, and finds out by that what they have committed.
///
/// Each transaction of a writer inserts its own row of `log`. To end the writer, a node inserts the next row as an end mark:
/// then the transaction that was under way, if any, fails at its row, wherever it is. If its row is there first, it was committed.
/// To look for the row without inserting a mark would say nothing about what is still on its way.
struct Fence {
    let sql: SQL
    let options: PostgresOptions

    /// The values of `log.kind`.
    static let (commit, endMark) = (0, 1)
    /// Longer than the limit that the server has for the wait for a lock.
    static let lockPatience = Duration.seconds(3)
    /// How often sessions that hold a row are looked for, and the pause between.
    private static let (looks, pause) = (20, useconds_t(50_000))

    /// Ends a writer. Returns the number of its last transaction that was committed.
    @discardableResult
    func end(_ writer: Int64) throws -> Int64 {
        guard let connection = sql.postgres?.connection else { return 0 }
        let patience = connection.patience
        connection.patience = patience.map { max($0, Self.lockPatience) }
        defer { connection.patience = patience }
        try sql.run("SET lock_timeout = '300ms'")
        defer { _ = try? sql.run("SET lock_timeout = '2s'") }
        let last = try sql.first("SELECT n, kind FROM log WHERE writer = ? ORDER BY n DESC LIMIT 1", writer) {
            (n: $0[0] as Int64, kind: $0[1] as Int)
        }
        var next = last.map { $0.kind == Self.endMark ? $0.n : $0.n + 1 } ?? 0
        var firstMark: Int64?
        while true {
            let isDurable = try mark(next, of: writer, on: connection)
            let kind = try sql.value("SELECT kind FROM log WHERE writer = ? AND n = ?", writer, next, as: Int.self)
            if kind == Self.endMark { firstMark = firstMark ?? next }
            // If the row of a transaction is there, the next mark waits for the standby that its commit may not have waited for.
            if firstMark != nil, isDurable { break }
            next += 1
        }
        // What it had not committed may hold rows, for as long as the server waits for the rest of a transaction.
        _ = try sql.all(
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN writers ON session = pid || ' ' || backend_start
            WHERE writer = ? AND pid <> pg_backend_pid()
            """, writer
        ) { $0[0] as Bool }
        try sql.run("UPDATE writers SET isEnded = TRUE WHERE writer = ?", writer)
        return (firstMark ?? next) - 1
    }

    /// Inserts an end mark, unless the row is there. Waits for a transaction that has inserted it and is not committed. Returns
    /// whether the mark is wherever the database promises that commits are.
    private func mark(_ n: Int64, of writer: Int64, on connection: PostgresConnection) throws -> Bool {
        do {
            try sql.run(Self.insertMark, writer, n)
        } catch let error as PostgresError where error.state == PostgresError.lockTimeout {
            // The process of that transaction may be frozen, or its machine gone.
            try sql.run("SET lock_timeout = '2s'")
            try sql.send(Self.insertMark, writer, n)
            try connection.push()
            try terminateSessions(blocking: Int64(connection.backendPID))
            try connection.flush()
        }
        return !connection.warnedOfReplication
    }

    private static let insertMark: Statement =
        "INSERT INTO log (writer, n, kind) VALUES (?, ?, 1) ON CONFLICT (writer, n) DO NOTHING"

    private func terminateSessions(blocking session: Int64) throws {
        let other = SQL(postgres: try PostgresConnection(options))
        defer { try? other.close() }
        for _ in 0..<Self.looks {
            let ended = try other.all(
                "SELECT pg_terminate_backend(pid) FROM unnest(pg_blocking_pids(?1::bigint::integer)) AS pid", session
            ) { $0[0] as Bool }
            guard ended.isEmpty else { return }
            usleep(Self.pause)
        }
    }
}
