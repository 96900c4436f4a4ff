import Glibc
import PosternCore

/// Prevents a second process from using the store: an exclusive `flock` on the database file itself, held until it is
/// closed.
///
/// The inode is locked, so a symbolic link or another name of the file leads to the same lock. SQLite's own locks are
/// POSIX locks, which `flock` does not affect, but which end when any descriptor of the file is closed: this one is
/// closed last.
final class StoreLock: Sendable {
    let descriptor: FileDescriptor
    private let inode: Inode

    /// Creates an empty file if there is none.
    init(for path: String) throws(StoreError) {
        while true {
            let descriptor = FileDescriptor(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0o600))
            guard descriptor.isOpen else { throw .cannotCreate(path: path, detail: lastSystemError()) }
            guard let inode = Inode(of: descriptor) else { throw .cannotCreate(path: path, detail: lastSystemError()) }
            guard inode.isRegularFile else { throw .cannotCreate(path: path, detail: "it is not a regular file") }
            guard flock(descriptor.number, LOCK_EX | LOCK_NB) == 0 else { throw .alreadyRunning(path: path) }
            // Another process may have renamed its new store to the path between the two calls.
            guard try inode == Inode.at(path, for: path) else { continue }
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
    func isStill(at path: String) throws(StoreError) -> Bool { try Inode.at(path, for: path) == inode }

    /// Releases the store for other processes.
    func release() {
        // A child process that is being started holds a copy of the descriptor, and with it the lock, until it executes
        // its program. Unlocking concerns all copies.
        flock(descriptor.number, LOCK_UN)
        descriptor.close()
    }
}
