import Logging
import PosternCore
import PosternThreads
import Synchronization

/// A store in an SQLite file. One process at a time.
///
/// One connection writes, on the thread of the commit loop, and checkpoints; all others only read. That is fast, and avoids
/// the WAL-reset bug of SQLite before 3.51.3, which requires two connections that write or checkpoint.
final class SQLiteEngine: StoreEngine {
    let path: String
    let health: StoreHealth
    let logger: Logger
    let laneAdmission: LaneAdmission
    /// How far the log may grow.
    private let maxLogBytes: Int
    /// The connection that writes. Used by `init`, then by the commit loop's thread, then by `close`.
    nonisolated(unsafe) let sql: SQL
    /// Bytes of a page of the database, which stays what it was when the store was created.
    let pageSize: Int
    let readers: Readers
    let reserve: DiskReserve
    let logIndex: LogIndex
    let lock: StoreLock
    let check: IntegrityCheck
    /// The file of the log when the store was opened.
    private let log: Inode?
    /// The numbers of messages and credentials that the writer begins behind.
    let firstSequence: Int64
    let firstVersion: Int64
    private let batch: Atomic<Int64>
    private let isLogPinned = Atomic<Bool>(false)

    /// - Parameters:
    ///   - startFresh: A damaged store is kept under a new name, and an empty one is created.
    ///   - recover: If the write-ahead log is damaged, a copy of the store is kept, and the log is repaired.
    init(
        _ options: OutboxOptions, startFresh: Bool, recover: Bool, health: StoreHealth, time: any TimeSource,
        threads: any Threads, logger: Logger, prepare: (SQL) throws -> Void, read: (SQL) throws -> Void
    ) throws(StoreError) {
        path = options.path
        laneAdmission = options.engine.laneAdmission
        maxLogBytes = options.maxLogBytes
        self.health = health
        self.logger = logger
        reserve = DiskReserve(for: options.path)
        let hasReserve: Bool
        do {
            lock = try StoreFile.prepare(
                options.path, startFresh: startFresh, recover: recover, reserve: reserve, at: time.now, logger: logger)
            let admitsLate = laneAdmission != .inAppend
            let sql = try StoreFile.open(options.path, admitsLate: admitsLate)
            self.sql = sql
            pageSize = try sql.value("PRAGMA page_size", as: Int.self) ?? StoreFile.pageSize
            readers = Readers { try StoreFile.openReader(options.path, admitsLate: admitsLate) }
            logIndex = try LogIndex(of: options.path)
            log = try Inode.at(options.path + "-wal", for: options.path)
            try sql.transaction(.write) { try prepare(sql) }
            let (latest, version) = try readers.readSnapshot { sql in
                try read(sql)
                return (try AssignedNumbers(sql), try AssignedNumbers.version(sql))
            }
            // Ids continue at least from the time of this start. If the file is a copy of an older state, the ids that
            // were assigned after the copy was made are not assigned again.
            firstSequence = max(latest.sequence, StoreFile.firstSequence(at: time.now))
            firstVersion = version
            batch = Atomic(latest.batch)
            hasReserve = try reserve.refill()
            check = try IntegrityCheck(path: options.path, on: threads, logger: logger)
        } catch {
            throw Self.startError(error, path: options.path)
        }
        if !hasReserve { enterFull(Self.noReserve) }
    }

    func close() {
        check.stop()
        // Readers are closed first: the last connection to close removes the WAL, which a reader cannot. If a reader is
        // still in use, the WAL remains, but is empty.
        readers.close()
        // If it fails, SQLite tries again as it closes.
        _ = try? Checkpoints(of: logIndex).run(.truncate, on: sql)
        try? sql.close()
        logIndex.close()
        if isFull { reserve.keepForStart() }
        lock.release()
    }

    var place: String { path }
    var failure: StoreError? { check.failure }
    var messagesPerCommitWhenFull: Int { DiskReserve.messagesPerCommit }
    var isFull: Bool { health.condition == .full }

    var figures: StoreFigures {
        // For metrics only: a file that cannot be examined counts as empty.
        func size(of file: String) -> Int { (try? Files.size(of: file, for: path)) ?? 0 }
        return StoreFigures(store: size(of: path), log: size(of: path + "-wal"), free: reserve.available)
    }

    static func view(_ path: String) throws -> Readers {
        try StoreFile.examineUnopened(path)
        try StoreFile.inspect(path)
        return Readers { try StoreFile.openForReading(path, busyTimeout: .seconds(5)) }
    }

    func makeWriter() -> any StoreWriter { SQLiteWriter(of: self) }

    var latestBatch: BatchID { BatchID(rawValue: batch.load(ordering: .relaxed)) }
    func nextBatch() -> BatchID { BatchID(rawValue: batch.wrappingAdd(1, ordering: .relaxed).newValue) }

    func error(_ error: any Error) -> StoreError { StoreError(error, path: path) }
    func startError(_ error: any Error) -> StoreError { Self.startError(error, path: path) }

    private static func startError(_ error: any Error, path: String) -> StoreError {
        let error = StoreError(error, path: path)
        guard error.isFull else { return error }
        let size = DiskReserve.bytesForStart >> 20
        return .cannotCreate(path: path, detail: "the disk is full; a start requires up to \(size) MiB (\(error))")
    }

    // MARK: The disk

    func enterFull(_ error: StoreError) {
        guard health.becomes(.full, because: error) else { return }
        logger.error("disk full; rejecting new messages, deliveries continue", metadata: ["error": "\(error)"])
        do throws(FileError) { try reserve.release() } catch { failed(error) }
    }

    private static let noReserve = StoreError.full(detail: "the disk has no room for the reserve")

    /// Allocates the reserve file. Without room for it the disk is full. Returns whether it is allocated.
    func refillReserve() -> Bool {
        do throws(FileError) {
            if try reserve.refill() { return true }
            enterFull(Self.noReserve)
        } catch {
            failed(error)
        }
        return false
    }

    /// A call on a file of the store failed.
    private func failed(_ error: FileError) {
        if !error.isFull { enterFailed(self.error(error)) }
    }

    /// Accepts messages again if there is room for them and for the reserve. Returns whether that is a change.
    @discardableResult func checkForSpace() -> Bool {
        guard isFull, !isLogPinned.load(ordering: .relaxed), reserve.canBeRefilled, refillReserve() else {
            return false
        }
        health.recovered()
        logger.notice("disk space recovered; accepting messages")
        return true
    }

    /// Reports a reader, perhaps of another program, that keeps the log from being reset, and stops accepting messages
    /// before the log fills the disk. `frames`: pages in the log after a checkpoint.
    func recordLog(frames: Int) {
        let bytes = frames * pageSize
        let isLong = bytes > maxLogBytes / 16
        // On a full disk, the log has room for few commits.
        if isLong || isFull && frames > 0, check.giveWay() {
            return logger.info(
                "store integrity check interrupted, because it keeps the write-ahead log from being reset; it begins again later",
                metadata: ["store.path": "\(path)", "bytes": .stringConvertible(bytes)])
        }
        guard isLong else { return isLogPinned.store(false, ordering: .relaxed) }
        if !isLogPinned.exchange(true, ordering: .relaxed) {
            logger.warning(
                "a long read keeps the write-ahead log from being reset; it grows until that read ends",
                metadata: ["store.path": "\(path)", "bytes": .stringConvertible(bytes)])
        }
        guard bytes > maxLogBytes else { return }
        enterFull(.full(detail: "a long read keeps the write-ahead log at \(bytes >> 20) MiB"))
    }

    func enterFailed(_ error: StoreError) {
        guard health.becomes(.failed, because: error) else { return }
        logger.error(
            "disk failed; rejecting all requests until the store has been checked", metadata: ["error": "\(error)"])
    }

    func leaveFailed() {
        health.recovered()
        logger.notice("disk recovered and store checked; accepting messages")
    }

    private var areFilesInPlace: Bool {
        get throws { try lock.isStill(at: path) && log != nil && Inode.at(path + "-wal", for: path) == log }
    }

    /// Compares the files at the path with those that are open: what is written to a deleted file is lost.
    func checkThatFilesAreInPlace() {
        // After an error it is not known where the files are. The next check may find out.
        guard let areInPlace = try? areFilesInPlace, !areInPlace else { return }
        let error = StoreError.lost(path: path)
        guard health.becomes(.lost, because: error) else { return }
        logger.critical("store deleted or replaced; rejecting everything", metadata: ["error": "\(error)"])
    }
}
