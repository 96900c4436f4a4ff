import Glibc
import PosternCore

/// Disk space that is reserved for delivering and deleting messages when the disk is full.
///
/// No message can be accepted then, but deliveries must continue, and even a deletion writes to the log first. So some
/// space is reserved where nothing else on the disk can take it:
///
/// - a file next to the store. Most of it is released when the disk is full, and the rest if the next start finds no
///   room. It remains after a kill, and a stop on a full disk takes that rest again.
/// - pages inside the database: the row of table `reserve`. Deleting the row frees them (`SQLiteWriter`).
/// - blocks for the write-ahead log, which is not made smaller than that while the store is open.
/// - blocks for the index of that log (`LogIndex`).
/// - blocks for every page that a commit may refer to (`SQLiteWriter.allocatePages`), so that a checkpoint finds room.
struct DiskReserve {
    static let bytes = 8 << 20
    /// The space that the next start may need: the log, its index, and a first commit.
    static let bytesForStart = 2 << 20
    static let bytesInside = 1 << 20
    static let bytesOfLog = 1 << 20
    /// What the log needs between two checkpoints under load. SQLite does not make it smaller (`journal_size_limit`).
    static let bytesOfUsualLog = 3 << 20
    /// The number of messages of one commit for which `bytesOfLog` is enough, wherever they are in the database.
    static let messagesPerCommit = 32
    private let store: String
    private let path: String

    init(for store: String) {
        self.store = store
        path = store + ".reserve"
    }

    /// Allocates the reserve file. Returns false if the disk is too full.
    @discardableResult func refill() throws(FileError) -> Bool {
        do throws(FileError) {
            guard let file = try self.file(O_CREAT) else { return false }
            try file.allocate(0..<Self.bytes)
            return true
        } catch {
            guard error.isFull else { throw error }
        }
        try release()
        return false
    }

    /// Returns most of the space to the file system.
    func release() throws(FileError) { try shrink(to: Self.bytesForStart) }

    /// Whether there is room for the released part of the reserve, and for some messages.
    var canBeRefilled: Bool { available > Self.bytes - min(size, Self.bytes) + Self.bytes / 2 }

    /// Releases the reserve if a start might need its space: for the log, its index, and a first commit. After a kill, the
    /// log and the index still have their blocks.
    ///
    /// A file system with a journal, such as ext4, does not use freed blocks again before the journal is committed. The last
    /// process, and this one, may have freed them just before; the syncs commit it.
    func makeRoomForStart() throws {
        try Files.sync(Files.folder(of: store), for: store)
        // Blocks that only the superuser or the file system itself may use might not be available.
        if free(\.f_bavail) < Self.bytesForStart { try shrink(to: 0) }
    }

    /// Keeps space for the next start on a full disk, as much as there is. Call it after the log and its index were removed,
    /// before another program takes their space.
    func keepForStart() {
        // Nothing is written after this, so an error concerns no one.
        guard let file = try? self.file(O_CREAT), file.size < Self.bytesForStart else { return }
        // The log and its index were removed just before.
        try? Files.sync(Files.folder(of: store), for: store)
        for bytes in [Self.bytesForStart, Self.bytesForStart / 2] {
            if (try? file.allocate(0..<bytes)) != nil { return }
        }
    }

    /// Allocates the missing blocks of the log, and writes zeros to them, which are an empty log to SQLite. To sync a file that
    /// grows, or whose blocks were never written, takes two to four times as long as to sync one that is overwritten: the file
    /// system has to record the change.
    func allocateLog() throws(FileError) {
        let descriptor = FileDescriptor(open(store + "-wal", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600))
        do throws(FileError) {
            guard descriptor.isOpen else { throw FileError("the log cannot be opened") }
            let size = descriptor.size
            guard size < Self.bytesOfUsualLog else { return }
            do throws(FileError) {
                try descriptor.allocate(0..<Self.bytesOfUsualLog)
                try descriptor.writeZeros(from: size, to: Self.bytesOfUsualLog)
            } catch {
                guard error.isFull else { throw error }
                if size < Self.bytesOfLog { try descriptor.allocate(0..<Self.bytesOfLog) }
            }
        } catch {
            // If there is not enough room, the log grows without allocation.
            guard error.isFull else { throw error }
        }
    }

    /// Overwrites what former logs have left behind the frames of the current one, which begins in the same file.
    func overwriteLog(behind frames: Int, pageSize: Int) throws(FileError) {
        let log = FileDescriptor(open(store + "-wal", O_RDWR | O_NOFOLLOW | O_CLOEXEC))
        guard log.isOpen else { throw FileError("the log cannot be opened") }
        try log.writeZeros(from: WriteAheadLog.size(ofFrames: frames, pageSize: pageSize), to: log.size)
        try log.sync()
    }

    /// Opens the reserve file; nil if there is none. What it is was checked at the start (`StoreFile.refuseLinks`).
    private func file(_ flags: Int32 = 0) throws(FileError) -> FileDescriptor? {
        let file = FileDescriptor(open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0o600))
        if file.isOpen { return file }
        let error = FileError("the reserve cannot be opened")
        guard error.code == ENOENT else { throw error }
        return nil
    }

    private func shrink(to bytes: Int) throws(FileError) {
        if let file = try self.file(), file.size > bytes { try file.cut(to: bytes) }
    }

    /// The size of the reserve file in bytes. A file that cannot be examined counts as empty.
    private var size: Int { (try? Files.size(of: path, for: store)) ?? 0 }

    /// The number of bytes that this process could still write on the disk of the store.
    var available: Int { free(geteuid() == 0 ? \.f_bfree : \.f_bavail) }

    private func free(_ blocks: KeyPath<statvfs, fsblkcnt_t>) -> Int {
        var status = statvfs()
        guard statvfs(Files.folder(of: store), &status) == 0 else { return .max }
        return Int(status[keyPath: blocks] * status.f_frsize)
    }
}
