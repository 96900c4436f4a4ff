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
    /// Pages from which on a reader that keeps the WAL from being reset is reported: 64 MiB.
    static let pinned: Int32 = 8192

    /// What `countPages` writes; freed with this.
    private let pages = UnsafeMutablePointer<Int32>.allocate(capacity: 1)
    /// Frames in the WAL after the last checkpoint.
    private var frames = 0

    /// Frames in the WAL, at most.
    var framesInLog: Int { max(frames, Int(pages.pointee)) }

    init() { pages.initialize(to: 0) }
    deinit { pages.deallocate() }

    /// From now on SQLite leaves it to this. To be undone by `remove` before this is freed.
    func install(on db: Database) { sqlite3_wal_hook(db.sqliteConnection, countPages, pages) }
    func remove(from db: Database) { sqlite3_wal_hook(db.sqliteConnection, nil, nil) }

    func isDue(isQuiet: Bool, isFull: Bool) -> Bool {
        pages.pointee >= (isFull ? Self.dueWhenFull : isQuiet ? Self.worthwhile : Self.due)
    }

    enum Mode {
        /// As many pages as no reader is in the way of.
        case passive
        /// All of them, after which the WAL begins anew and keeps its blocks.
        case restart
        /// All of them, after which the WAL is empty.
        case truncate
    }

    struct Outcome {
        /// Pages that are still in the WAL alone, because a reader may need what the file holds.
        let remaining: Int32
        let isComplete: Bool
    }

    /// - Throws: what SQLite reports, unless a reader was in the way.
    @discardableResult func run(_ mode: Mode, on db: Database) throws -> Outcome {
        var logged: Int32 = 0
        var moved: Int32 = 0
        let flag =
            switch mode {
            case .passive: SQLITE_CHECKPOINT_PASSIVE
            case .restart: SQLITE_CHECKPOINT_RESTART
            case .truncate: SQLITE_CHECKPOINT_TRUNCATE
            }
        let code = sqlite3_wal_checkpoint_v2(db.sqliteConnection, nil, flag, &logged, &moved)
        frames = Int(logged)
        pages.pointee = 0
        guard code == SQLITE_OK || code & 0xFF == SQLITE_BUSY else { throw SQL.error(code, on: db) }
        return Outcome(remaining: max(0, logged - moved), isComplete: code == SQLITE_OK && logged <= moved)
    }
}

/// `sqlite3_wal_hook`'s callback: is told how many pages the WAL holds after each commit.
private let countPages:
    @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?, UnsafePointer<CChar>?, Int32) -> Int32 = {
        context, _, _, count in
        context?.assumingMemoryBound(to: Int32.self).pointee = count
        return SQLITE_OK
    }
