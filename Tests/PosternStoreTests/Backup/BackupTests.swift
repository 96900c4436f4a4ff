import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

@Suite struct BackupTests {
    private let store: TestStore
    private let queue: UpstreamQueue
    private let backup = StoreBackup(bytesPerSecond: 0)
    private var file: String { store.folder.file("backup.sqlite") }

    init() throws {
        store = try TestStore()
        queue = try store.register()
    }

    /// A store of some MiB, so that a copy takes several steps.
    private func fill() throws -> [MessageID] {
        let text = "\"" + String(repeating: "x", count: 200_000) + "\""
        return try store.append((0..<30).map { _ in store.message(text, to: queue) }).ids
    }

    private func names() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: store.folder.path).sorted()
    }

    private func flipPayload(in path: String) throws {
        let connection = try SQLiteConnection(path)
        try connection.execute("UPDATE queue_1 SET payload = CAST('[' || substr(payload, 2) AS BLOB)")
        try connection.close()
    }

    // MARK: Backup

    @Test func backupUnderLoad_isOneSnapshot_andBalances() throws {
        let before = try fill()
        let claim = try store.claim(queue, most: 1)
        let steps = SharedValue(0)
        let commits = SharedValue(0)
        let verification = try backup.run(of: store.path, to: file) { [store, queue] done, all in
            steps.set(max(steps.value, done))
            // A backup that begins again with each commit ends nevertheless, with too many messages.
            guard done < all, commits.value < 100 else { return }
            commits.set(commits.value + 1)
            // Commits while pages are copied, which would make SQLite begin again if no snapshot were held.
            do {
                try store.append(2, to: queue)
                if done == StoreBackup.pagesPerStep { try store.deliver(claim.messages, of: queue) }
            } catch {
                Issue.record(error)
            }
        }
        #expect(verification.isSound)
        #expect(steps.value > 5 * 128)
        #expect(verification.payloads == before.count)
        #expect(try store.isBalanced())
        let copy = try StoreView(path: file)
        #expect(try copy.audit().accounts.map(\.ledger.queued) == [before.count])
        #expect(try copy.message(before[0], payload: true)?.state == .queued)
        let mode = try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int
        #expect(mode == 0o600)
        #expect(try names().filter { $0.hasPrefix("backup") } == ["backup.sqlite"], "it needs no other file")
    }

    @Test func cachedValues_areNotInABackup_norWhatIsLeftOfThem() throws {
        try store.append(2, to: queue)
        let until = store.time.now + .seconds(60)
        // Of several pages each, so that SQLite only takes the pages back when a value is deleted.
        let value = Array(repeatElement("what was cached ", count: 4_000).joined().utf8)
        try store.change(
            [
                .cache(key: "cache/item/1", value: value, until: until),
                .cache(key: "cache/item/2", value: value, until: until),
                .remove(key: "cache/item/1"), .set(key: "cached", value: [1]), .set(key: "session/1", value: [2]),
            ],
            of: queue)
        #expect(try backup.run(of: store.path, to: file).isSound)
        let keys = try StoreFile.openForReading(file).all("SELECT key FROM state ORDER BY key") { $0[0] as String }
        #expect(keys == ["cached", "session/1"])
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        #expect(bytes.range(of: Data(value[..<64])) == nil)
        #expect(try store.count("state") == 3, "the gateway still has it")
    }

    @Test func gateway_resetsItsLog_afterABackup() throws {
        _ = try fill()
        _ = try backup.run(of: store.path, to: file)
        store.outbox.close()
        #expect(!FileManager.default.fileExists(atPath: store.path + "-wal"), "a reader would have kept it")
    }

    @Test func damagedStore_givesNoBackup() throws {
        let ids = try store.append(2, to: queue)
        store.outbox.close()
        try flipPayload(in: store.path)
        let error = #expect(throws: StoreError.self) { try backup.run(of: store.path, to: file) }
        guard case .corrupt(store.path, let detail) = error else { return #expect(Bool(false), "\(error as Any)") }
        #expect(detail.contains("the payload of message \(ids[0]) differs from its checksum"))
        #expect(try names().filter { $0.hasPrefix("backup") } == [])
    }

    @Test func earlierBackup_isReplaced_onlyOnRequest() throws {
        try store.append(1, to: queue)
        _ = try backup.run(of: store.path, to: file)
        try store.append(1, to: queue)
        #expect(throws: StoreError.self) { try backup.run(of: store.path, to: file) }
        #expect(try StoreVerification.run(file).payloads == 1)
        let replacing = StoreBackup(bytesPerSecond: 0, replacesFile: true)
        #expect(try replacing.run(of: store.path, to: file).payloads == 2)
        #expect(try StoreVerification.run(file).payloads == 2)
    }

    @Test func storeInUse_isNeverReplaced() throws {
        try store.append(1, to: queue)
        let replacing = StoreBackup(bytesPerSecond: 0, replacesFile: true)
        #expect(throws: StoreError.self) { try replacing.run(of: store.path, to: store.path) }
        let other = try TestStore()
        #expect(throws: StoreError.self) { try replacing.run(of: store.path, to: other.path) }
        #expect(try store.isBalanced())
        #expect(try other.isBalanced())
    }

    @Test func backup_pausesForItsRate_butNotWhileTheLogGrows() throws {
        let pace = BackupPace(bytesPerSecond: 1 << 20)
        #expect(try pace.pause(after: 1 << 20, in: .milliseconds(250), logGrownBy: 0) == .milliseconds(750))
        #expect(try pace.pause(after: 1 << 20, in: .seconds(2), logGrownBy: 0) == .zero)
        #expect(try pace.pause(after: 1 << 30, in: .zero, logGrownBy: 0) == .seconds(1))
        #expect(try pace.pause(after: 1 << 30, in: .zero, logGrownBy: 32 << 20) == .zero)
        #expect(try BackupPace().pause(after: 1 << 30, in: .zero, logGrownBy: 0) == .zero)
        #expect(throws: StoreError.self) { try pace.pause(after: 0, in: .zero, logGrownBy: 512 << 20) }
    }

    // MARK: Restore

    @Test func idsThatWereAssignedAfterTheBackup_areNotAssignedAgain() throws {
        try store.append(3, to: queue)
        let batch = store.outbox.nextBatch()
        _ = try backup.run(of: store.path, to: file)
        let later = try store.append(5, to: queue)
        try store.openAttempt(try store.claim(queue, most: 1).messages, of: queue)
        store.outbox.close()
        // The clock has not moved since the store was created, so it does not help.
        let restored = try StoreRestore.run(file, to: store.path, at: store.time.now)
        #expect(restored.verification.payloads == 3)
        // The versions of those that write and that read the file: 2 is a file with a log (1.3.3 of SQLite's page
        // "Database File Format").
        #expect(try Data(contentsOf: URL(filePath: store.path))[18...19] == Data([2, 2]))
        try store.reopen()
        #expect(try store.record(later[0]) == nil)
        let next = try store.append(1, to: store.register())[0]
        #expect(next > later[4])
        #expect(store.outbox.nextBatch().rawValue > batch.rawValue + 1)
        #expect(try store.isBalanced())
    }

    @Test func replacedStore_isKept_withItsLog() throws {
        _ = try fill()
        _ = try backup.run(of: store.path, to: file)
        let later = try store.append(1, to: queue)[0]
        // As a kill would leave it.
        let killed = store.folder.file("killed.sqlite")
        try store.copyFiles(to: killed)
        let restored = try StoreRestore.run(file, to: killed, at: store.time.now)
        let kept = try #require(restored.keptAs)
        let former = try TestStore.open(OutboxOptions(path: kept), time: store.time)
        defer { former.close() }
        #expect(try former.message(later)?.state == .queued)
        let new = try TestStore.open(OutboxOptions(path: killed), time: store.time)
        defer { new.close() }
        #expect(try new.message(later) == nil)
    }

    @Test func restore_isRefused_whileTheStoreIsInUse() throws {
        let id = try store.append(1, to: queue)[0]
        _ = try backup.run(of: store.path, to: file)
        let before = try names()
        #expect(throws: StoreError.alreadyRunning(path: store.path)) {
            try StoreRestore.run(file, to: store.path, at: store.time.now)
        }
        #expect(try names() == before)
        #expect(try store.state(id) == .queued)
    }

    @Test func damagedBackup_isNotRestored() throws {
        let id = try store.append(1, to: queue)[0]
        _ = try backup.run(of: store.path, to: file)
        try flipPayload(in: file)
        store.outbox.close()
        let before = try names()
        let error = #expect(throws: StoreError.self) {
            try StoreRestore.run(file, to: store.path, at: store.time.now)
        }
        guard case .corrupt(file, _) = error else { return #expect(Bool(false), "\(error as Any)") }
        let new = store.folder.file("new.sqlite")
        #expect(throws: StoreError.self) { try StoreRestore.run(file, to: new, at: store.time.now) }
        #expect(try names() == before, "nothing is left behind")
        try store.reopen()
        #expect(try store.state(id) == .queued)
    }

    @Test func damagedStore_isReplaced_andTheClockKeepsIdsApart() throws {
        try store.append(3, to: queue)
        _ = try backup.run(of: store.path, to: file)
        let later = try store.append(5, to: queue)
        store.outbox.close()
        try Data(repeating: 0xA5, count: 50_000).write(to: URL(fileURLWithPath: store.path))
        store.time.advance(by: .seconds(1))
        let restored = try StoreRestore.run(file, to: store.path, at: store.time.now)
        #expect(restored.keptAs == store.path + ".replaced-\(store.time.now.milliseconds)")
        try store.reopen()
        #expect(try store.append(1, to: store.register())[0] > later[4])
    }

    @Test(arguments: [true, false])
    func interruptedRestore_isNotTakenForANewStore_andCanBeRepeated(hasLog: Bool) throws {
        let id = try store.append(1, to: queue)[0]
        _ = try backup.run(of: store.path, to: file)
        store.outbox.close()
        // As a kill leaves it after the former database was renamed.
        try FileManager.default.moveItem(atPath: store.path, toPath: store.path + ".replaced-1")
        try FileManager.default.copyItem(atPath: file, toPath: store.path + ".restoring")
        if hasLog { try Data(repeating: 1, count: 99).write(to: URL(fileURLWithPath: store.path + "-wal")) }
        let error = #expect(throws: StoreError.self) { try store.reopen() }
        #expect(error == .corrupt(path: store.path, detail: "a restore was interrupted"))
        _ = try StoreRestore.run(file, to: store.path, at: store.time.now)
        try store.reopen()
        #expect(try store.state(id) == .queued)
    }

    @Test func restoreAfterAnInterruption_keepsTheFormerStoreWhole_andContinuesItsNumbers() throws {
        try store.append(3, to: queue)
        _ = try backup.run(of: store.path, to: file)
        let later = try store.append(5, to: queue)
        // As a kill leaves it after the former database was renamed, but not its log.
        let killed = store.folder.file("killed.sqlite")
        try store.copyFiles(to: killed, ["", "-wal"])
        store.outbox.close()
        unlink(store.path)
        let kept = store.path + ".replaced-2"
        try FileManager.default.moveItem(atPath: killed, toPath: kept)
        try FileManager.default.moveItem(atPath: killed + "-wal", toPath: store.path + "-wal")
        for name in [store.path + ".replaced-1", store.path + ".restoring"] {
            try FileManager.default.copyItem(atPath: file, toPath: name)
        }
        // One that fails changes nothing about it.
        #expect(throws: StoreError.self) {
            try StoreRestore.run(store.folder.file("none"), to: store.path, at: store.time.now)
        }
        let error = #expect(throws: StoreError.self) { try store.reopen() }
        #expect(error == .corrupt(path: store.path, detail: "a restore was interrupted"))

        #expect(try StoreRestore.run(file, to: store.path, at: store.time.now).keptAs == kept)
        let former = try TestStore.open(OutboxOptions(path: kept), time: store.time)
        defer { former.close() }
        #expect(try former.message(later[4])?.state == .queued)
        try store.reopen()
        #expect(try store.record(later[4]) == nil)
        // The clock has not moved.
        #expect(try store.append(1, to: store.register())[0] > later[4])
    }

    @Test func restore_needsNoStore() throws {
        let id = try store.append(1, to: queue)[0]
        _ = try backup.run(of: store.path, to: file)
        let path = store.folder.file("elsewhere/store.sqlite")
        #expect(try StoreRestore.run(file, to: path, at: store.time.now).keptAs == nil)
        let other = try TestStore.open(OutboxOptions(path: path), time: store.time)
        defer { other.close() }
        #expect(try other.message(id)?.state == .queued)
    }
}
