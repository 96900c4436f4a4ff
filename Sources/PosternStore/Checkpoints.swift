import GRDB
import GRDBSQLite

/// Moves the WAL's pages into the file, on the writer's connection and between its commits.
///
/// SQLite would do it inside the commit that crosses a limit, and the answers of that commit would wait for it. Here
/// they are out before, and in a quiet moment nobody waits at all. Lives on the writer's thread.
final class Checkpoints {
    /// Pages in the WAL from which on a quiet moment is used.
    static let worthwhile: Int32 = 128
    /// From which on it is not put off any longer: 2 MB, some milliseconds on a plain disk.
    static let due: Int32 = 256

    /// What `countPages` writes; freed with this.
    private let pages = UnsafeMutablePointer<Int32>.allocate(capacity: 1)

    init() { pages.initialize(to: 0) }
    deinit { pages.deallocate() }

    /// From now on SQLite leaves it to us. To be undone by `remove` before this goes.
    func install(on db: Database) { sqlite3_wal_hook(db.sqliteConnection, countPages, pages) }
    func remove(from db: Database) { sqlite3_wal_hook(db.sqliteConnection, nil, nil) }

    func isDue(isQuiet: Bool) -> Bool { pages.pointee >= (isQuiet ? Self.worthwhile : Self.due) }

    /// As many pages as no reader is in the way of.
    func run(on db: Database) {
        // Should it fail, the pages stay where they are and a later commit asks again.
        sqlite3_wal_checkpoint_v2(db.sqliteConnection, nil, SQLITE_CHECKPOINT_PASSIVE, nil, nil)
        pages.pointee = 0
    }

    /// Moves all pages, which also shortens the file by those that were vacuumed, and empties the WAL, as
    /// far as no reader prevents it. For a full disk: it waits for readers, as `run` does not.
    func truncate(on db: Database) {
        sqlite3_wal_checkpoint_v2(db.sqliteConnection, nil, SQLITE_CHECKPOINT_TRUNCATE, nil, nil)
        pages.pointee = 0
    }
}

/// `sqlite3_wal_hook`'s callback: is told how many pages the WAL holds after each commit.
private let countPages:
    @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?, UnsafePointer<CChar>?, Int32) -> Int32 = {
        context, _, _, count in
        context?.assumingMemoryBound(to: Int32.self).pointee = count
        return SQLITE_OK
    }
