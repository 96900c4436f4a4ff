import GRDB
import GRDBSQLite

/// Moves the WAL's pages into the file, on the writer's connection and between its commits.
///
/// SQLite would do it inside the commit that crosses a limit, and the responses to that commit would wait for it. Here
/// they are out before, and in a quiet moment nothing waits at all. Lives on the writer's thread.
final class Checkpoints {
    /// Pages in the WAL from which on a quiet moment is used.
    static let worthwhile: Int32 = 128
    /// From which on it is not put off any longer: 2 MB, some milliseconds on a plain disk.
    static let due: Int32 = 256
    /// The same while the disk is full: the log must not grow.
    static let dueWhenFull: Int32 = 32

    /// What `countPages` writes; freed with this.
    private let pages = UnsafeMutablePointer<Int32>.allocate(capacity: 1)
    /// Frames in the WAL after the last checkpoint.
    private var frames = 0

    /// Frames in the WAL.
    var framesInLog: Int { pages.pointee > 0 ? Int(pages.pointee) : frames }

    init() { pages.initialize(to: 0) }
    deinit { pages.deallocate() }

    /// From now on SQLite leaves it to this. To be undone by `remove` before this is freed.
    func install(on db: Database) { sqlite3_wal_hook(db.sqliteConnection, countPages, pages) }
    func remove(from db: Database) { sqlite3_wal_hook(db.sqliteConnection, nil, nil) }

    func isDue(isQuiet: Bool, isFull: Bool) -> Bool {
        pages.pointee >= (isFull ? Self.dueWhenFull : isQuiet ? Self.worthwhile : Self.due)
    }

    /// Returns whether every page is in the file. Throws what SQLite reports, unless a reader was in the way.
    ///
    /// - Parameter mode: `passive` moves as many pages as no reader is in the way of. `restart` moves all of them, after
    ///   which the WAL is reset and keeps its blocks; after `truncate` it is empty.
    @discardableResult func run(_ mode: Database.CheckpointMode, on db: Database) throws -> Bool {
        var logged: Int32 = 0
        var moved: Int32 = 0
        let code = sqlite3_wal_checkpoint_v2(db.sqliteConnection, nil, mode.rawValue, &logged, &moved)
        // A log that begins again is still reported with its former length.
        frames = code == SQLITE_OK && mode != .passive ? 0 : Int(max(0, logged))
        pages.pointee = 0
        guard code == SQLITE_OK || code & 0xFF == SQLITE_BUSY else { throw SQL.error(code, on: db) }
        return code == SQLITE_OK && logged <= moved
    }
}

/// `sqlite3_wal_hook`'s callback: is told how many pages the WAL holds after each commit.
private let countPages:
    @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?, UnsafePointer<CChar>?, Int32) -> Int32 = {
        context, _, _, count in
        context?.assumingMemoryBound(to: Int32.self).pointee = count
        return SQLITE_OK
    }
