import GRDBSQLite
import Glibc
import Synchronization

/// Counts the fsyncs of each file, exactly, and lets some fail: a VFS over SQLite's own whose files count `xSync`.
///
/// It becomes the default, so that a store opened afterwards needs not know of it.
enum SyncCounter {
    /// Call before the store is opened.
    static func install() { _ = installed }

    static func count(of path: String) -> Int { counts.withLock { $0[path] ?? 0 } }

    /// Files that SQLite created in a directory for temporary files, for whichever store.
    static var temporaryFiles: Int { filesWithoutName.load(ordering: .relaxed) }

    /// The next syncs of a file that fail, as those of a broken disk do.
    static func fail(_ path: String, times: Int) { failures.withLock { $0[path] = times } }

    private static let installed: Void = {
        guard let original = sqlite3_vfs_find(nil) else { return }
        let counting = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
        counting.initialize(to: original.pointee)
        counting.pointee.zName = UnsafePointer(strdup("counting"))
        counting.pointee.pNext = nil
        counting.pointee.xOpen = openCounting
        originalOpen.withLock { $0 = original.pointee.xOpen }
        sqlite3_vfs_register(counting, 1)
    }()
}

private typealias Sync = @convention(c) (UnsafeMutablePointer<sqlite3_file>?, Int32) -> Int32
private typealias Open =
    @convention(c) (
        UnsafeMutablePointer<sqlite3_vfs>?, UnsafePointer<CChar>?, UnsafeMutablePointer<sqlite3_file>?, Int32,
        UnsafeMutablePointer<Int32>?
    ) -> Int32

private let counts = Mutex<[String: Int]>([:])
private let failures = Mutex<[String: Int]>([:])
private let filesWithoutName = Atomic<Int>(0)
private let originalOpen = Mutex<Open?>(nil)
private let originalSync = Mutex<Sync?>(nil)
private let paths = Mutex<[UInt: String]>([:])
private let tables = Mutex<[UInt: UInt]>([:])

private let openCounting: Open = { vfs, name, file, flags, outFlags in
    guard let open = originalOpen.withLock({ $0 }) else { return SQLITE_CANTOPEN }
    let code = open(vfs, name, file, flags, outFlags)
    guard code == SQLITE_OK, let file, let methods = file.pointee.pMethods else { return code }
    originalSync.withLock { $0 = $0 ?? methods.pointee.xSync }
    if let name {
        paths.withLock { $0[UInt(bitPattern: file)] = String(cString: name) }
    } else {
        filesWithoutName.add(1, ordering: .relaxed)
    }
    // SQLite has a table of methods for each way of locking; each gets one counting copy, which is never freed.
    let copy = tables.withLock { tables in
        if let known = tables[UInt(bitPattern: methods)] { return known }
        let copy = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
        copy.initialize(to: methods.pointee)
        copy.pointee.xSync = syncCounting
        tables[UInt(bitPattern: methods)] = UInt(bitPattern: copy)
        return UInt(bitPattern: copy)
    }
    file.pointee.pMethods = UnsafePointer(bitPattern: copy)
    return code
}

private let syncCounting: Sync = { file, flags in
    if let file, let path = paths.withLock({ $0[UInt(bitPattern: file)] }) {
        counts.withLock { $0[path, default: 0] += 1 }
        let fails = failures.withLock { failures in
            guard let left = failures[path], left > 0 else { return false }
            failures[path] = left - 1
            return true
        }
        // SQLITE_IOERR_FSYNC
        if fails { return SQLITE_IOERR | 4 << 8 }
    }
    return originalSync.withLock { $0 }?(file, flags) ?? SQLITE_IOERR
}
