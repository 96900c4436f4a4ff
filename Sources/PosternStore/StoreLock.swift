import Glibc

/// Keeps a second process off the store: an exclusive `flock` on a file beside it, held until the process ends.
///
/// A lock of its own, because SQLite's are given back between transactions and would let a second writer in.
final class StoreLock: Sendable {
    private let descriptor: Int32

    init(for path: String) throws(StoreError) {
        let file = path + ".lock"
        descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        guard descriptor >= 0 else {
            throw .cannotCreate(path: path, detail: "\(file): \(String(cString: strerror(errno)))")
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            close(descriptor)
            throw .alreadyRunning(path: path)
        }
    }

    deinit { close(descriptor) }
}
