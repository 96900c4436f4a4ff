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
    /// The number of messages of one commit for which `bytesOfLog` is enough, wherever they are in the database.
    static let messagesPerCommit = 32
    private let store: String
    private let path: String

    init(for store: String) {
        self.store = store
        path = store + ".reserve"
    }

    /// Allocates the reserve file. Returns false if the disk is too full.
    @discardableResult func take() -> Bool {
        guard let descriptor = file() else { return false }
        if (try? descriptor.allocate(0..<Self.bytes)) != nil { return true }
        if size > Self.bytesForStart { ftruncate(descriptor.number, off_t(Self.bytesForStart)) }
        return false
    }

    /// Returns most of the space to the file system.
    func giveBack() {
        if size > Self.bytesForStart { shrink(to: Self.bytesForStart) }
    }

    /// Whether there is room for the released part of the reserve, and for some messages.
    var canBeTaken: Bool { available > Self.bytes - min(size, Self.bytes) + Self.bytes / 2 }

    /// Releases the reserve if a start might need its space: for the log, its index, and a first commit. After a kill, the
    /// log and the index still have their blocks.
    ///
    /// A file system with a journal, such as ext4, does not use freed blocks again before the journal is committed. The last
    /// process, and this one, may have freed them just before; the syncs commit it.
    func makeRoomForStart() throws(StoreError) {
        try Files.sync(Files.folder(of: store), for: store)
        // Blocks that only the superuser or the file system itself may use might not be available.
        if free(\.f_bavail) < Self.bytesForStart, size > 0 { shrink(to: 0) }
    }

    /// Keeps space for the next start on a full disk, as much as there is. Call it after the log and its index were removed,
    /// before another program takes their space.
    func keepForStart() {
        guard size < Self.bytesForStart, let descriptor = file() else { return }
        // The log and its index were removed just before. Nothing is written after this, so an error concerns no one.
        try? Files.sync(Files.folder(of: store), for: store)
        for bytes in [Self.bytesForStart, Self.bytesForStart / 2] {
            if (try? descriptor.allocate(0..<bytes)) != nil { return }
        }
    }

    /// Allocates the missing blocks of the log. To SQLite, zeros are an empty log.
    func allocateLog() {
        let descriptor = FileDescriptor(open(store + "-wal", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600))
        guard descriptor.isOpen, descriptor.size < Self.bytesOfLog else { return }
        // If there is not enough room, the log grows without allocation.
        try? descriptor.allocate(0..<Self.bytesOfLog)
    }

    /// Nil if it cannot be opened. What it is was checked at the start (`StoreFile.refuseLinks`).
    private func file() -> FileDescriptor? {
        let descriptor = FileDescriptor(open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600))
        return descriptor.isOpen ? descriptor : nil
    }

    private func shrink(to bytes: Int) {
        guard let descriptor = file() else { return }
        ftruncate(descriptor.number, off_t(bytes))
        fsync(descriptor.number)
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
