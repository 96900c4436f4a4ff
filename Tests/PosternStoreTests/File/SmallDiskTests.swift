import Foundation
import Glibc
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// About SQLite itself: a real file system that is full, if this machine allows mounting one.
@Suite(.serialized) struct SmallDiskTests {
    /// Filled, restarted and drained in a random way, while something else takes all room that becomes free. Many more
    /// ways are tried on the simulated disk.
    @Test(.enabled(if: SmallDisk.isAllowed), arguments: 0..<4)
    func fullDisk_alwaysDrains_andAlwaysStarts(seed: Int) throws {
        var random = SplitMix64(state: UInt64(seed))
        let disk = try SmallDisk(
            megabytes: Int.random(in: 24...40, using: &random), blockSize: seed.isMultiple(of: 2) ? 1024 : 4096)
        let store = try TestStore { $0.path = disk.folder + "/data/store.sqlite" }
        var queue = try store.register()
        var accepted = 0
        func fill() throws {
            while true {
                let size = Int.random(in: 1...20_000, using: &random)
                let count = Int.random(in: 1...60, using: &random)
                let text = String(repeating: "x", count: size)
                do {
                    accepted += try store.append((0..<count).map { _ in store.message(text, to: queue) }).ids.count
                } catch AppendError.store(.full) {
                    return
                }
            }
        }
        func restart() throws {
            try store.reopen()
            queue = try store.register()
        }
        try fill()
        // Requests that were answered with 507 left no trace.
        #expect(try store.survivors() == accepted)
        disk.takeTheRest()
        var delivered = 0
        while delivered < accepted {
            if Int.random(in: 0..<8, using: &random) == 0 {
                try restart()
                disk.takeTheRest()
            }
            let claim = try store.claim(queue, most: Int.random(in: 1...100, using: &random))
            try #require(!claim.messages.isEmpty)
            try store.deliver(claim.messages, of: queue)
            delivered += claim.messages.count
            if Bool.random(using: &random) { disk.takeTheRest() }
        }
        #expect(try store.isBalanced())
        disk.giveBack()
        #expect(eventually { (try? store.append(to: queue)) != nil })
        #expect(try store.drain(queue).count >= 1)
        #expect(try store.isBalanced())
        store.outbox.close()
    }

    @Test(.enabled(if: SmallDisk.isAllowed))
    func emptiedStore_takesMessagesAgain_byItself() throws {
        let disk = try SmallDisk(megabytes: 30, blockSize: 4096)
        let store = try TestStore { $0.path = disk.folder + "/store.sqlite" }
        let queue = try store.register()
        let text = String(repeating: "x", count: 9000)
        #expect(throws: AppendError.self) {
            while true { try store.append((0..<20).map { _ in store.message(text, to: queue) }) }
        }
        try store.drain(queue)
        #expect(eventually { (try? store.append(to: queue)) != nil })
        store.outbox.close()
    }

    @Test(.enabled(if: SmallDisk.isAllowed), arguments: [1024, 4096])
    func diskWithoutAnyRoom_isExplained(blockSize: Int) throws {
        let disk = try SmallDisk(megabytes: 8, blockSize: blockSize)
        disk.takeTheRest()
        let path = disk.folder + "/store.sqlite"
        let error = #expect(throws: StoreError.self) { try TestStore.open(OutboxOptions(path: path)) }
        guard case .cannotCreate = error else {
            Issue.record("\(String(describing: error))")
            return
        }
    }
}

/// A file system in a file of its own, unmounted with the last reference.
private final class SmallDisk {
    struct Failure: Error { let command: [String] }
    private let scratch = ScratchFolder()
    var folder: String { scratch.file("disk") }
    private var parts = 0

    init(megabytes: Int, blockSize: Int) throws {
        let image = scratch.file("image")
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let descriptor = open(image, O_RDWR | O_CREAT, 0o600)
        ftruncate(descriptor, megabytes << 20)
        close(descriptor)
        try Self.run("/sbin/mkfs.ext4", "-q", "-m", "0", "-b", "\(blockSize)", image)
        try Self.run("/bin/mount", "-o", "loop", image, folder)
    }

    deinit { try? Self.run("/bin/umount", "--lazy", folder) }

    static let isAllowed: Bool = {
        guard geteuid() == 0, let disk = try? SmallDisk(megabytes: 4, blockSize: 1024) else { return false }
        return access(disk.folder + "/lost+found", F_OK) == 0
    }()

    private static func run(_ command: String...) throws {
        guard ChildProcess.succeeds(command) else { throw Failure(command: command) }
    }

    /// Fills the disk to its last block.
    func takeTheRest() {
        parts += 1
        let descriptor = open("\(folder)/other-\(parts)", O_WRONLY | O_CREAT, 0o600)
        defer { close(descriptor) }
        for size in [1 << 20, 1 << 16, 1 << 12, 1 << 10] {
            let bytes = [UInt8](repeating: 1, count: size)
            while write(descriptor, bytes, size) == size {}
        }
    }

    func giveBack() {
        for part in 1...max(parts, 1) { unlink("\(folder)/other-\(part)") }
    }
}
