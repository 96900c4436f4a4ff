import Glibc
import PosternCore

/// Disk space that is reserved for delivering and deleting messages when the disk is full.
///
/// No message can be accepted then, but deliveries must continue, and even a deletion writes to the log first. So some
/// space is reserved where nothing else on the disk can take it:
///
/// - a file next to the store. Most of it is released when the disk is full, and the rest if the next start finds no
///   room. It remains after a stop and after a kill.
/// - pages inside the database: the row of table `reserve`. Deleting the row frees them (`WriterLoop`).
/// - blocks for the write-ahead log, which is not made smaller than that while the store is open.
/// - blocks for the index of that log (`LogIndex`).
/// - blocks for every page that a commit may refer to (`WriterLoop.allocatePages`), so that a checkpoint finds room.
struct DiskReserve {
    static let bytes = 8 << 20
    /// The space that the next start may need: the log, its index, and a first commit.
    static let bytesForStart = 2 << 20
    static let bytesInside = 1 << 20
    static let bytesOfLog = 1 << 20
    /// The minimum space with which a start is attempted.
    private static let leastForStart = 256 << 10
    private let store: String
    private let path: String

    init(for store: String) {
        self.store = store
        path = store + ".reserve"
    }

    /// Allocates the reserve file. Returns false if the disk is too full.
    @discardableResult func take() -> Bool {
        let descriptor = FileDescriptor(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
        guard descriptor.isOpen else { return false }
        let former = size
        if (try? descriptor.allocate(0..<Self.bytes)) != nil { return true }
        // Allocating only a part would take the last free space from the store.
        ftruncate(descriptor.number, min(former, Self.bytesForStart))
        return false
    }

    /// Returns most of the space to the file system.
    func giveBack() {
        if size > Self.bytesForStart { truncate(path, Self.bytesForStart) }
    }

    /// Whether there is room for the released part of the reserve, and for some messages.
    var canBeTaken: Bool { available > Self.bytes - min(size, Self.bytes) + Self.bytes / 2 }

    /// Ensures, before SQLite opens the store, that there is enough space for a start: SQLite maps the index of the log
    /// into memory, and an access to a page without blocks would end the process with SIGBUS.
    func makeRoomForStart() throws(StoreError) {
        if available < Self.bytesForStart, size > 0 { unlink(path) }
        let index = LogIndex.bytes(forFrames: try Files.size(of: store + "-wal", for: store) / StoreFile.pageSize)
        let needed = Self.leastForStart + index
        guard available >= needed else {
            throw .cannotCreate(path: store, detail: "the disk is full; a start requires \(needed >> 10) KiB")
        }
    }

    /// Allocates the missing blocks of the log. To SQLite, zeros are an empty log.
    func allocateLog() {
        let descriptor = FileDescriptor(open(store + "-wal", O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
        guard descriptor.isOpen, descriptor.size < Self.bytesOfLog else { return }
        // If there is not enough room, the log grows without allocation.
        try? descriptor.allocate(0..<Self.bytesOfLog)
    }

    /// The size of the reserve file in bytes. A file that cannot be examined counts as empty.
    private var size: Int { (try? Files.size(of: path, for: store)) ?? 0 }

    /// The number of bytes that this process could still write on the disk of the store.
    var available: Int {
        var status = statvfs()
        guard statvfs(Files.folder(of: store), &status) == 0 else { return .max }
        let blocks = geteuid() == 0 ? status.f_bfree : status.f_bavail
        return Int(blocks * status.f_frsize)
    }
}
