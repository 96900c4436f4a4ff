import Foundation
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// About SQLite itself: what the writer makes of a disk that fails.
@Suite struct DiskFailureTests {
    @Test func failedSync_isNoFullDisk_andLeavesNoTrace() throws {
        SyncCounter.install()
        let store = try TestStore()
        let queue = try store.register()
        try store.append(3, to: queue)
        SyncCounter.fail(store.path + "-wal", times: 1)
        let refusal = #expect(throws: AppendError.self) { try store.append(to: queue) }
        guard case .store(.failed) = refusal else {
            Issue.record("\(String(describing: refusal))")
            return
        }
        #expect(try store.survivors() == 3)
    }

    @Test func failedDisk_rejectsEverything_untilTheStoreWasChecked() throws {
        SyncCounter.install()
        let store = try TestStore()
        let queue = try store.register()
        try store.append(3, to: queue)
        SyncCounter.fail(store.path + "-wal", times: 1000)
        let refusal = #expect(throws: AppendError.self) { try store.append(to: queue) }
        // Even the undoing of the commit failed.
        guard case .store(.unknown) = refusal else {
            Issue.record("\(String(describing: refusal))")
            return
        }
        #expect(store.outbox.trouble != nil)
        #expect(throws: StoreError.self) { try store.settleDown() }
        #expect(throws: AppendError.self) { try store.append(to: queue) }
        SyncCounter.fail(store.path + "-wal", times: 0)
        #expect(eventually { store.outbox.trouble == nil })
        #expect(try store.survivors() == 3)
        try store.append(2, to: queue)
        #expect(try store.drain(queue).count == 5)
        #expect(try store.isBalanced())
        try store.reopen()
        #expect(try store.isBalanced())
    }

    @Test func failedCheckpoint_isReported() throws {
        SyncCounter.install()
        let store = try TestStore()
        let queue = try store.register()
        // Checkpoints sync the file of the store, commits do not.
        SyncCounter.fail(store.path, times: 1000)
        let text = String(repeating: "x", count: 2000)
        for _ in 0..<40 { _ = try? store.append((0..<100).map { _ in store.message(text, to: queue) }) }
        #expect(store.outbox.trouble != nil)
        SyncCounter.fail(store.path, times: 0)
        #expect(eventually { store.outbox.trouble == nil })
        try store.append(to: queue)
        #expect(try store.isBalanced())
    }
}
