import Foundation
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// About SQLite itself: a store is copied as a kill would leave it, and damaged.
@Suite struct WriteAheadLogTests {
    private let folder = ScratchFolder()

    /// Copies the files of a store that is open, with `commits` commits of one message each in its log.
    private func killed(commits: Int = 12) throws -> (path: String, ids: [MessageID]) {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try (0..<commits).map { try store.append("{\"n\":\($0)}", to: queue) }
        let path = folder.file("killed.sqlite")
        try copy(store.path, to: path)
        return (path, ids)
    }

    private func copy(_ from: String, to path: String) throws {
        for tail in ["", "-wal", "-shm"] {
            try? FileManager.default.removeItem(atPath: path + tail)
            if FileManager.default.fileExists(atPath: from + tail) {
                try FileManager.default.copyItem(atPath: from + tail, toPath: path + tail)
            }
        }
    }

    private func bytes(_ path: String) throws -> [UInt8] { try Array(Data(contentsOf: URL(filePath: path))) }

    private func write(_ bytes: some Sequence<UInt8>, to path: String) throws {
        try Data(bytes).write(to: URL(filePath: path))
    }

    private func stored(at path: String, recover: Bool = false) throws -> [MessageID] {
        let outbox = try TestStore.open(OutboxOptions(path: path), recover: recover)
        defer { outbox.close() }
        return try outbox.messages(MessageFilter(), after: nil, limit: 1000).messages.map(\.id)
    }

    /// Bytes of the log that hold commits; behind them is room that was allocated ahead.
    private func end(of log: [UInt8]) -> Int {
        let frame = 24 + StoreFile.pageSize
        return 32 + ((log.lastIndex { $0 != 0 } ?? 0) - 32) / frame * frame + frame
    }

    @Test func killedStore_hasEveryCommit() throws {
        let (path, ids) = try killed()
        #expect(try stored(at: path) == ids)
    }

    @Test func flippedBit_isFound_atAnyPosition() throws {
        let (path, ids) = try killed()
        let log = try bytes(path + "-wal")
        let original = folder.file("original.sqlite")
        try copy(path, to: original)
        var random = SystemRandomNumberGenerator()
        let positions = (0..<40).map { _ in Int.random(in: 0..<end(of: log), using: &random) } + [0, 8, 20, 28, 36, 44]
        for position in positions {
            try copy(original, to: path)
            var damaged = log
            damaged[position] ^= 1 << UInt8.random(in: 0..<8)
            try write(damaged, to: path + "-wal")
            let error = #expect(throws: StoreError.self, "position \(position)") { try stored(at: path) }
            guard case .logDamaged = error else {
                Issue.record("position \(position): \(String(describing: error))")
                continue
            }
            // Nothing was touched.
            #expect(try bytes(path + "-wal") == damaged)
            #expect(try bytes(path) == bytes(original))
        }
        #expect(ids.count == 12)
    }

    @Test func damagedHeaderOfAFrame_isRepaired_withEveryCommit() throws {
        let (path, ids) = try killed()
        var log = try bytes(path + "-wal")
        // The salt of the third frame.
        log[32 + 2 * (24 + StoreFile.pageSize) + 8] ^= 1
        try write(log, to: path + "-wal")
        #expect(throws: StoreError.self) { try stored(at: path) }
        #expect(try stored(at: path, recover: true) == ids)
        let kept = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.contains(".damaged-") }
        #expect(kept.contains { $0.hasSuffix("-wal") })
    }

    @Test func tornTail_isNoDamage() throws {
        let (path, ids) = try killed()
        let log = try bytes(path + "-wal")
        let end = end(of: log)
        // A commit that was not synced: some of it is there, some is not, and what the index says is older.
        let torn = log[..<end] + (0..<3 * (24 + StoreFile.pageSize)).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        try write(torn, to: path + "-wal")
        #expect(try stored(at: path) == ids)
    }

    @Test func lastCommit_isNoDamage_withoutTheIndex() throws {
        // After a power cut the index is gone, and a torn last commit looks like this.
        let (path, ids) = try killed()
        var log = try bytes(path + "-wal")
        log[end(of: log) - StoreFile.pageSize] ^= 1
        try write(log, to: path + "-wal")
        try FileManager.default.removeItem(atPath: path + "-shm")
        #expect(try stored(at: path) == ids.dropLast())
    }

    /// A power cut may leave the first eight bytes of a frame, if a sector ends there, as an earlier log had them: what
    /// was not synced then looks like a commit in the middle of another one.
    @Test func headOfAFrame_fromAnEarlierLog_isNoCommit() throws {
        let store = try TestStore()
        let queue = try store.register()
        let ids = try (0..<3).map { try store.append("{\"n\":\($0)}", to: queue) }
        let text = "\"" + String(repeating: "x", count: 1000) + "\""
        try store.append((0..<600).map { _ in store.message(text, to: queue) })
        let path = folder.file("killed.sqlite")
        try copy(store.path, to: path)
        var log = try bytes(path + "-wal")
        func offset(_ frame: Int) -> Int { 32 + frame * (24 + StoreFile.pageSize) }
        func isCommit(_ frame: Int) -> Bool { log[offset(frame) + 4..<offset(frame) + 8].contains { $0 != 0 } }
        let commits = (0..<(end(of: log) - 32) / (24 + StoreFile.pageSize)).filter(isCommit)
        let (first, last) = (commits[commits.count - 2] + 1, commits[commits.count - 1])
        let torn = try #require((first + 1..<last - 1).first { (offset($0) + 8) % 512 == 0 })
        log[offset(first) + 1000] ^= 1
        log[offset(torn) + 7] = 9
        try write(log[..<offset(last)], to: path + "-wal")
        try FileManager.default.removeItem(atPath: path + "-shm")
        #expect(try stored(at: path) == ids)
    }

    @Test func missingLog_isFound_afterAKill() throws {
        let (path, _) = try killed()
        try FileManager.default.removeItem(atPath: path + "-wal")
        let error = #expect(throws: StoreError.self) { try stored(at: path) }
        guard case .logDamaged = error else {
            Issue.record("\(String(describing: error))")
            return
        }
    }

    @Test func emptyFile_nextToALog_isDamage() throws {
        let (path, _) = try killed()
        try write([], to: path)
        let error = #expect(throws: StoreError.self) { try stored(at: path) }
        guard case .corrupt = error else {
            Issue.record("\(String(describing: error))")
            return
        }
    }
}
