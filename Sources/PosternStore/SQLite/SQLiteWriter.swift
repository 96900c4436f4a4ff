import Logging
import PosternCore

/// Commits to the file, and moves its log into it between commits.
final class SQLiteWriter: StoreWriter {
    private let engine: SQLiteEngine
    /// The engine's, which alone owns it: if a store is dropped without being closed, this connection must not be the last
    /// to go, because SQLite would then remove the log, as no crash does.
    private var sql: SQL { engine.sql }
    private var pageSize: Int { engine.pageSize }
    private let checkpoints: Checkpoints
    /// The number of bytes of the file whose blocks are allocated.
    private var allocated: Int
    /// Of the last message and the last credential.
    private var sequence: Int64
    private var version: Int64

    init(of engine: SQLiteEngine) {
        self.engine = engine
        checkpoints = Checkpoints(of: engine.logIndex)
        allocated = engine.lock.descriptor.size
        sequence = engine.firstSequence
        version = engine.firstVersion
    }

    func begin() {
        checkpoints.install(on: sql)
        if engine.isFull { releaseReservedPages() } else { refillReservedPages() }
    }

    func end() { checkpoints.remove(from: sql) }

    // MARK: Commits

    func commit(_ body: (SQL) throws -> Growth?) throws {
        try sql.transaction(.write) { try allocatePages(for: body(sql)) }
    }

    func didReply(isQuiet: Bool) {
        guard checkpoints.isDue(isQuiet: isQuiet, isFull: engine.isFull) else { return }
        checkpoint(engine.isFull ? .restart : .passive)
    }

    func maintain(_ work: () -> Void) {
        engine.checkThatFilesAreInPlace()
        if engine.health.condition == .failed { checkAfterFailure() }
        work()
        if engine.isFull {
            checkpoint(.restart)
            if engine.checkForSpace() { refillReservedPages() }
        }
    }

    // MARK: Numbers

    func nextSequences(_ count: Int, in sql: SQL) -> ClosedRange<Int64> { sequence + 1...Int64.max }
    func didAssign(through sequence: Int64) { self.sequence = sequence }

    func nextVersion(in sql: SQL) -> Int64 {
        version += 1
        return version
    }

    func keepBatch(in sql: SQL) throws { try AssignedNumbers.keep(engine.latestBatch, with: sql) }

    // MARK: Space

    /// The free pages inside the database, without half of those that are reserved.
    func spareBytes(in sql: SQL) throws -> Int {
        let free = try sql.value("PRAGMA freelist_count", as: Int.self) ?? 0
        return free * pageSize - DiskReserve.bytesInside / 2
    }

    /// The maximum number of pages that a turn returns to the file system.
    private static let pagesPerTurn = 256

    /// Free pages are used again first; what stays free beyond a quarter of the file is returned to the file system.
    func shrink(_ sql: SQL) throws -> Bool {
        let free = try sql.value("PRAGMA freelist_count", as: Int.self) ?? 0
        let all = try sql.value("PRAGMA page_count", as: Int.self) ?? 0
        // While the disk is full, all free pages are returned, in steps that the log has room for.
        if engine.isFull {
            guard free > Self.pagesPerTurn else { return false }
            try sql.run("PRAGMA incremental_vacuum(32)")
            return true
        }
        guard free > Self.pagesPerTurn, free > all / 4 else { return false }
        try sql.run("PRAGMA incremental_vacuum(256)")
        return true
    }

    /// Frees the pages that are reserved inside the database.
    private func releaseReservedPages() { _ = write { try $0.run("DELETE FROM reserve") } }

    /// Reserves the pages again, unless they are reserved.
    private func refillReservedPages() {
        let isTaken = write { sql in
            guard try !sql.exists("SELECT 1 FROM reserve") else { return }
            try sql.run("INSERT INTO reserve VALUES (zeroblob(?))", DiskReserve.bytesInside)
            try self.allocatePages(for: nil)
        }
        if !isTaken { engine.enterFull(.full(detail: "the disk has no room for the reserve")) }
    }

    /// Allocates blocks for the pages that a commit is about to refer to, and for the index of the next one. Without
    /// them, a checkpoint might have no room, the log could not be reset, and nothing could be written any more.
    private func allocatePages(for growth: Growth?) throws {
        let maxOfACommit = engine.isFull ? 2000 : 16_000
        try engine.logIndex.makeRoom(forFrames: checkpoints.framesInLog + maxOfACommit)
        if let growth, let pages = engine.logIndex.pages, pages * pageSize + most(of: growth) <= allocated { return }
        // SQLite prepares this for each use: a commit of few messages would spend a tenth of its time on it.
        let pages = try sql.value("PRAGMA page_count", as: Int.self) ?? 0
        let needed = pages * pageSize
        let next = engine.isFull ? 0 : most(of: Growth(messages: 1))
        guard needed + next > allocated else { return }
        do throws(FileError) {
            let step = ((needed + next) / (1 << 20) + 1) << 20
            try engine.lock.descriptor.allocate(allocated..<step)
            allocated = step
        } catch {
            guard error.isFull else { throw error }
            guard needed > allocated else { return }
            try engine.lock.descriptor.allocate(allocated..<needed)
            allocated = needed
        }
    }

    /// The maximum number of bytes by which the database grows.
    ///
    /// A message has a row and an entry in each index of its queue; its lane and its kind may be new, with theirs. Each of these
    /// eight can split a page in each level of its tree, of which there are five at most, in three.
    private func most(of growth: Growth) -> Int { growth.messages * 8 * 11 * pageSize + 2 * growth.bytes }

    // MARK: Failures

    func recover(from cause: any Error) -> CommitFailure {
        switch DiskFailure(cause, systemError: sql.systemError) {
        case .full: return .full(hasMoreRoom: makeRoom(after: engine.error(cause).asFull))
        case .broken:
            // After a failed sync, the kernel may have dropped what it could not write, and will not report that again:
            // nothing may be committed on top of it (https://lwn.net/Articles/752063/).
            engine.enterFailed(engine.error(cause))
            return .broken(isUndone: overwrite())
        case nil: return .other
        }
    }

    /// Returns whether there is more room than the commit had that failed.
    private func makeRoom(after error: StoreError) -> Bool {
        let wasNotFull = !engine.isFull
        engine.enterFull(error)
        // A read may have kept the log from being reset, so that it took the room of this commit.
        let wasUsed = checkpoints.framesInLog > 0
        // The integrity check is such a read, and goes on for long.
        var isChecking: Bool
        repeat {
            isChecking = engine.check.giveWay()
            checkpoint(.restart)
        } while isChecking && checkpoints.framesInLog > 0
        let hasMoreRoom = wasNotFull || wasUsed && checkpoints.framesInLog == 0
        if wasNotFull { releaseReservedPages() }
        return hasMoreRoom
    }

    func undoFailedCommit() -> Bool { overwrite() || !isCompleteInLog() }

    /// Overwrites what a failed commit left in the log by a small commit. Returns whether that is on disk. SQLite omits
    /// a change that changes nothing, so a counter is increased.
    private func overwrite() -> Bool { write { try $0.run("UPDATE store SET undone = undone + 1") } }

    /// Whether the log holds a whole commit behind the last one that succeeded, which a later start would find. Also true if
    /// that cannot be read. A commit that failed for lack of room is not whole if its last page was not written.
    private func isCompleteInLog() -> Bool {
        guard let head = engine.logIndex.head,
            let bytes = try? Files.read(engine.path + "-wal", for: engine.path)
        else { return true }
        return WriteAheadLog(bytes, pageSize: pageSize).holdsCommit(after: head)
    }

    /// Writes every page of the log to the file again, syncs both, and empties the log: what a failed commit left is
    /// gone, and what earlier ones wrote was rewritten.
    ///
    /// Then the file is checked as the disk has it: the kernel's pages of it are dropped, and a connection that is
    /// opened for this reads everything. Readers are opened again, too. The writer's connection stays open: its only
    /// state are cached pages, which it drops. Closing it would release the locks that exclude a second process, and
    /// prove nothing more.
    private func checkAfterFailure() {
        // Its snapshot keeps the log from being emptied. If it is still held now, the next turn finds it released.
        engine.check.giveWay()
        do {
            guard try checkpoints.run(.truncate, on: sql) else { return }
            allocated = min(allocated, engine.lock.descriptor.size)
            try sql.run("PRAGMA shrink_memory")
            engine.readers.renew()
            engine.lock.descriptor.dropCachedPages()
            try engine.reserve.allocateLog()
            guard try IntegrityCheck.isSound(engine.path), overwrite() else { return }
            engine.leaveFailed()
            // If the disk was full before it failed, the reserve was given back.
            if engine.refillReserve() { refillReservedPages() }
        } catch {
            engine.logger.debug("disk still fails", metadata: ["error": "\(error)"])
        }
    }

    // MARK: Overwriting

    /// First the database, by the pages that are left to do, then the log.
    func overwriteUnused(from position: Int?) throws(StoreError) -> OverwriteProgress {
        if let refusal = engine.health.refusal { throw refusal }
        guard beginLogAgain() else {
            engine.check.giveWay()
            return .heldUp
        }
        do {
            guard position != 0 else {
                try engine.reserve.overwriteLog(behind: engine.logIndex.head?.committed ?? 0, pageSize: pageSize)
                return .done
            }
            // The pages that SQLite has in memory are as they were before.
            defer { _ = try? sql.run("PRAGMA shrink_memory") }
            var unused = try UnusedBytes(of: engine.lock.descriptor, pageSize: pageSize)
            let next = try unused.overwrite(from: position)
            try engine.lock.descriptor.sync()
            return .more(from: next)
        } catch {
            let failure = engine.error(error)
            if error is FileError { engine.enterFailed(failure) }
            throw failure
        }
    }

    /// Moves all of the log into the database, and begins the log again: then it has one small commit. Returns false if a read
    /// uses it, or if that failed.
    private func beginLogAgain() -> Bool {
        guard let before = engine.logIndex.head?.committed, checkpoint(.passive), overwrite(),
            let after = engine.logIndex.head?.committed
        else { return false }
        return before == 0 || after <= before
    }

    // MARK: Checkpoints

    /// Returns whether every page of the log is in the file.
    @discardableResult private func checkpoint(_ mode: SQLiteConnection.CheckpointMode) -> Bool {
        defer { engine.checkThatFilesAreInPlace() }
        do {
            let isComplete = try checkpoints.run(mode, on: sql)
            // A complete checkpoint truncates the file to its pages.
            if isComplete { allocated = min(allocated, engine.lock.descriptor.size) }
            engine.recordLog(frames: isComplete ? 0 : checkpoints.framesInLog)
            return isComplete
        } catch {
            switch DiskFailure(error, systemError: sql.systemError) {
            case .full: engine.enterFull(.full(detail: "no room for a checkpoint"))
            case .broken, nil: engine.enterFailed(engine.error(error))
            }
            return false
        }
    }

    /// Runs a small transaction of the writer itself. Returns whether it was committed.
    private func write(_ body: (SQL) throws -> Void) -> Bool {
        do {
            try sql.transaction(.write) { try body(sql) }
            return true
        } catch {
            if DiskFailure(error, systemError: sql.systemError) == .broken { engine.enterFailed(engine.error(error)) }
            return false
        }
    }
}
