import Glibc

/// A file beside the store that holds room for emptying it.
///
/// When the disk is full no message can be accepted, but deliveries must go on, and even a deletion writes to the WAL
/// first. Giving the reserve back to the file system lets them.
struct DiskReserve {
    static let bytes = 8 << 20
    private let path: String

    init(for store: String) { path = store + ".reserve" }

    /// Takes the room. False when there is none to spare.
    @discardableResult func take() -> Bool {
        let descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        guard posix_fallocate(descriptor, 0, Self.bytes) == 0 else {
            unlink(path)
            return false
        }
        return true
    }

    func giveBack() { unlink(path) }

    /// Is there room for the reserve and as much again?
    var canBeTaken: Bool {
        var status = statvfs()
        let folder = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? "."
        guard statvfs(folder.isEmpty ? "/" : folder, &status) == 0 else { return false }
        return status.f_bavail * status.f_frsize > UInt(2 * Self.bytes)
    }
}
