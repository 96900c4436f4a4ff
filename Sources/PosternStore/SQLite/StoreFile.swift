import Foundation
import Glibc
import Logging
import PosternCore

/// The file of the store: its ownership, its condition, and how it is opened.
enum StoreFile {
    static let pageSize = 8192
    /// What the names of the files of a store end with, the database first.
    static let tails = ["", "-wal", "-shm"]
    static let logger = Logger(label: "postern.store")

    /// Prepares the store for being opened by SQLite. Returns the lock that has to be held as long as it is open.
    static func prepare(
        _ path: String, startFresh: Bool, recover: Bool, reserve: DiskReserve, at now: Timestamp, logger: Logger
    ) throws -> StoreLock {
        try Files.makeFolders(of: path)
        if let doubt = FileSystem(of: path).doubt {
            logger.warning(
                "the file system of the store may break the promise that a 202 is on disk",
                metadata: ["store.path": "\(path)", "detail": "\(doubt)"])
        }
        try refuseLinks(at: path)
        var lock = try StoreLock(for: path)
        try reserve.makeRoomForStart()
        // A process that was killed may have left a commit that is only in memory, or one whose sync failed: the kernel
        // then shows pages that are not on the disk. What is built on either would be behind damage after a power cut.
        if try Files.size(of: path + "-wal", for: path) > 0 { try Files.sync(path + "-wal", for: path) }
        if startFresh, try setAsideIfDamaged(path, at: now, logger: logger) {
            let former = lock
            lock = try StoreLock(for: path)
            former.release()
        }
        try examineLog(of: path, recovering: recover, at: now, logger: logger)
        if !startFresh { try StoreRestore.refuseInterrupted(at: path) }
        lock = try createIfEmpty(path, at: now, holding: lock)
        try inspect(path)
        try reserve.allocateLog()
        // The log may be a new file. SQLite syncs its name, too, but ignores an error of that, and a power cut could
        // then lose the log with all answered commits.
        try Files.sync(Files.folder(of: path), for: path)
        for file in ExposedFile.all(of: path) {
            logger.warning(
                "other users can read or change messages of the store",
                metadata: ["path": "\(file.path)", "mode": "\(file.modeText)", "remedy": "\(file.remedy)"])
        }
        return lock
    }

    /// Throws if a file that belongs to the store is a symbolic link: it would be created, or overwritten, elsewhere. The
    /// database itself may be one.
    private static func refuseLinks(at path: String) throws(StoreError) {
        for file in (tails.dropFirst() + [".reserve"]).map({ path + $0 }) {
            var status = stat()
            guard lstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFLNK else { continue }
            throw .cannotCreate(path: path, detail: "\(file) is a symbolic link; remove it")
        }
    }

    // MARK: Creating

    /// Creates a new store if the file is empty. Returns the lock of the file that is then at the path.
    ///
    /// The store is created under another name and renamed when it is complete and on disk: a kill at any time leaves
    /// either no store or a complete one.
    static func createIfEmpty(_ path: String, at now: Timestamp, holding lock: StoreLock) throws -> StoreLock {
        guard try isEmpty(path) else { return lock }
        guard try Files.size(of: path + "-wal", for: path) == 0 else {
            throw StoreError.corrupt(path: path, detail: "the file is empty, but its write-ahead log is not")
        }
        let unfinished = path + ".new"
        for tail in tails + ["-journal"] { try Files.remove(unfinished + tail, for: path) }
        try Files.write([], to: unfinished, for: path)
        let sql = try openForWriting(unfinished)
        // The file is synced once, when it is complete.
        try sql.run("PRAGMA synchronous = NORMAL")
        try Migrations.apply(with: sql)
        try sql.transaction(.write) {
            try sql.run("INSERT INTO store (sequence, batch) VALUES (?, 0)", firstSequence(at: now))
            try sql.run("INSERT INTO reserve VALUES (zeroblob(?))", DiskReserve.bytesInside)
        }
        // When it closes the last connection, SQLite does this too, but ignores errors. The log would then stay behind.
        try sql.connection.check(sql.connection.checkpoint(.truncate).code)
        try sql.close()
        try Files.sync(unfinished, for: path)
        let newLock = try StoreLock(for: unfinished)
        for tail in tails.dropFirst() { try Files.remove(path + tail, for: path) }
        try Files.rename(unfinished, to: path, for: path)
        lock.release()
        return newLock
    }

    /// Whether nothing has been stored in the file. A kill can leave the migrator's own table behind.
    private static func isEmpty(_ path: String) throws -> Bool {
        guard try Files.size(of: path, for: path) > 0 else { return true }
        guard try Files.size(of: path + "-wal", for: path) == 0, try isDatabase(path) else { return false }
        let sql = try openForReading(path)
        defer { try? sql.close() }
        return try sql.transaction(.read) {
            try sql.value("PRAGMA application_id", as: Int.self) == 0
                && !sql.exists("SELECT 1 FROM sqlite_master WHERE tbl_name <> 'grdb_migrations'")
        }
    }

    private static func isDatabase(_ path: String) throws(StoreError) -> Bool {
        try Files.read(path, atMost: 16, for: path) == Array("SQLite format 3\0".utf8)
    }

    // MARK: Examining

    /// Throws if the write-ahead log lost answered commits. Examined before SQLite opens the store, since its recovery
    /// would drop them silently. With `recovering`, a copy of everything is kept, and the log is repaired.
    static func examineLog(of path: String, recovering: Bool, at now: Timestamp, logger: Logger) throws {
        guard let header = try Files.read(path, atMost: 100, for: path), header.count == 100 else { return }
        let size = Int(header[16]) << 8 | Int(header[17])
        let log = WriteAheadLog(
            try Files.read(path + "-wal", for: path) ?? [], index: try currentIndex(of: path),
            pageSize: size == 1 ? 65536 : size)
        guard let damage = log.damage else { return }
        guard recovering else { throw StoreError.logDamaged(path: path, detail: damage) }
        let kept = path + ".damaged-\(now.milliseconds)"
        for tail in tails {
            guard let bytes = try Files.read(path + tail, for: path) else { continue }
            try Files.write(bytes, to: kept + tail, for: path)
        }
        // A power cut leaves the copy, and the damaged log or the repaired one. The index goes last: without it, damage
        // to the last commit would not be seen again.
        try Files.sync(Files.folder(of: path), for: path)
        try Files.write(log.repaired, to: path + "-wal.repaired", for: path)
        try Files.rename(path + "-wal.repaired", to: path + "-wal", for: path)
        try Files.remove(path + "-shm", for: path)
        logger.warning(
            "write-ahead log repaired; a copy of the damaged store is kept",
            metadata: ["store.path": "\(path)", "store.keptAs": "\(kept)", "detail": "\(damage)"])
    }

    /// The same for a store that will only be read. While a gateway is running, there is nothing to examine: SQLite
    /// recovered the log when the gateway opened it, and does not do so again.
    static func examineUnopened(_ path: String) throws {
        guard try Files.size(of: path, for: path) > 0, StoreLock.isFree(path) else { return }
        try examineLog(of: path, recovering: false, at: SystemTime().now, logger: logger)
    }

    /// The index in shared memory. Nil if it was written before the machine started, because it may then be older than
    /// the log.
    private static func currentIndex(of path: String) throws -> [UInt8]? {
        var now = timespec()
        var sinceBoot = timespec()
        guard let status = try Files.status(of: path + "-shm", for: path), clock_gettime(CLOCK_REALTIME, &now) == 0,
            clock_gettime(CLOCK_BOOTTIME, &sinceBoot) == 0, status.st_mtim.tv_sec > now.tv_sec - sinceBoot.tv_sec
        else { return nil }
        return try Files.read(path + "-shm", atMost: WALIndexHead.size, for: path)
    }

    /// Throws if the file is damaged, does not belong to Postern, or is of a later version. Does not change it. A
    /// missing or empty file is accepted.
    static func inspect(_ path: String) throws {
        guard try Files.size(of: path, for: path) > 0 else { return }
        guard access(path, R_OK | W_OK) == 0 else {
            throw StoreError.cannotCreate(path: path, detail: lastSystemError())
        }
        guard try Inode.at(path, for: path)?.isRegularFile ?? true else {
            throw StoreError.cannotCreate(path: path, detail: "it is not a regular file")
        }
        let sql = try openForReading(path)
        defer { try? sql.close() }
        try sql.transaction(.read) {
            let owner = try sql.value("PRAGMA application_id", as: Int.self) ?? 0
            if owner != Migrations.applicationID, try sql.exists("SELECT 1 FROM sqlite_master") {
                throw StoreError.foreign(path: path)
            }
            if let place = try Migrations.placeMovedTo(sql) { throw StoreError.moved(path: path, to: place) }
            if try Migrations.isNewer(sql) { throw StoreError.newer(path: path) }
        }
    }

    /// Whether the beginning of a file that SQLite does not recognize as a database still names a table that every
    /// store has. If so, it is a damaged store; otherwise it never was one.
    static func holdsOurTables(_ path: String) throws(StoreError) -> Bool {
        let start = Data(try Files.read(path, atMost: 1 << 24, for: path) ?? [])
        return start.range(of: Data("grdb_migrations".utf8)) != nil
    }

    // MARK: Opening

    /// A read-only connection with its own cache.
    static func openForReading(_ path: String, busyTimeout: Duration = .zero) throws -> SQL {
        let sql = SQL(try SQLiteConnection(path, isReadOnly: true, busyTimeout: busyTimeout))
        try Migrations.showWhatIsMissing(with: sql)
        return sql
    }

    // A transaction that changes many pages would otherwise need a file in a directory for temporary files. A container with
    // a read-only root may have none, and payloads do not belong there.
    private static let inMemory = "PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;"

    /// A read-only connection of a running gateway.
    static func openReader(_ path: String, admitsLate: Bool) throws -> SQL {
        // It may find the store locked for a moment (https://www.sqlite.org/wal.html, section 2.4).
        SQL(
            try SQLiteConnection(
                path, isReadOnly: true, busyTimeout: .seconds(10), preparing: "PRAGMA cache_size = -2048;" + inMemory),
            admitsLate: admitsLate)
    }

    private static func openForWriting(_ path: String, admitsLate: Bool = false) throws -> SQL {
        let script = """
            -- These two only take effect before the first table. Half as many pages are written in two thirds of the calls; a
            -- commit of one message writes five of them.
            PRAGMA page_size = 8192;
            -- Lets the file shrink again.
            PRAGMA auto_vacuum = INCREMENTAL;
            PRAGMA cache_size = -16384;
            -- Deleted content is overwritten if its page is written anyway; this matters most for credentials. Debian's
            -- default, ON, also writes zeros over every page of a deleted payload: the log would grow with each delivery as
            -- with an acceptance, and on a full disk there is no room for that.
            PRAGMA secure_delete = FAST;
            """
        let sql = SQL(try SQLiteConnection(path, preparing: script + inMemory), admitsLate: admitsLate)
        guard try sql.value("PRAGMA journal_mode = WAL", as: String.self) == "wal" else {
            throw StoreError.failed(detail: "SQLite cannot use a write-ahead log for \(path)")
        }
        return sql
    }

    static func open(_ path: String, admitsLate: Bool) throws -> SQL {
        let sql = try openForWriting(path, admitsLate: admitsLate)
        // Promise 1: a commit is on disk when it returns. With NORMAL, which is customary for a write-ahead log, a power cut
        // takes back commits that were answered.
        try sql.run("PRAGMA synchronous = FULL")
        let level = try sql.value("PRAGMA synchronous", as: Int.self)
        guard level == 2 else { throw StoreError.failed(detail: "synchronous is \(level ?? -1), not FULL") }
        try sql.run("PRAGMA wal_autocheckpoint = 1000")
        // A log that has grown beyond this is truncated to it; see `DiskReserve`.
        try sql.run("PRAGMA journal_size_limit = 3145728")
        // The first commit begins the log again, in blocks that the log has: on a full disk there are no others.
        do {
            try sql.connection.check(sql.connection.checkpoint(.restart).code)
        } catch {
            guard DiskFailure(error, systemError: sql.systemError) == .full else { throw error }
        }
        try Migrations.apply(with: sql)
        return sql
    }

    /// Ids continue at least from the time of the start, in units that no earlier run can have reached, so that the ids
    /// of a store that was set aside, or replaced by an older copy, are not used again. The units count from
    /// 2020-01-01.
    static func firstSequence(at now: Timestamp) -> Int64 {
        max(0, now.milliseconds / 1000 - 1_577_836_800) << 20
    }

    // MARK: Setting aside

    /// Renames a damaged store and its other files; does not change an intact one. Returns whether it was renamed.
    static func setAsideIfDamaged(_ path: String, at now: Timestamp, logger: Logger) throws -> Bool {
        guard try sizes(of: path) > 0, try isDamaged(path, at: now, logger: logger) else { return false }
        let kept = path + ".damaged-\(now.milliseconds)"
        try rename(path, to: kept)
        logger.warning(
            "damaged store renamed; starting with an empty one",
            metadata: ["store.path": "\(path)", "store.keptAs": "\(kept)"])
        return true
    }

    /// The bytes of the database and its log; 0 if there is neither.
    static func sizes(of path: String) throws(StoreError) -> Int {
        try Files.size(of: path, for: path) + Files.size(of: path + "-wal", for: path)
    }

    /// Renames the files of a store.
    static func rename(_ path: String, to name: String) throws(StoreError) {
        for tail in tails where try Files.status(of: path + tail, for: path) != nil {
            try Files.rename(path + tail, to: name + tail, for: path)
        }
    }

    private static func isDamaged(_ path: String, at now: Timestamp, logger: Logger) throws -> Bool {
        do {
            guard try Files.size(of: path, for: path) > 0 else { return true }
            try examineLog(of: path, recovering: false, at: now, logger: logger)
            try inspect(path)
            let sql = try openForReading(path)
            defer { try? sql.close() }
            // The check of every start does not look into indexes; damage there shows only with the statement that meets it.
            return try !IntegrityCheck.findings("PRAGMA integrity_check(1)", with: sql).isEmpty
        } catch {
            switch StoreError(error, path: path) {
            case .corrupt, .logDamaged: return true
            default: throw error
            }
        }
    }
}
