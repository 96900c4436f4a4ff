import Glibc
import PosternCore
import PosternUpstream

/// Copies a store to a file, also while a gateway is using it.
///
/// To the gateway the backup is one more reader: it writes nothing to the store, and holds one snapshot, whose pages it
/// copies with SQLite's online backup (https://www.sqlite.org/backup.html). As long as a snapshot is held, the gateway
/// cannot reset its write-ahead log. That is why a backup no longer pauses when the log grows, and ends without a
/// result before the log is so large that the gateway has to reject messages.
///
/// A backup has everything but what an upstream keeps only to be faster, its cache, which may be lost.
public struct StoreBackup: Sendable {
    /// Bytes per second; 0 copies as fast as the disks allow.
    private let bytesPerSecond: Int
    /// Whether an earlier backup may be replaced.
    private let replacesFile: Bool

    static let pagesPerStep = 128

    public init(bytesPerSecond: Int = 32 << 20, replacesFile: Bool = false) {
        self.bytesPerSecond = bytesPerSecond
        self.replacesFile = replacesFile
    }

    /// Copies the store at `path` to `file`, and verifies the copy. The file gets its name when it is complete, sound,
    /// and on disk; an error leaves nothing behind.
    ///
    /// - Parameter progress: Receives how many pages are copied, and of how many. Must be quick.
    public func run(
        of path: String, to file: String, progress: @escaping (Int, Int) -> Void = { _, _ in }
    ) throws(StoreError) -> StoreVerification {
        let unfinished = file + ".partial"
        do {
            try check(file, for: path)
            defer { Self.remove(unfinished) }
            let verification = try Self.copy(
                path, to: unfinished, at: BackupPace(bytesPerSecond: bytesPerSecond), progress: progress)
            try Files.rename(unfinished, to: file, for: file)
            return verification
        } catch {
            throw StoreError(error, path: path)
        }
    }

    /// Throws if `file` must not become the backup.
    private func check(_ file: String, for path: String) throws {
        guard try Files.size(of: file + "-wal", for: file) == 0 else {
            throw StoreError.cannotCreate(path: file, detail: "\(file)-wal exists, so a gateway has used the file")
        }
        guard let former = try Inode.at(file, for: file) else { return }
        guard try former != Inode.at(path, for: path) else {
            throw StoreError.cannotCreate(path: file, detail: "it is the store that is to be copied")
        }
        guard replacesFile else { throw StoreError.cannotCreate(path: file, detail: "it exists, and would be lost") }
        guard StoreLock.isFree(file) else { throw StoreError.alreadyRunning(path: file) }
    }

    /// Removes a copy that is not needed. What cannot be removed stays.
    static func remove(_ file: String) {
        try? removeTails(of: file)
        unlink(file)
    }

    private static func removeTails(of file: String) throws(StoreError) {
        for tail in StoreFile.tails.dropFirst() + ["-journal"] { try Files.remove(file + tail, for: file) }
    }

    /// Copies one snapshot of a store to a new file, which needs no log next to it, and verifies the copy.
    static func copy(
        _ path: String, to file: String, at pace: BackupPace, progress: @escaping (Int, Int) -> Void
    ) throws -> StoreVerification {
        try StoreFile.examineUnopened(path)
        try StoreFile.inspect(path)
        let (size, room) = (try Files.size(of: path, for: path), DiskReserve(for: file).available)
        guard room > size else {
            throw StoreError.full(detail: "the copy takes \(size >> 20) MiB, and \(room >> 20) MiB are free")
        }
        // Truncated rather than removed: the file of a restore may not be missing, see `StoreRestore.refuseInterrupted`.
        try removeTails(of: file)
        try Files.write([], to: file, for: file)
        let source = try StoreFile.openForReading(path, busyTimeout: .seconds(5))
        defer { try? source.close() }
        let target = SQL(try SQLiteConnection(file))
        defer { try? target.close() }
        let log = try Files.size(of: path + "-wal", for: path)
        let start = SystemTime().instant
        // The file is synced once, when it is complete.
        try target.run("PRAGMA synchronous = OFF")
        try source.transaction(.read) {
            // The first read begins the snapshot. Without it, SQLite would begin the copy again after each commit.
            guard try source.exists("SELECT 1 FROM store") else {
                throw StoreError.corrupt(path: path, detail: "a table is empty")
            }
            let pageSize = try source.value("PRAGMA page_size", as: Int.self) ?? StoreFile.pageSize
            try source.connection.copy(to: target.connection, pagesPerStep: Int32(pagesPerStep)) { copied, pages in
                progress(copied, pages)
                guard copied < pages else { return }
                let pause = try pace.pause(
                    after: copied * pageSize, in: SystemTime().instant - start,
                    logGrownBy: Files.size(of: path + "-wal", for: path) - log)
                if pause > .zero { usleep(UInt32(pause.inSeconds * 1_000_000)) }
            }
        }
        // The pages are those of a store in WAL mode. Without it, the copy is one file, and can be read anywhere.
        guard try target.value("PRAGMA journal_mode = DELETE", as: String.self) == "delete" else {
            throw StoreError.failed(detail: "the copy cannot be made independent of a log")
        }
        try leaveOutCache(target)
        try target.close()
        try Files.sync(file, for: file)
        let verification = try StoreVerification.run(file)
        guard verification.isSound else {
            throw StoreError.corrupt(path: path, detail: verification.findings.joined(separator: "; "))
        }
        return verification
    }

    /// Removes from a copy what may be lost (`StateChange.cache`), and what is left of anything that was deleted.
    private static func leaveOutCache(_ sql: SQL) throws {
        try sql.run("PRAGMA secure_delete = ON")
        let root = StateChange.cacheRoot
        try sql.run("DELETE FROM state WHERE key > ? AND key < ?", root + "/", root + "0")
        // The store overwrites a deleted value only where its page is written anyway.
        try sql.run("PRAGMA incremental_vacuum")
    }
}

/// How fast a backup copies.
struct BackupPace {
    /// 0 for no limit.
    var bytesPerSecond = 0

    /// From here on, the backup no longer pauses. The gateway warns of a log that is twice as large.
    static let hurryingLogBytes = 32 << 20
    /// From here on, the backup gives up. The gateway rejects messages when the log is twice as large.
    static let maxLogBytes = 512 << 20

    /// How long to wait after `copied` bytes. Throws if the backup has to end, for the sake of the gateway.
    func pause(after copied: Int, in elapsed: Duration, logGrownBy log: Int) throws -> Duration {
        guard log < Self.maxLogBytes else {
            throw StoreError.failed(
                detail: "the write-ahead log grew by \(log >> 20) MiB while the store was copied, and the copy was not "
                    + "kept. Repeat it without a limit of its rate, or when fewer messages arrive")
        }
        guard bytesPerSecond > 0, log < Self.hurryingLogBytes else { return .zero }
        // At most a second, so that a log that grows is noticed.
        return min(.seconds(1), max(.zero, .seconds(Double(copied) / Double(bytesPerSecond)) - elapsed))
    }
}
