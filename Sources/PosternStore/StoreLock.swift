import Glibc
import Synchronization

/// Keeps a second process off the store: an exclusive `flock` on a file beside it, held until the store is closed.
///
/// A lock of its own, because SQLite's are given back between transactions and would let a second writer in.
final class StoreLock: Sendable {
    private let descriptor: Atomic<Int32>

    init(for path: String) throws(StoreError) {
        let file = path + ".lock"
        let descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        guard descriptor >= 0 else {
            throw .cannotCreate(path: path, detail: "\(file): \(String(cString: strerror(errno)))")
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            close(descriptor)
            throw .alreadyRunning(path: path)
        }
        self.descriptor = Atomic(descriptor)
    }

    deinit { giveUp() }

    /// Lets another one work on the store.
    func giveUp() {
        let held = descriptor.exchange(-1, ordering: .acquiringAndReleasing)
        if held >= 0 { close(held) }
    }
}
