import Foundation
import Glibc
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// About the files of a store: their permissions and locks, and whether they still exist.
@Suite struct StorePlaceTests {
    private func mode(_ path: String) throws -> Int {
        var status = stat()
        try #require(stat(path, &status) == 0, "\(path)")
        return Int(status.st_mode & 0o777)
    }

    @Test func filesAndFolder_areForTheirOwnerOnly() throws {
        let folder = ScratchFolder()
        let path = folder.file("a/b/store.sqlite")
        let outbox = try TestStore.open(OutboxOptions(path: path))
        defer { outbox.close() }
        for tail in ["", "-wal", "-shm", ".reserve"] { #expect(try mode(path + tail) == 0o600, "\(tail)") }
        for name in ["a", "a/b"] { #expect(try mode(folder.file(name)) == 0o700, "\(name)") }
    }

    @Test func otherName_ofTheSameFile_isLocked() throws {
        let store = try TestStore()
        let link = store.folder.file("link.sqlite")
        let other = store.folder.file("other.sqlite")
        symlink(store.path, link)
        Glibc.link(store.path, other)
        for path in [link, other] {
            #expect(throws: StoreError.alreadyRunning(path: path)) { try TestStore.open(OutboxOptions(path: path)) }
        }
    }

    /// A process that is being started has copies of all descriptors until it executes its program.
    @Test func lock_endsWithTheStore_whileAnotherProcessHoldsACopyOfIt() throws {
        let folder = ScratchFolder()
        let path = folder.file("store.sqlite")
        let lock = try StoreLock(for: path)
        let copy = dup(lock.descriptor.number)
        defer { close(copy) }
        lock.release()
        #expect(throws: Never.self) { try StoreLock(for: path).release() }
    }

    @Test(arguments: ["", "-wal"])
    func deletedFile_endsWriting(tail: String) throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(to: queue)
        unlink(store.path + tail)
        store.sqlite.checkThatFilesAreInPlace()
        #expect(throws: AppendError.store(.lost(path: store.path))) { try store.append(to: queue) }
        #expect(throws: StoreError.lost(path: store.path)) { try store.settleDown() }
        #expect(store.outbox.failure == .lost(path: store.path))
    }

    @Test func replacedFile_isFoundByTheWriter_byItself() throws {
        let store = try TestStore()
        try store.append(3, to: store.register())
        try FileManager.default.moveItem(atPath: store.path, toPath: store.path + ".old")
        try Data().write(to: URL(filePath: store.path))
        #expect(eventually { store.outbox.failure == .lost(path: store.path) })
    }

    @Test func placeBelowAFile_isReported_withItsError() throws {
        let folder = ScratchFolder()
        try Data("x".utf8).write(to: URL(filePath: folder.file("file")))
        let path = folder.file("file/a/store.sqlite")
        let error = #expect(throws: StoreError.self) { try TestStore.open(OutboxOptions(path: path)) }
        #expect("\(try #require(error))".contains("Not a directory"))
    }

    @Test func fileSystemInMemory_isDoubted() {
        #expect(FileSystem(of: "/dev/shm/store.sqlite").doubt?.contains("tmpfs") == true)
        #expect(FileSystem(type: 0x794C_7630).doubt?.contains("overlay") == true)
        #expect(FileSystem(type: 0xEF53).doubt == nil)
    }

    @Test func idsOfAnOldCopy_areNotGivenOutAgain() throws {
        let store = try TestStore()
        let old = store.folder.file("old.sqlite")
        try store.append(3, to: store.register())
        store.outbox.close()
        try FileManager.default.copyItem(atPath: store.path, toPath: old)
        store.time.advance(by: .seconds(1))
        try store.reopen()
        let lost = try store.append(5, to: store.register())
        store.outbox.close()
        try FileManager.default.removeItem(atPath: store.path)
        try FileManager.default.moveItem(atPath: old, toPath: store.path)
        store.time.advance(by: .seconds(1))
        try store.reopen()
        let new = try store.append(5, to: store.register())
        #expect(Set(lost).isDisjoint(with: new))
        #expect(try store.drain(store.register()).count == 8)
    }

    @Test func unfinishedStore_isCreatedAgain() throws {
        let folder = ScratchFolder()
        let path = folder.file("store.sqlite")
        // What a kill during the creation may leave.
        for name in [".new", ".new-wal", ".new-shm"] { try Data("part".utf8).write(to: URL(filePath: path + name)) }
        try Data().write(to: URL(filePath: path))
        try TestStore.open(OutboxOptions(path: path)).close()
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        #expect(Set(names) == ["store.sqlite", "store.sqlite.reserve"])
    }
}
