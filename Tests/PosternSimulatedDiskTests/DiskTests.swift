import Foundation
import Glibc
import PosternSimulatedDisk
import PosternTestKit
import Testing

/// The disk itself, by the calls that a program makes.
@Suite struct DiskTests {
    /// A file that is synced, with its name.
    private func file(_ text: String, on disk: SimulatedDisk) -> PlainFile {
        let file = PlainFile(disk.path("a"))
        file.write(text)
        #expect(file.sync() == 0)
        #expect(PlainFile.syncFolder(disk.folder) == 0)
        return file
    }

    private func left(on disk: SimulatedDisk) -> String { PlainFile.contents(of: disk.path("a")) ?? "" }

    // MARK: Kills

    @Test func written_isRead_andStaysAfterAKill() {
        let disk = SimulatedDisk(seed: 1)
        let file = PlainFile(disk.path("a"))
        #expect(file.write("hello") == 5)
        #expect(file.read() == "hello")
        disk.kill()
        #expect(left(on: disk) == "hello")
    }

    @Test func deadProcess_writesNothing() {
        let disk = SimulatedDisk(seed: 1)
        let path = disk.path("a")
        let file = PlainFile(path)
        file.write("alive")
        disk.kill()
        #expect(file.write("dead!") == -1)
        #expect(file.sync() == -1)
        #expect(PlainFile(path).descriptor < 0)
        #expect(unlink(path) == -1)
        #expect(left(on: disk) == "alive")
    }

    @Test func stop_endsTheProcess_inTheMiddleOfACall() {
        var found: Set<String> = []
        for seed in 0..<20 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            let file = PlainFile(disk.path("a"))
            disk.strike(.stop, on: nil, after: 1)
            #expect(file.write(String(repeating: "1", count: 512)) == 512)
            #expect(file.write(String(repeating: "2", count: 512)) == -1)
            #expect(disk.hasStopped)
            #expect(file.write("3") == -1)
            disk.kill()
            #expect(!disk.hasStopped)
            found.insert(String(left(on: disk).prefix(1)))
        }
        #expect(found == ["1", "2"])
    }

    // MARK: Power cuts

    @Test func synced_staysAfterAPowerCut_theRestSometimes() {
        var survivors = 0
        for seed in 0..<200 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            let file = file(String(repeating: "1", count: 1024), on: disk)
            file.write(String(repeating: "2", count: 1024))
            disk.powerCut()
            let left = left(on: disk)
            #expect(left.count == 1024)
            for sector in [left.prefix(512), left.suffix(512)] { #expect(Set(sector).count == 1, "torn in a sector") }
            if left.contains("2") { survivors += 1 }
        }
        #expect((20...180).contains(survivors))
    }

    @Test func sectors_surviveInAnyCombination() {
        var found: Set<String> = []
        for seed in 0..<400 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            let file = file(String(repeating: "0", count: 2048), on: disk)
            for sector in 0..<4 { file.write(String(repeating: "x", count: 512), at: sector * 512) }
            disk.powerCut()
            let left = Array(left(on: disk))
            found.insert(String(stride(from: 0, to: left.count, by: 512).map { left[$0] }))
        }
        #expect(found.count == 16)
    }

    @Test func sizes_areLostAsWell_andNewSpaceIsZeros() {
        var sizes: Set<Int> = []
        for seed in 0..<200 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            let file = file(String(repeating: "1", count: 1024), on: disk)
            ftruncate(file.descriptor, 0)
            file.write(String(repeating: "2", count: 512), at: 1024)
            disk.powerCut()
            let left = left(on: disk).utf8
            sizes.insert(left.count)
            // Where the file was cut and made longer, what it held before never comes back.
            if left.count == 1536 { #expect(left.prefix(1024).allSatisfy { $0 == 0 }) }
        }
        #expect(sizes == [0, 1024, 1536])
    }

    @Test func names_areLost_untilTheirFolderIsSynced() {
        var found: Set<[Bool]> = []
        for seed in 0..<200 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            let old = file("old", on: disk)
            #expect(old.read() == "old")
            let new = PlainFile(disk.path("new"))
            #expect(new.sync() == 0)
            rename(disk.path("new"), disk.path("renamed"))
            unlink(disk.path("a"))
            disk.powerCut()
            found.insert(["a", "new", "renamed"].map { access(disk.path($0), F_OK) == 0 })
        }
        #expect(
            found == [[true, false, false], [true, true, false], [true, false, true], [false, false, true]])
    }

    @Test func syncedFolder_keepsItsNames() {
        for seed in 0..<50 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            mkdir(disk.path("data"), 0o700)
            #expect(PlainFile.syncFolder(disk.folder) == 0)
            let file = PlainFile(disk.path("data/a"))
            file.write("hello")
            #expect(file.sync() == 0)
            #expect(PlainFile.syncFolder(disk.path("data")) == 0)
            disk.powerCut()
            #expect(PlainFile.contents(of: disk.path("data/a")) == "hello")
        }
    }

    // MARK: Faults

    @Test func failedSync_losesSome_andCountsItAsClean() {
        var lost = 0
        for seed in 0..<100 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            let file = file(String(repeating: "1", count: 4096), on: disk)
            file.write(String(repeating: "2", count: 4096))
            disk.strike(.ioError, on: .sync)
            #expect(file.sync() == -1)
            #expect(errno == EIO)
            #expect(file.sync() == 0)
            posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED)
            let seen = file.read()
            if seen.contains("1") { lost += 1 }
            disk.powerCut()
            #expect(left(on: disk) == seen)
            #expect(!disk.isLossAllowed)
        }
        #expect(lost > 20)
    }

    @Test func lyingSync_losesWhatItPromised_andSaysSo() {
        var lost = 0
        for seed in 0..<100 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            let file = file("", on: disk)
            file.write("1")
            disk.strike(.lie, on: .sync)
            #expect(file.sync() == 0)
            disk.powerCut()
            #expect(disk.isLossAllowed == (left(on: disk) != "1"))
            if disk.isLossAllowed { lost += 1 }
        }
        #expect((20...80).contains(lost))
    }

    @Test func failedSync_losesWhatALyingOnePromised_andSaysSo() {
        var lost = 0
        for seed in 0..<100 {
            let disk = SimulatedDisk(seed: UInt64(seed))
            let file = file("", on: disk)
            file.write("1")
            disk.strike(.lie, on: .sync)
            #expect(file.sync() == 0)
            disk.strike(.ioError, on: .sync)
            #expect(file.sync() == -1)
            posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED)
            #expect(disk.isLossAllowed == (file.read() != "1"))
            if disk.isLossAllowed { lost += 1 }
        }
        #expect((20...80).contains(lost))
    }

    @Test func room_isLimited_andCanBeRaised() {
        let disk = SimulatedDisk(seed: 1, capacityBytes: 3 * 4096)
        let file = PlainFile(disk.path("a"))
        #expect(file.write(String(repeating: "x", count: 5 * 4096)) == 3 * 4096)
        #expect(file.write("x", at: 3 * 4096) == -1)
        #expect(errno == ENOSPC)
        var status = statvfs()
        #expect(statvfs(disk.folder, &status) == 0)
        #expect(status.f_bavail == 0)
        disk.capacityBytes += 4096
        #expect(file.write("x", at: 3 * 4096) == 1)
        ftruncate(file.descriptor, 0)
        #expect(disk.usedBytes == 0)
        #expect(file.read() == "")
    }

    @Test func shortReadsAndWrites_transferAPart() {
        let disk = SimulatedDisk(seed: 1)
        let file = PlainFile(disk.path("a"))
        disk.strike(.short, on: .write)
        #expect((1...9).contains(file.write("1234567890")))
        file.write("1234567890")
        disk.strike(.short, on: .read)
        #expect((1...9).contains(file.read().count))
        #expect(file.read() == "1234567890")
    }

    @Test func flippedBit_isMarked_andOnlyInWhatWasSynced() {
        let disk = SimulatedDisk(seed: 1)
        let file = PlainFile(disk.path("a"))
        file.write("hello")
        #expect(disk.flipBit() == nil)
        #expect(!disk.isDamageMarked)
        #expect(file.sync() == 0)
        #expect(disk.flipBit()?.hasPrefix("a at byte ") == true)
        #expect(disk.isDamageMarked)
        #expect(file.read() != "hello")
    }

    // MARK: What is known of it

    @Test func calls_areCountedAndListed() {
        let disk = SimulatedDisk(seed: 1)
        let file = PlainFile(disk.path("a"))
        file.write("hello", at: 7)
        disk.strike(.ioError, on: .sync)
        #expect(file.sync() == -1)
        #expect(disk.calls().prefix(3) == ["open a", "write a 5@7", "sync a ioError EIO"])
        #expect(disk.counts(of: "a").writes == 1)
        #expect(disk.counts(of: "a").syncs == 1)
        #expect(disk.neutral("no room in \(disk.path("a"))") == "no room in DISK/a")
    }

    @Test func sameSeed_givesTheSameCalls() {
        func run(_ seed: UInt64) -> [UInt64] {
            let disk = SimulatedDisk(seed: seed)
            disk.faults.shortWrites = 0.3
            disk.faults.failedSyncs = 0.2
            for life in 0..<5 {
                let file = PlainFile(disk.path("a"))
                for number in 0..<20 {
                    file.write(String(repeating: "\(number)", count: 700), at: number * 300)
                    if number % 7 == 0 { _ = file.sync() }
                }
                _ = file.read()
                if life % 2 == 0 { disk.kill() } else { disk.powerCut() }
            }
            return [disk.digest, UInt64(disk.changes)]
        }
        #expect(run(1) == run(1))
        #expect(run(1) != run(2))
    }

    @Test func disks_areApart() {
        let one = SimulatedDisk(seed: 1)
        let other = SimulatedDisk(seed: 1)
        PlainFile(one.path("a")).write("one")
        #expect(PlainFile.contents(of: other.path("a")) == nil)
        other.kill()
        #expect(left(on: one) == "one")
    }

    @Test func folder_isDeleted_ofAProcessThatIsGone() throws {
        let disk = SimulatedDisk(seed: 1)
        PlainFile(disk.path("a")).write("alive")
        let gone = Process()
        gone.executableURL = URL(filePath: "/bin/true")
        try gone.run()
        gone.waitUntilExit()
        let shelf = URL(filePath: disk.folder).deletingLastPathComponent().deletingLastPathComponent()
        let folder = shelf.appending(path: "postern-disks-\(gone.processIdentifier)")
        try FileManager.default.createDirectory(at: folder.appending(path: "1.1"), withIntermediateDirectories: true)
        SimulatedDisk.deleteLeftOver()
        #expect(!FileManager.default.fileExists(atPath: folder.path))
        #expect(left(on: disk) == "alive")
    }

    @Test func otherFiles_areLeftAlone() {
        let folder = ScratchFolder()
        let file = PlainFile(folder.file("a"))
        #expect(file.write("hello") == 5)
        #expect(file.sync() == 0)
        #expect(PlainFile.contents(of: folder.file("a")) == "hello")
    }
}

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
