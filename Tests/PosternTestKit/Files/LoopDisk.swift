import Foundation
import Glibc

/// A file system in a file of its own, unmounted with the last reference. Available where this machine allows mounts.
public final class LoopDisk: @unchecked Sendable {
    // @unchecked: one thread fills it.
    struct Failure: Error { let command: [String] }
    private let scratch = ScratchFolder()
    public var folder: String { scratch.file("disk") }
    private var parts = 0

    /// `type`: ext4, or ext2, which cannot allocate blocks ahead.
    public init(megabytes: Int, blockSize: Int, type: String = "ext4") throws {
        let image = scratch.file("image")
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let descriptor = open(image, O_RDWR | O_CREAT, 0o600)
        ftruncate(descriptor, megabytes << 20)
        close(descriptor)
        try Self.run("/sbin/mkfs.\(type)", "-q", "-m", "0", "-b", "\(blockSize)", image)
        try Self.run("/bin/mount", "-o", "loop", image, folder)
    }

    deinit { try? Self.run("/bin/umount", "--lazy", folder) }

    public static let isAllowed: Bool = {
        guard geteuid() == 0, let disk = try? LoopDisk(megabytes: 4, blockSize: 1024) else { return false }
        return access(disk.folder + "/lost+found", F_OK) == 0
    }()

    private static func run(_ command: String...) throws {
        guard ChildProcess.succeeds(command) else { throw Failure(command: command) }
    }

    /// Fills the disk to its last block.
    public func takeTheRest() {
        parts += 1
        let descriptor = open("\(folder)/other-\(parts)", O_WRONLY | O_CREAT, 0o600)
        defer { close(descriptor) }
        for size in [1 << 20, 1 << 16, 1 << 12, 1 << 10] {
            let bytes = [UInt8](repeating: 1, count: size)
            while write(descriptor, bytes, size) == size {}
        }
    }

    /// Shortens what `takeTheRest` wrote last by some bytes.
    public func leave(_ bytes: Int) {
        let path = "\(folder)/other-\(parts)"
        var status = stat()
        if stat(path, &status) == 0 { truncate(path, max(0, status.st_size - off_t(bytes))) }
    }

    public func giveBack() {
        for part in 1...max(parts, 1) { unlink("\(folder)/other-\(part)") }
    }
}
