import Glibc
import PosternCore

/// Keeps a second process off the store: an exclusive `flock` on the database file itself, held until it is closed.
///
/// The inode is locked, so a symbolic link or another name of the file meets the same lock. SQLite's own locks are POSIX
/// locks, which `flock` leaves alone but which end when any descriptor of the file is closed: this one is closed last.
final class StoreLock: Sendable {
    let descriptor: FileDescriptor
    private let inode: Inode

    /// Makes an empty file if there is none.
    init(for path: String) throws(StoreError) {
        while true {
            let descriptor = FileDescriptor(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0o600))
            guard descriptor.isOpen else { throw .cannotCreate(path: path, detail: lastSystemError()) }
            guard let inode = Inode(of: descriptor) else { throw .cannotCreate(path: path, detail: lastSystemError()) }
            guard inode.isRegularFile else { throw .cannotCreate(path: path, detail: "it is not a regular file") }
            guard flock(descriptor.number, LOCK_EX | LOCK_NB) == 0 else { throw .alreadyRunning(path: path) }
            // Another process may have put its new store at the path between the two calls.
            guard inode == Inode(at: path) else { continue }
            self.descriptor = descriptor
            self.inode = inode
            return
        }
    }

    /// Whether no process has the store open. A file that cannot be read counts as open: it is reported elsewhere.
    static func isFree(_ path: String) -> Bool {
        let descriptor = FileDescriptor(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK))
        defer { descriptor.close() }
        return descriptor.isOpen && flock(descriptor.number, LOCK_SH | LOCK_NB) == 0
    }

    /// Whether the path still leads to the file that is locked.
    func isStill(at path: String) -> Bool { Inode(at: path) == inode }

    /// Has the next read fetch from the disk what is on it: after a sync that failed, the kernel may go on showing pages
    /// that it could not write. Pages that are dirty stay, so call it after a sync.
    func forgetCachedPages() { posix_fadvise(descriptor.number, 0, 0, POSIX_FADV_DONTNEED) }

    /// Bytes of the file.
    var size: Int { Int(lseek(descriptor.number, 0, SEEK_END)) }

    /// Lets another process work on the store.
    func release() {
        // A child process that is being started holds a copy of the descriptor, and with it the lock, until it executes
        // its program. Unlocking concerns all copies.
        flock(descriptor.number, LOCK_UN)
        descriptor.close()
    }
}
