import CSQLite

/// Moves the WAL's pages into the file, on the writer's connection and between its commits.
///
/// SQLite would do it inside the commit that crosses a limit, and the responses to that commit would wait for it. Here,
/// the responses are sent before, and if no request is waiting, nothing waits at all. Belongs to the writer's thread.
final class Checkpoints {
    /// At this many WAL pages a checkpoint runs if no request is waiting.
    static let worthwhile: Int32 = 128
    /// At this many WAL pages a checkpoint always runs: 2 MB, some milliseconds on an ordinary disk.
    static let due: Int32 = 256
    /// The same limit while the disk is full, because the log must not grow then.
    static let dueWhenFull: Int32 = 32
    /// How long `restart` waits for reads that have begun, in milliseconds.
    private static let patience: Int32 = 100

    private let index: LogIndex
    /// The value that `countPages` writes; freed with this object.
    private let pages = UnsafeMutablePointer<Int32>.allocate(capacity: 1)
    /// The number of frames in the WAL after the last checkpoint.
    private var frames = 0

    /// The number of frames in the WAL.
    var framesInLog: Int { pages.pointee > 0 ? Int(pages.pointee) : frames }

    init(of index: LogIndex) {
        self.index = index
        pages.initialize(to: 0)
    }

    deinit { pages.deallocate() }

    /// Replaces SQLite's automatic checkpoints by this. Call `remove` before this is freed.
    func install(on sql: SQL) { sqlite3_wal_hook(sql.connection.handle, countPages, pages) }
    func remove(from sql: SQL) { sqlite3_wal_hook(sql.connection.handle, nil, nil) }

    func isDue(isQuiet: Bool, isFull: Bool) -> Bool {
        pages.pointee >= (isFull ? Self.dueWhenFull : isQuiet ? Self.worthwhile : Self.due)
    }

    /// Returns whether every page is in the file. Throws the error of SQLite, unless a reader prevented the checkpoint.
    ///
    /// - Parameter mode: `passive` moves as many pages as readers allow. `restart` moves all of them, after which the
    ///   WAL is reset and keeps its blocks; after `truncate` it is empty. `restart` is for a full disk, where the WAL has
    ///   room for few commits: it waits a moment for readers, which are short.
    @discardableResult func run(_ mode: SQLiteConnection.CheckpointMode, on sql: SQL) throws -> Bool {
        guard index.isTrusted || index.forgetCheckpoints() else {
            throw StoreError.failed(detail: "the index of the write-ahead log cannot be written")
        }
        let connection = sql.connection
        if mode == .restart { sqlite3_busy_timeout(connection.handle, Self.patience) }
        defer { if mode == .restart { sqlite3_busy_timeout(connection.handle, 0) } }
        let (code, logged, moved) = connection.checkpoint(mode)
        // A log that starts over is still reported with its previous length.
        frames = code == SQLITE_OK && mode != .passive ? 0 : Int(max(0, logged))
        pages.pointee = 0
        guard code == SQLITE_OK || code & 0xFF == SQLITE_BUSY else {
            let error = connection.error(code)
            index.forgetCheckpoints()
            throw error
        }
        return code == SQLITE_OK && logged <= moved
    }
}

/// The callback of `sqlite3_wal_hook`, which gets the number of pages in the WAL after each commit.
private let countPages:
    @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?, UnsafePointer<CChar>?, Int32) -> Int32 = {
        context, _, _, count in
        context?.assumingMemoryBound(to: Int32.self).pointee = count
        return SQLITE_OK
    }
