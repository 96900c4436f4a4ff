import CSQLite
import Glibc
import Logging
import PosternCore
import PosternThreads
import Synchronization

/// Runs SQLite's `quick_check` when the store is opened.
///
/// A small store is checked before anything starts. The check of a larger one (reading five million rows takes seconds)
/// continues while the gateway runs, on a read-only connection; damage that is found then makes the gateway unready.
/// It reads one snapshot, which keeps the write-ahead log from being reset. If the log grows much meanwhile, the check
/// gives way, and begins again later.
final class IntegrityCheck: Loop {
    static let patience = Duration.milliseconds(400)
    /// How long it gives way for at first. The time doubles with each time.
    static let shortestPause = Duration.seconds(60)
    static let longestPause = Duration.seconds(3600)

    let name = "postern-check"
    private let path: String
    private let logger: Logger
    /// Used by the thread of the loop, and interrupted by others.
    nonisolated(unsafe) private let sql: SQL
    private let found = Mutex<StoreError?>(nil)
    private let isStopping = Atomic<Bool>(false)
    private let isReading = Atomic<Bool>(false)
    private let pause = Mutex(shortestPause)
    private let stopped = Inbox<Never>()
    private let result = Inbox<Bool>()
    private let running = Mutex<(any RunningLoop)?>(nil)

    init(path: String, on threads: any Threads, logger: Logger) throws {
        self.path = path
        self.logger = logger
        sql = try StoreFile.openForReading(path)
        let started = try threads.start(self)
        running.withLock { $0 = started }
        let results = threads.take(from: result, until: threads.instant + Self.patience)
        if results.contains(false), let failure {
            stop()
            throw failure
        }
    }

    /// Runs the whole check, unless it is interrupted.
    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        isReading.store(true, ordering: .sequentiallyConsistent)
        defer { isReading.store(false, ordering: .sequentiallyConsistent) }
        guard !isStopping.load(ordering: .sequentiallyConsistent) else { return nil }
        do {
            let failure = try Self.failure(with: sql, path: path)
            if let failure {
                found.withLock { $0 = failure }
                logger.error("store integrity check failed", metadata: ["error": "\(failure)"])
            }
            result.put(failure == nil)
            return nil
        } catch {
            return pause.withLock { pause in
                defer { pause = min(pause * 2, Self.longestPause) }
                return now + pause
            }
        }
    }

    func wait(until deadline: MonotonicInstant) -> Bool { stopped.wait(until: deadline) }

    /// Interrupts the check for a while, so that the write-ahead log can be reset. Returns false if there is none.
    @discardableResult func giveWay() -> Bool {
        guard isReading.load(ordering: .sequentiallyConsistent) else { return false }
        sql.connection.interrupt()
        return true
    }

    /// Reads the whole file on a separate connection, whose cache is empty.
    static func isSound(_ path: String) throws -> Bool {
        let sql = try StoreFile.openForReading(path)
        defer { try? sql.close() }
        return try failure(with: sql, path: path) == nil
    }

    /// The first finding of a second check, if the first one finds something or fails; nil if there is none. Without memory for a
    /// page, SQLite reports damage. Throws if the file cannot be read, after a second try.
    private static func damage(with sql: SQL) throws -> String? {
        do {
            if try findings("PRAGMA quick_check(1)", with: sql).isEmpty { return nil }
        } catch let error where (error as? SQLiteError)?.kind != SQLITE_INTERRUPT {}
        return try findings("PRAGMA quick_check(1)", with: sql).first
    }

    /// What one of SQLite's checks finds. `integrity_check` also compares each index with its table, which takes several
    /// times as long. Throws if the file cannot be read: the check itself reports a failed read as damage.
    static func findings(_ check: Statement, with sql: SQL) throws -> [String] {
        // The check has no transaction of its own: an interruption could hit the statement that ends it.
        let failed = FailedReads.count
        let lines = try sql.all(check) { $0[0] as String }
        guard FailedReads.count == failed else {
            throw StoreError.failed(detail: "the disk reported an error while the store was read")
        }
        // What `SQLITE_NOMEM` is in the text of a finding.
        guard !lines.contains(where: { ($0 + "\n").contains("error code=\(SQLITE_NOMEM)\n") }) else {
            throw StoreError.failed(detail: "SQLite got no memory while the store was read")
        }
        return lines == ["ok"] ? [] : lines
    }

    /// What is wrong with the file; nil if nothing is. Throws if the check was interrupted.
    private static func failure(with sql: SQL, path: String) throws -> StoreError? {
        do {
            return try damage(with: sql).map { .corrupt(path: path, detail: $0) }
        } catch let error as SQLiteError where error.kind == SQLITE_INTERRUPT {
            throw error
        } catch {
            return StoreError(error, path: path)
        }
    }

    /// Why the store cannot be relied on.
    var failure: StoreError? { found.withLock { $0 } }

    func stop() {
        isStopping.store(true, ordering: .sequentiallyConsistent)
        stopped.nudge()
        // An interruption just before the statement begins is lost.
        while giveWay() { usleep(1000) }
        running.withLock { $0.take() }?.join()
        try? sql.close()
    }
}
