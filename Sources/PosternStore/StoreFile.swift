import Foundation
import GRDB
import Glibc
import Logging
import PosternCore

/// The file of the store: whose it is, in what condition, and how it is opened.
enum StoreFile {
    static func prepareFolder(of path: String) throws {
        let folder = (path as NSString).deletingLastPathComponent
        guard !folder.isEmpty else { return }
        do {
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        } catch {
            throw StoreError.cannotCreate(
                path: path, detail: "\(folder) cannot be made: \(String(cString: strerror(errno)))")
        }
        guard access(folder, W_OK) == 0 else {
            throw StoreError.cannotCreate(path: path, detail: "\(folder) may not be written to")
        }
    }

    /// Throws when the file is damaged, or not ours, or from the future; leaves it as it is. A missing or empty file
    /// is fine.
    static func inspect(_ path: String) throws {
        guard isThere(path) else { return }
        var status = stat()
        guard stat(path, &status) == 0, access(path, R_OK | W_OK) == 0 else {
            throw StoreError.cannotCreate(path: path, detail: String(cString: strerror(errno)))
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw StoreError.cannotCreate(path: path, detail: "it is no file")
        }
        var configuration = Configuration()
        configuration.readonly = true
        let queue = try DatabaseQueue(path: path, configuration: configuration)
        defer { try? queue.close() }
        try queue.read { db in
            let sql = SQL(db)
            let tables = try sql.value("SELECT count(*) FROM sqlite_master", as: Int.self) ?? 0
            let owner = try sql.value("PRAGMA application_id", as: Int.self) ?? 0
            if tables > 0, owner != Migrations.applicationID { throw StoreError.foreign(path: path) }
            if try Migrations.migrator.hasBeenSuperseded(db) { throw StoreError.newer(path: path) }
        }
    }

    /// Whether the beginning of a file that SQLite does not take for a database still names the table which every store
    /// of ours has. If so, it is a damaged store; otherwise it never was one.
    static func holdsOurTables(_ path: String) -> Bool {
        guard let file = FileHandle(forReadingAtPath: path) else { return false }
        defer { try? file.close() }
        // A file that cannot be read counts as foreign: nothing is done to those.
        let start = try? file.read(upToCount: 1 << 20)
        return start?.range(of: Data("grdb_migrations".utf8)) != nil
    }

    private static func isThere(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_size > 0
    }

    static func open(_ path: String, at now: Timestamp) throws -> DatabasePool {
        var configuration = Configuration()
        configuration.label = "postern"
        // Off-path readers are few; each costs a cache.
        configuration.maximumReaderCount = 8
        configuration.prepareDatabase { db in
            let sql = SQL(db)
            if !db.configuration.readonly {
                // These only take effect before the first table. Half as many pages are written in two thirds of the
                // calls; a commit of one message writes five of them.
                try sql.run("PRAGMA page_size = 8192")
                // Lets the file shrink again.
                try sql.run("PRAGMA auto_vacuum = INCREMENTAL")
                try sql.run("PRAGMA cache_size = -16384")
            } else {
                try sql.run("PRAGMA cache_size = -2048")
            }
            try sql.run("PRAGMA mmap_size = 0")
        }
        let pool = try DatabasePool(path: path, configuration: configuration)
        try pool.writeWithoutTransaction { db in
            let sql = SQL(db)
            // Promise 1: a commit is on disk when it returns. GRDB sets NORMAL when it turns on WAL, after any
            // preparation, and with NORMAL a power cut takes back commits that were answered; so FULL is set here.
            try sql.run("PRAGMA synchronous = FULL")
            let level = try sql.value("PRAGMA synchronous", as: Int.self)
            guard level == 2 else { throw StoreError.failed(detail: "synchronous is \(level ?? -1), not FULL") }
            try sql.run("PRAGMA wal_autocheckpoint = 1000")
            try sql.run("PRAGMA journal_size_limit = 67108864")
        }
        try Migrations.migrator.migrate(pool)
        try pool.write { db in
            let sql = SQL(db)
            try sql.run(
                "INSERT INTO store (sequence, batch) SELECT ?, 0 WHERE NOT EXISTS (SELECT 1 FROM store)",
                firstSequence(at: now))
            try closeAttemptsOfDeadRun(with: sql)
        }
        return pool
    }

    /// Closes the attempts that were open when the previous run ended. Their outcome is unknown, so they count as
    /// ambiguous, and their messages, which are still queued, may have arrived.
    private static func closeAttemptsOfDeadRun(with sql: SQL) throws {
        // Without the hint SQLite would read all attempts of an upstream.
        let open = try sql.all(
            """
            SELECT upstream, startedAtMs, ids FROM attempts INDEXED BY attemptsUnderWay WHERE endedAtMs IS NULL
            """
        ) { row in
            (upstream: row[0] as UpstreamNumber, startedAt: row[1] as Timestamp, ids: MessageIDList.decode(row[2]))
        }
        guard !open.isEmpty else { return }
        let detail = "the gateway ended before the answer came"
        for attempt in open {
            let isKnown =
                try sql.run(
                    "UPDATE upstreams SET ambiguousSends = ambiguousSends + 1 WHERE number = ?", attempt.upstream) > 0
            guard isKnown else { continue }
            let error = RecordText.encode(
                ErrorRecord(AttemptError(.interrupted, detail: detail, at: attempt.startedAt)))
            for id in attempt.ids {
                try sql.run(
                    "UPDATE queue_# SET tried = tried | 1, lastError = coalesce(lastError, ?) WHERE id = ?",
                    of: attempt.upstream, error, id)
            }
        }
        try sql.run(
            """
            UPDATE attempts INDEXED BY attemptsUnderWay SET endedAtMs = startedAtMs, outcome = ?, detail = ?
            WHERE endedAtMs IS NULL
            """, Settlement.Outcome.unknown.rawValue, detail)
    }

    /// A fresh store counts on from its birth in units that no older store can have reached, so that the ids of a
    /// store that was set aside never come again. 2020-01-01 is the year zero.
    static func firstSequence(at now: Timestamp) -> Int64 {
        max(0, now.milliseconds / 1000 - 1_577_836_800) << 20
    }

    /// Renames a damaged store and what belongs to it; leaves a sound one alone.
    static func setAsideIfDamaged(_ path: String, at now: Timestamp, logger: Logger) throws {
        guard isThere(path), isDamaged(path) else { return }
        let suffix = ".damaged-\(now.milliseconds)"
        for tail in ["", "-wal", "-shm"] where access(path + tail, F_OK) == 0 {
            guard rename(path + tail, path + suffix + tail) == 0 else {
                throw StoreError.cannotCreate(
                    path: path, detail: "cannot rename \(path + tail): \(String(cString: strerror(errno)))")
            }
        }
        logger.warning(
            "damaged store kept aside; starting an empty one",
            metadata: ["store.path": "\(path)", "store.keptAs": "\(path + suffix)"])
    }

    private static func isDamaged(_ path: String) -> Bool {
        do {
            try inspect(path)
            var configuration = Configuration()
            configuration.readonly = true
            let queue = try DatabaseQueue(path: path, configuration: configuration)
            return try queue.read { db in try SQL(db).value("PRAGMA quick_check(1)", as: String.self) } != "ok"
        } catch {
            if case .corrupt = StoreError(error, path: path) { return true }
            return false
        }
    }
}
