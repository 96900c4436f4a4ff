import Glibc

/// A file as a program uses it: each method is one system call. Closed with the value's last reference.
final class PlainFile {
    let descriptor: Int32

    init(_ path: String, _ flags: Int32 = O_RDWR | O_CREAT) { descriptor = open(path, flags | O_CLOEXEC, 0o600) }
    deinit { if descriptor >= 0 { close(descriptor) } }

    @discardableResult func write(_ text: String, at offset: Int = 0) -> Int {
        let bytes = Array(text.utf8)
        return withExtendedLifetime(self) { pwrite(descriptor, bytes, bytes.count, offset) }
    }

    func read(_ count: Int = 100_000, at offset: Int = 0) -> String {
        var bytes = [UInt8](repeating: 0, count: count)
        let read = withExtendedLifetime(self) { pread(descriptor, &bytes, count, offset) }
        return String(decoding: bytes.prefix(max(0, read)), as: UTF8.self)
    }

    func sync() -> Int32 { withExtendedLifetime(self) { fdatasync(descriptor) } }

    /// What the file at a path holds; nil if there is none.
    static func contents(of path: String) -> String? {
        let file = PlainFile(path, O_RDONLY)
        return file.descriptor < 0 ? nil : file.read()
    }

    static func syncFolder(_ path: String) -> Int32 { PlainFile(path, O_RDONLY).sync() }
}
