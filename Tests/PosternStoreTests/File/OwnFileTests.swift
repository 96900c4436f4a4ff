import Foundation
import Glibc
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// Files that this process writes under names that another user may have taken before.
@Suite struct OwnFileTests {
    private let folder = ScratchFolder()
    private let victim: String

    init() throws {
        victim = folder.file("victim")
        try Data("precious".utf8).write(to: URL(filePath: victim))
    }

    private var isVictimWhole: Bool { (try? String(contentsOfFile: victim, encoding: .utf8)) == "precious" }

    private func mode(_ path: String) -> mode_t {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & 0o777 : 0
    }

    private func refusal(_ path: String) -> String? {
        do throws(OwnFile.Refusal) {
            close(try OwnFile.open(path))
            return nil
        } catch {
            return error.detail
        }
    }

    @Test func newFile_isForItsOwnerOnly_whateverTheMask() {
        let former = umask(0)
        defer { umask(former) }
        #expect(refusal(folder.file("new")) == nil && mode(folder.file("new")) == 0o600)
    }

    @Test func modeOfAnEarlierFile_isNotKept() {
        chmod(victim, 0o666)
        #expect(refusal(victim) == nil && mode(victim) == 0o600 && isVictimWhole)
    }

    @Test func link_isNotFollowed() {
        let (symbolic, hard, none) = (folder.file("symbolic"), folder.file("hard"), folder.file("dangling"))
        symlink(victim, symbolic)
        symlink(folder.file("nowhere"), none)
        Glibc.link(victim, hard)
        #expect(refusal(symbolic)?.contains("symbolic link") == true)
        #expect(refusal(none)?.contains("symbolic link") == true && access(folder.file("nowhere"), F_OK) != 0)
        #expect(refusal(hard)?.contains("another name") == true)
        #expect(refusal(folder.path) != nil)
    }

    /// What is written to a pipe goes to the process at its other end.
    @Test func pipe_isRefused() {
        mkfifo(folder.file("pipe"), 0o600)
        #expect(refusal(folder.file("pipe"))?.contains("not a regular file") == true)
    }

    @Test(.enabled(if: geteuid() == 0)) func fileOfAnotherUser_isRefused() {
        chown(victim, 54321, 54321)
        #expect(refusal(victim)?.contains("another user") == true)
    }

    @Test func backup_doesNotFollowALink() throws {
        let store = try TestStore()
        try store.append(to: store.register())
        let file = folder.file("backup.sqlite")
        symlink(victim, file + ".partial")
        let error = #expect(throws: StoreError.self) { try StoreBackup().run(of: store.path, to: file) }
        #expect("\(try #require(error))".contains("backup.sqlite.partial cannot be written: it is a symbolic link"))
        #expect(isVictimWhole && access(file, F_OK) != 0)
        // A link that the failed backup leaves would make every later one fail.
        unlink(file + ".partial")
        try Data("x".utf8).write(to: URL(filePath: file + ".partial"))
        chmod(file + ".partial", 0o666)
        #expect(try StoreBackup().run(of: store.path, to: file).isSound && mode(file) == 0o600)
    }

    @Test(arguments: ["-wal", "-shm", ".reserve"]) func store_isNotOpened_ifAFileOfItIsALink(tail: String) throws {
        let path = folder.file("store.sqlite")
        symlink(victim, path + tail)
        let error = #expect(throws: StoreError.self) { try TestStore.open(OutboxOptions(path: path)) }
        #expect("\(try #require(error))".contains("\(path)\(tail) is a symbolic link; remove it"))
        #expect(isVictimWhole)
    }
}
