import CLinux
import Glibc
import Synchronization

/// The text of `errno`. Call it before anything else can change `errno`.
func lastSystemError() -> String { String(cString: strerror(errno)) }

/// A call on a file of the store that failed.
struct FileError: Error, CustomStringConvertible {
    /// `errno`.
    let code: Int32
    /// What was not done.
    let failure: String

    /// The error of the last call.
    init(_ failure: String) { (code, self.failure) = (errno, failure) }

    /// Whether there was no room. Any other error is one of the disk.
    var isFull: Bool { [ENOSPC, EDQUOT, EFBIG].contains(code) }
    var description: String { "\(failure): \(String(cString: strerror(code)))" }
}

/// An open file. It is closed with its last reference at the latest.
final class FileDescriptor: Sendable {
    private let value: Atomic<Int32>

    init(_ number: Int32) { value = Atomic(number) }
    deinit { close() }

    var number: Int32 { value.load(ordering: .acquiring) }
    var isOpen: Bool { number >= 0 }

    func close() {
        let number = value.exchange(-1, ordering: .acquiringAndReleasing)
        if number >= 0 { _ = Glibc.close(number) }
    }

    /// The size of the file in bytes.
    var size: Int { Int(lseek(number, 0, SEEK_END)) }

    /// Makes the next read fetch the content of the disk: after a failed sync, the kernel may keep returning pages that
    /// it could not write. Dirty pages are kept, so call it after a sync.
    func dropCachedPages() { posix_fadvise(number, 0, 0, POSIX_FADV_DONTNEED) }

    /// Allocates blocks for a range of the file. If the disk is full, it throws, and the file is as long as before: a part
    /// of the range would take the last free space from other files.
    func allocate(_ range: Range<Int>) throws(FileError) {
        let former = size
        guard postern_fallocate(number, range.lowerBound, range.count) != 0 else { return }
        // Not every file system can allocate blocks ahead (ext2, for example). There, zeros behind the end take them.
        var failure = FileError("blocks cannot be allocated")
        if [EOPNOTSUPP, ENOSYS, EINVAL].contains(failure.code) {
            do throws(FileError) { return try writeZeros(from: former, to: range.upperBound) } catch { failure = error }
        }
        if size > former { ftruncate(number, off_t(former)) }
        throw failure
    }

    /// Makes the file shorter, and syncs it.
    func cut(to size: Int) throws(FileError) {
        guard ftruncate(number, off_t(size)) == 0, fsync(number) == 0 else { throw FileError("a file cannot be cut") }
    }

    /// Reads a range that the file has.
    func read(_ range: Range<Int>) throws(FileError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: range.count)
        guard pread(number, &bytes, range.count, off_t(range.lowerBound)) == range.count else {
            throw FileError("the store cannot be read")
        }
        return bytes
    }

    /// Overwrites a part of the file.
    func write(_ bytes: [UInt8], at position: Int) throws(FileError) {
        guard pwrite(number, bytes, bytes.count, off_t(position)) == bytes.count else {
            throw FileError("the store cannot be written")
        }
    }

    func sync() throws(FileError) {
        guard fdatasync(number) == 0 else { throw FileError("the store cannot be synced") }
    }

    func writeZeros(from start: Int, to end: Int) throws(FileError) {
        let zeros = [UInt8](repeating: 0, count: 64 << 10)
        var position = start
        while position < end {
            let count = pwrite(number, zeros, min(zeros.count, end - position), off_t(position))
            guard count <= 0 else {
                position += count
                continue
            }
            guard count < 0, errno == EINTR else { throw FileError("zeros cannot be written") }
        }
    }
}

/// The identity of a file, independent of its name.
struct Inode: Equatable, Sendable {
    private let device: UInt
    private let number: UInt
    private let mode: mode_t

    /// Nil if there is nothing at the path.
    static func at(_ file: String, for path: String) throws(StoreError) -> Inode? {
        try Files.status(of: file, for: path).map(Inode.init)
    }

    init?(of descriptor: FileDescriptor) {
        var status = stat()
        guard fstat(descriptor.number, &status) == 0 else { return nil }
        self.init(status)
    }

    private init(_ status: stat) {
        device = status.st_dev
        number = status.st_ino
        mode = status.st_mode
    }

    var isRegularFile: Bool { mode & S_IFMT == S_IFREG }

    static func == (left: Inode, right: Inode) -> Bool { left.device == right.device && left.number == right.number }
}

enum Files {
    static func folder(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// Nil if there is nothing at the path.
    static func status(of file: String, for path: String) throws(StoreError) -> stat? {
        var status = stat()
        guard stat(file, &status) != 0 else { return status }
        if errno == ENOENT || errno == ENOTDIR { return nil }
        throw .cannotCreate(path: path, detail: "\(file) cannot be examined: \(lastSystemError())")
    }

    /// Bytes of a file; 0 if there is none.
    static func size(of file: String, for path: String) throws(StoreError) -> Int {
        Int(try status(of: file, for: path)?.st_size ?? 0)
    }

    /// Creates the missing folders of `path`, accessible only to their owner, and makes their entries durable.
    static func makeFolders(of path: String) throws(StoreError) {
        let folder = folder(of: path)
        var missing: [String] = []
        var existing = folder
        while access(existing, F_OK) != 0, errno == ENOENT, existing != "/", existing != "." {
            missing.append(existing)
            existing = Self.folder(of: existing)
        }
        for folder in missing.reversed() {
            guard mkdir(folder, 0o700) == 0 || errno == EEXIST else {
                throw .cannotCreate(path: path, detail: "\(folder) cannot be created: \(lastSystemError())")
            }
            try sync(Self.folder(of: folder), for: path)
        }
        guard access(folder, W_OK | X_OK) == 0 else {
            throw .cannotCreate(path: path, detail: "\(folder) cannot be written to: \(lastSystemError())")
        }
    }

    /// Syncs a file, or the names in a folder. The next read fetches the content of the disk.
    static func sync(_ file: String, for path: String) throws(StoreError) {
        let descriptor = FileDescriptor(open(file, O_RDONLY | O_CLOEXEC))
        guard descriptor.isOpen, fsync(descriptor.number) == 0 else {
            throw .cannotCreate(path: path, detail: "\(file) cannot be synced: \(lastSystemError())")
        }
        descriptor.dropCachedPages()
    }

    /// Removes a file, if there is one.
    static func remove(_ file: String, for path: String) throws(StoreError) {
        guard unlink(file) != 0, errno != ENOENT else { return }
        throw .cannotCreate(path: path, detail: "\(file) cannot be removed: \(lastSystemError())")
    }

    static func rename(_ file: String, to name: String, for path: String) throws(StoreError) {
        guard Glibc.rename(file, name) == 0 else {
            throw .cannotCreate(path: path, detail: "\(file) cannot be renamed: \(lastSystemError())")
        }
        try sync(folder(of: name), for: path)
    }

    /// The bytes of a file; nil if there is none.
    static func read(_ file: String, atMost limit: Int = .max, for path: String) throws(StoreError) -> [UInt8]? {
        let descriptor = FileDescriptor(open(file, O_RDONLY | O_CLOEXEC))
        guard descriptor.isOpen else {
            if errno == ENOENT { return nil }
            throw .cannotCreate(path: path, detail: "\(file) cannot be read: \(lastSystemError())")
        }
        guard descriptor.size >= 0 else {
            throw .cannotCreate(path: path, detail: "\(file) cannot be examined: \(lastSystemError())")
        }
        let size = min(descriptor.size, limit)
        // All empty arrays share their storage, to which the count below would be written.
        guard size > 0 else { return [] }
        var failure: String?
        let bytes = [UInt8](unsafeUninitializedCapacity: size) { buffer, count in
            while count < size {
                let part = pread(descriptor.number, buffer.baseAddress! + count, size - count, count)
                guard part > 0 else {
                    if part < 0 { failure = lastSystemError() }
                    return
                }
                count += part
            }
        }
        if let failure { throw .cannotCreate(path: path, detail: "\(file) cannot be read: \(failure)") }
        return bytes
    }

    /// Writes a file that is accessible only to its owner, and syncs it.
    static func write(_ bytes: [UInt8], to file: String, for path: String) throws(StoreError) {
        let descriptor: FileDescriptor
        do throws(OwnFile.Refusal) {
            descriptor = FileDescriptor(try OwnFile.open(file))
        } catch {
            throw .cannotCreate(path: path, detail: "\(file) cannot be written: \(error.detail)")
        }
        var written = 0
        let isEmptied = ftruncate(descriptor.number, 0) == 0
        while isEmptied, written < bytes.count {
            let part = bytes.withUnsafeBytes { buffer in
                Glibc.write(descriptor.number, buffer.baseAddress! + written, buffer.count - written)
            }
            guard part > 0 else { break }
            written += part
        }
        guard isEmptied, written == bytes.count, fsync(descriptor.number) == 0 else {
            throw .cannotCreate(path: path, detail: "\(file) cannot be written: \(lastSystemError())")
        }
    }
}
