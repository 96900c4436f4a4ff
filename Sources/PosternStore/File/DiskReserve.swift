import Glibc
import PosternCore

/// Room that is kept for emptying the store when the disk is full.
///
/// No message can be accepted then, but deliveries must go on, and even a deletion writes to the log first. So some
/// room is held where nothing else on the disk can take it:
///
/// - a file next to the store. Most of it is given back when the disk is full, the rest when the next start finds no
///   room. It stays over a stop and over a kill.
/// - pages inside the database: the row of table `reserve`. Deleting it makes them free (`WriterLoop`).
/// - blocks for the write-ahead log, which is not made smaller than that while the store is open.
/// - blocks for the index of that log (`LogIndex`).
/// - blocks for every page that a commit may refer to (`WriterLoop.allocatePages`), so that a checkpoint finds room.
struct DiskReserve {
    static let bytes = 8 << 20
    /// What the next start may need: the log, its index, and a first commit.
    static let bytesForStart = 2 << 20
    static let bytesInside = 1 << 20
    static let bytesOfLog = 1 << 20
    /// The least with which a start is tried.
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
        let former = Files.size(of: path)
        if (try? descriptor.allocate(0..<Self.bytes)) != nil { return true }
        // A part of it would take the last room from the store.
        ftruncate(descriptor.number, min(former, Self.bytesForStart))
        return false
    }

    /// Gives most of the room back to the file system.
    func giveBack() {
        if Files.size(of: path) > Self.bytesForStart { truncate(path, Self.bytesForStart) }
    }

    /// Whether there is room for the part of the reserve that was given back, and for some messages.
    var canBeTaken: Bool { available > Self.bytes - min(Files.size(of: path), Self.bytes) + Self.bytes / 2 }

    /// Makes sure, before SQLite opens the store, that a start finds the room it needs: SQLite maps the index of the
    /// log, and an access to a page without blocks would end the process with SIGBUS.
    func makeRoomForStart() throws(StoreError) {
        if available < Self.bytesForStart, Files.size(of: path) > 0 { unlink(path) }
        let index = LogIndex.bytes(forFrames: Files.size(of: store + "-wal") / StoreFile.pageSize)
        let needed = Self.leastForStart + index
        guard available >= needed else {
            throw .cannotCreate(path: store, detail: "the disk is full, and a start needs \(needed >> 10) KiB")
        }
    }

    /// Allocates the blocks of the log that it does not have. SQLite takes zeros for an empty log.
    func allocateLog() {
        guard Files.size(of: store) > 0, Files.size(of: store + "-wal") < Self.bytesOfLog else { return }
        let descriptor = FileDescriptor(open(store + "-wal", O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
        // Without the room for all of it, the log grows as it can.
        if descriptor.isOpen { try? descriptor.allocate(0..<Self.bytesOfLog) }
    }

    /// Bytes that this process could still write on the disk of the store.
    private var available: Int {
        var status = statvfs()
        guard statvfs(Files.folder(of: store), &status) == 0 else { return .max }
        let blocks = geteuid() == 0 ? status.f_bfree : status.f_bavail
        return Int(blocks * status.f_frsize)
    }
}
