import CSQLite

/// A connection to an SQLite database.
///
/// SQLite does not lock it (`SQLITE_OPEN_NOMUTEX`), so one thread at a time uses it. Only `interrupt` may be called from any
/// thread, until the connection is closed. A connection that is deallocated is closed; its statements must be finalized before.
final class SQLiteConnection {
    /// Nil once the connection is closed.
    private(set) var handle: OpaquePointer?

    /// Opens the database at `path`. Without `isReadOnly`, a file that does not exist is created.
    ///
    /// - Parameters:
    ///   - busyTimeout: How long a statement waits for the lock of another connection.
    ///   - script: Statements that configure the connection, before anything is read.
    /// - Throws: Also if the file is not a database.
    init(
        _ path: String, isReadOnly: Bool = false, busyTimeout: Duration = .zero, preparing script: String = ""
    ) throws(SQLiteError) {
        _ = SQLiteLibrary.isPrepared
        let access = isReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
        try check(sqlite3_open_v2(path, &handle, access | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nil))
        sqlite3_busy_timeout(handle, Int32(busyTimeout / .milliseconds(1)))
        postern_sqlite_refuse_quoted_text(handle)
        try check(postern_add_block_functions(handle))
        try execute("PRAGMA foreign_keys = ON")
        try execute(script)
        // Nothing before this has to read the file.
        try execute("SELECT * FROM sqlite_master LIMIT 1")
    }

    deinit { sqlite3_close_v2(handle) }

    /// Closes the connection. Throws if one of its statements is not finalized; the connection then stays open.
    func close() throws(SQLiteError) {
        try check(sqlite3_close(handle))
        handle = nil
    }

    // MARK: Statements

    /// Runs statements without values, separated by semicolons.
    func execute(_ script: String) throws(SQLiteError) { try check(sqlite3_exec(handle, script, nil, nil, nil)) }

    /// Prepares a statement that is used many times. The caller finalizes it.
    func prepare(_ text: String) throws(SQLiteError) -> OpaquePointer {
        var statement: OpaquePointer?
        try check(sqlite3_prepare_v3(handle, text, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil))
        guard let statement else { throw SQLiteError(SQLITE_MISUSE, "there is no statement") }
        return statement
    }

    /// Whether a transaction has begun and not ended. Some errors end it.
    var isInTransaction: Bool { sqlite3_get_autocommit(handle) == 0 }

    /// Makes the statement that is running fail with `SQLITE_INTERRUPT`.
    func interrupt() { sqlite3_interrupt(handle) }

    // MARK: Errors

    /// Throws unless `code` is `SQLITE_OK`.
    func check(_ code: Int32) throws(SQLiteError) {
        guard code == SQLITE_OK else { throw error(code) }
    }

    /// The error of the last call, which returned `code`.
    func error(_ code: Int32) -> SQLiteError { SQLiteError(code, handle.map { String(cString: sqlite3_errmsg($0)) }) }

    // MARK: The whole database

    enum CheckpointMode: Int32 {
        case passive = 0
        case restart = 2
        case truncate = 3
    }

    /// Moves pages of the write-ahead log into the file. Returns the result code, how many pages the log has, and how many of
    /// them are in the file; both numbers are -1 after an error other than `SQLITE_BUSY`.
    func checkpoint(_ mode: CheckpointMode) -> (code: Int32, logged: Int32, moved: Int32) {
        var (logged, moved): (Int32, Int32) = (-1, -1)
        let code = sqlite3_wal_checkpoint_v2(handle, nil, mode.rawValue, &logged, &moved)
        return (code, logged, moved)
    }

    /// Copies the database into that of `target`.
    ///
    /// - Parameter copied: Called after each step with the pages that are copied, and with all; an error ends the copy.
    func copy(to target: SQLiteConnection, pagesPerStep: Int32, copied: (Int, Int) throws -> Void) throws {
        guard let backup = sqlite3_backup_init(target.handle, "main", handle, "main") else {
            throw target.error(sqlite3_extended_errcode(target.handle))
        }
        var code = SQLITE_OK
        do {
            while code == SQLITE_OK {
                code = sqlite3_backup_step(backup, pagesPerStep)
                guard code == SQLITE_OK || code == SQLITE_DONE else { break }
                let pages = Int(sqlite3_backup_pagecount(backup))
                try copied(pages - Int(sqlite3_backup_remaining(backup)), pages)
            }
        } catch {
            sqlite3_backup_finish(backup)
            throw error
        }
        let end = sqlite3_backup_finish(backup)
        try target.check(code == SQLITE_DONE ? end : code)
    }
}
