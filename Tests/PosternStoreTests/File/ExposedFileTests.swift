import Foundation
import Glibc
import Logging
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

@Suite struct ExposedFileTests {
    private let folder = ScratchFolder()
    private var path: String { folder.file("data/store.sqlite") }

    init() throws {
        try TestStore.open(OutboxOptions(path: path)).close()
        // The folder of the test is private, too.
        chmod(folder.path, 0o755)
        chmod(folder.file("data"), 0o755)
    }

    private var found: [String] {
        let found = ExposedFile.all(of: path)
        return found.map { $0.description.replacing(folder.path, with: "DIR") }
    }

    @Test func filesOfTheGateway_areNotExposed_inAFolderThatOthersCanList() { #expect(found.isEmpty) }

    @Test func fileThatOthersCanRead_isNamed_withItsModeAndTheRemedy() throws {
        chmod(path, 0o644)
        #expect(
            found == [
                "other users can read or change DIR/data/store.sqlite, mode 0644; run: chmod 600 DIR/data/store.sqlite"
            ])
        // No other user can open it there.
        chmod(folder.file("data"), 0o700)
        #expect(found.isEmpty)
        chmod(folder.file("data"), 0o755)
        chmod(folder.path, 0o700)
        #expect(found.isEmpty)
    }

    @Test func logAndBackup_areFound_byNameOrContent() throws {
        for file in ["store.sqlite-wal", "store.sqlite.replaced-7", "elsewhere.txt"] {
            try Data("x".utf8).write(to: URL(filePath: folder.file("data/\(file)")))
            chmod(folder.file("data/\(file)"), 0o644)
        }
        try FileManager.default.copyItem(atPath: path, toPath: folder.file("data/monday.backup"))
        chmod(folder.file("data/monday.backup"), 0o604)
        let names = ExposedFile.all(of: path).map { String($0.path.split(separator: "/").last!) }
        #expect(names == ["monday.backup", "store.sqlite-wal", "store.sqlite.replaced-7"])
    }

    @Test func membersOfTheGroup_areNotOthers() {
        chmod(path, 0o660)
        #expect(found.isEmpty)
    }

    @Test func folderThatOthersCanWriteTo_isNamed() {
        chmod(folder.file("data"), 0o777)
        #expect(found == ["other users can replace the files in DIR/data, mode 0777; run: chmod o-w DIR/data"])
        chmod(folder.file("data"), 0o1777)
        #expect(found.isEmpty)
    }

    @Test func start_warnsOfIt() throws {
        chmod(path, 0o644)
        let lines = SharedValue<[String]>([])
        let lock = try StoreFile.prepare(
            path, startFresh: false, recover: false, reserve: DiskReserve(for: path), at: SystemTime().now,
            logger: Logger(label: "test") { _ in LineLog(lines: lines) })
        lock.release()
        let line = try #require(lines.value.first { $0.contains("other users can read or change messages") })
        #expect(line.contains("mode=0644") && line.contains("remedy=chmod 600 \(path)"), "\(line)")
    }
}

private struct LineLog: LogHandler {
    let lines: SharedValue<[String]>
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    init(lines: SharedValue<[String]>) { self.lines = lines }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let values = (event.metadata ?? [:]).map { "\($0.key)=\($0.value)" }
        lines.set(lines.value + ["\(event.message) \(values.joined(separator: " "))"])
    }
}
