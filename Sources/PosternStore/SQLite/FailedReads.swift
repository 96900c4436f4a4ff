import CLinux
import CSQLite

/// Tells a read that failed from damage, which SQLite does not (see `postern_pread`).
enum FailedReads {
    /// Has every connection of this process read through the functions that count. Use it before one is opened.
    static let areCounted: Void = {
        let read: @convention(c) (Int32, UnsafeMutableRawPointer?, Int) -> Int = postern_read
        let pread: @convention(c) (Int32, UnsafeMutableRawPointer?, Int, off_t) -> Int = postern_pread
        guard let vfs = sqlite3_vfs_find(nil), let set = vfs.pointee.xSetSystemCall else { return }
        // Which of them SQLite uses depends on how it was built.
        _ = set(vfs, "read", unsafeBitCast(read, to: sqlite3_syscall_ptr.self))
        for name in ["pread", "pread64"] { _ = set(vfs, name, unsafeBitCast(pread, to: sqlite3_syscall_ptr.self)) }
    }()

    /// Reads that have failed on this thread.
    static var count: Int { postern_failed_reads() }
}
