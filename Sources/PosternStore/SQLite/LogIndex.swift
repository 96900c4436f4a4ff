import CLinux
import CSQLite
import Glibc
import Synchronization

/// Blocks for the index of the write-ahead log (`-shm`), which SQLite maps into memory.
///
/// SQLite makes the file longer by one byte in each 4 KiB. On an access to a part without a block, the kernel allocates
/// one, and on a full disk it ends the process with SIGBUS. So every connection allocates the blocks that it maps
/// (`isMappedWithBlocks`), and the writer those that a commit will need, so that it fails before it has written anything.
/// A start keeps the blocks that a killed process has left.
/// The descriptor stays open as long as the store: SQLite's POSIX locks on a file end when any descriptor of it is
/// closed.
final class LogIndex: Sendable {
    private let descriptor: FileDescriptor
    private let allocated = Atomic<Int>(0)
    /// Whether `nBackfill` counts only durable pages: those on the disk, or that the next checkpoint syncs.
    private let isRight = Atomic<Bool>(true)

    /// Enough for a log of 1 GiB, and what SQLite has mapped when it has opened the store: enough for one of 32 MiB.
    private static let usual = 1 << 20
    static let least = 32 << 10

    /// Has every connection of this process allocate the blocks of what it maps, and keep those that are there. Use it before one is opened.
    static let isMappedWithBlocks: Void = {
        let mmap:
            @convention(c) (UnsafeMutableRawPointer?, Int, Int32, Int32, Int32, off_t) -> UnsafeMutableRawPointer? =
                postern_mmap
        let truncate: @convention(c) (Int32, off_t) -> Int32 = postern_ftruncate
        guard let vfs = sqlite3_vfs_find(nil), let set = vfs.pointee.xSetSystemCall else { return }
        _ = set(vfs, "mmap", unsafeBitCast(mmap, to: sqlite3_syscall_ptr.self))
        _ = set(vfs, "ftruncate", unsafeBitCast(truncate, to: sqlite3_syscall_ptr.self))
    }()

    /// For the store at `path`, which SQLite has opened.
    init(of path: String) throws {
        descriptor = FileDescriptor(open(path + "-shm", O_RDWR | O_CLOEXEC))
        guard descriptor.isOpen else {
            throw StoreError.cannotCreate(path: path, detail: "\(path)-shm: \(lastSystemError())")
        }
        if try allocate(Self.usual) { return }
        guard try allocate(Self.least) else {
            throw StoreError.cannotCreate(
                path: path, detail: "the disk is full; a start requires \(Self.least >> 10) KiB")
        }
    }

    /// The number of bytes that SQLite maps for this many frames in the log
    /// (https://www.sqlite.org/walformat.html, section 2).
    static func bytes(forFrames frames: Int) -> Int { ((frames + 34) / 4096 + 1) << 15 }

    /// Allocates blocks for a log of this many frames. Throws if the disk is full.
    func makeRoom(forFrames frames: Int) throws {
        let needed = Self.bytes(forFrames: frames)
        guard needed > allocated.load(ordering: .relaxed) else { return }
        guard try allocate(needed) else {
            throw StoreError.full(detail: "no room for the index of the write-ahead log")
        }
    }

    /// Returns false if there is no room.
    private func allocate(_ bytes: Int) throws(FileError) -> Bool {
        do throws(FileError) {
            try descriptor.allocate(0..<bytes)
        } catch {
            guard error.isFull else { throw error }
            return false
        }
        allocated.store(bytes, ordering: .relaxed)
        return true
    }

    /// How far the log is committed. Nil if that cannot be read.
    var head: WALIndexHead? {
        var bytes = [UInt8](repeating: 0, count: WALIndexHead.size)
        return pread(descriptor.number, &bytes, bytes.count, 0) == bytes.count ? WALIndexHead(bytes) : nil
    }

    /// The pages of the database after the last commit; nil if that cannot be read, or the log has had none since it was
    /// created. Call it on the writer's thread, which no other writes that to.
    var pages: Int? {
        var pages: UInt32 = 0
        let isRead = pread(descriptor.number, &pages, 4, off_t(WALIndexHead.pagesOffset)) == 4
        return isRead && pages > 0 ? Int(pages) : nil
    }

    /// Whether the count of written pages can be relied on. False if `forgetCheckpoints` failed after a failed checkpoint.
    var isTrusted: Bool { isRight.load(ordering: .relaxed) }

    /// Makes the next checkpoint write every page of the log into the database file. Call it on the writer's thread, when a
    /// checkpoint failed. Returns false if the index cannot be written.
    ///
    /// A checkpoint that readers hold up counts its pages as written, and leaves it to a later one to sync the file (the
    /// number is `nBackfill`, https://www.sqlite.org/walformat.html, section 2.1). If that sync fails, the kernel may have
    /// dropped those pages, too; the checkpoint after it would write none of them, succeed, and empty the log.
    @discardableResult func forgetCheckpoints() -> Bool {
        let none: [UInt8] = [0, 0, 0, 0]
        let isDone = pwrite(descriptor.number, none, none.count, WALIndexHead.backfilledOffset) == none.count
        isRight.store(isDone, ordering: .relaxed)
        return isDone
    }

    /// Closes the descriptor. Call it after SQLite has closed the store.
    func close() { descriptor.close() }
}
