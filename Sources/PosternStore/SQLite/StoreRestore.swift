import Foundation
import Glibc
public import PosternCore

/// Puts a backup in the place of a store, while no gateway runs on it.
public struct StoreRestore: Sendable {
    /// What was found in the backup.
    public let verification: StoreVerification
    /// The new path of the store that was there; nil if there was none.
    public let keptAs: String?

    /// Verifies a copy of the backup, and then exchanges it for the store at `path`, which is kept under a new name.
    ///
    /// The numbers of the replaced store continue in the new one, so that no id is assigned a second time, even if the
    /// clock is behind. If they cannot be read, the time of the start has the same effect (`firstSequence`).
    ///
    /// - Parameter progress: As that of a backup.
    public static func run(
        _ backup: String, to path: String, at now: Timestamp, progress: @escaping (Int, Int) -> Void = { _, _ in }
    ) throws(StoreError) -> StoreRestore {
        do {
            try Files.makeFolders(of: path)
            let isNew = try Inode.at(path, for: path) == nil
            let lock = try StoreLock(for: path)
            defer { lock.release() }
            do {
                return try replace(path, by: backup, at: now, progress: progress)
            } catch {
                // The lock needs a file. One that has been exchanged is complete, and stays.
                if isNew, try lock.isStill(at: path) { unlink(path) }
                throw error
            }
        } catch {
            throw StoreError(error, path: path)
        }
    }

    private static func unfinishedName(of path: String) -> String { path + ".restoring" }

    /// Whether a restore was interrupted that had already begun to rename the former store, or had found none.
    private static func wasInterrupted(at path: String) throws(StoreError) -> Bool {
        guard try Files.size(of: path, for: path) == 0 else { return false }
        return try Files.status(of: unfinishedName(of: path), for: path) != nil
    }

    /// Throws if a restore was interrupted when there was no store at the path: a start would create an empty one.
    static func refuseInterrupted(at path: String) throws(StoreError) {
        guard try wasInterrupted(at: path) else { return }
        throw .corrupt(path: path, detail: "a restore was interrupted")
    }

    private static func replace(
        _ path: String, by backup: String, at now: Timestamp, progress: @escaping (Int, Int) -> Void
    ) throws -> StoreRestore {
        guard try Inode.at(backup, for: backup) != Inode.at(path, for: path) else {
            throw StoreError.cannotCreate(path: backup, detail: "it is the store that is to be replaced")
        }
        let unfinished = unfinishedName(of: path)
        let wasInterrupted = try wasInterrupted(at: path)
        let former = wasInterrupted ? try completeRenaming(of: path) : nil
        // Without the former store, the unfinished file is what keeps a gateway from starting with an empty one.
        var isFormerGone = wasInterrupted
        defer {
            let isThere = ((try? Files.size(of: path, for: path)) ?? 0) > 0
            if !isFormerGone || isThere { StoreBackup.remove(unfinished) }
        }
        let verification: StoreVerification
        do {
            verification = try StoreBackup.copy(backup, to: unfinished, at: BackupPace(), progress: progress)
        } catch {
            throw StoreError(error, path: backup)
        }
        try continueNumbers(of: former ?? path, in: unfinished, at: now)
        // A gateway that starts meanwhile finds the new store in use.
        let lock = try StoreLock(for: unfinished)
        defer { lock.release() }
        let kept = path + keptTail + String(now.milliseconds)
        let hasKept = try StoreFile.sizes(of: path) > 0
        // A kill between the two leaves no store at the path, or only a log: see `refuseInterrupted`. Running the restore
        // again completes it.
        isFormerGone = isFormerGone || hasKept
        if hasKept { try StoreFile.rename(path, to: kept) }
        try Files.rename(unfinished, to: path, for: path)
        return StoreRestore(verification: verification, keptAs: hasKept ? kept : former)
    }

    private static let keptTail = ".replaced-"

    /// Renames what an interrupted restore had left of the former store to where its database is. Nil if there was none.
    private static func completeRenaming(of path: String) throws -> String? {
        let folder = Files.folder(of: path)
        let prefix = (path.split(separator: "/").last.map(String.init) ?? path) + keptTail
        let latest = try FileManager.default.contentsOfDirectory(atPath: folder)
            .compactMap { $0.hasPrefix(prefix) ? Int($0.dropFirst(prefix.count)) : nil }.max()
        guard let latest else { return nil }
        let kept = path + keptTail + String(latest)
        for tail in StoreFile.tails.dropFirst()
        where try Files.status(of: path + tail, for: path) != nil && Files.status(of: kept + tail, for: path) == nil {
            try Files.rename(path + tail, to: kept + tail, for: path)
        }
        return kept
    }

    /// Sets the last numbers in `file` to at least those of the store at `path`, and syncs it.
    private static func continueNumbers(of path: String, in file: String, at now: Timestamp) throws {
        let former = formerNumbers(of: path)
        let sql = SQL(try SQLiteConnection(file))
        _ = try sql.transaction(.write) {
            try sql.run(
                "UPDATE store SET sequence = max(sequence, ?), batch = max(batch, ?)",
                max(former?.sequence ?? 0, StoreFile.firstSequence(at: now)), former?.batch ?? 0)
        }
        // Marks the file as one with a log, after the last change, so that nothing is left in that. A gateway whose log is
        // already allocated does not mark it, and a process that reads the store while its log is empty would then lock
        // the wrong parts.
        try sql.run("PRAGMA journal_mode = WAL")
        try sql.close()
        try Files.sync(file, for: path)
    }

    /// Nil if the store cannot be read: it may be damaged, which is a reason to restore a backup.
    private static func formerNumbers(of path: String) -> AssignedNumbers? {
        do {
            guard try Files.size(of: path, for: path) > 0 else { return nil }
            // The lock that this process holds does not matter here: nothing has recovered the log yet.
            try StoreFile.examineLog(of: path, recovering: false, at: SystemTime().now, logger: StoreFile.logger)
            try StoreFile.inspect(path)
            let sql = try StoreFile.openForReading(path)
            defer { try? sql.close() }
            return try sql.transaction(.read) { try AssignedNumbers(sql) }
        } catch {
            return nil
        }
    }
}
