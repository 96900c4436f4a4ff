import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// About SQLite itself: a real file system that is full, if this machine allows mounting one.
@Suite(.serialized) struct SmallDiskTests {
    /// Filled, restarted and drained in a random way, while something else takes all room that becomes free. Many more
    /// ways are tried on the simulated disk.
    @Test(.enabled(if: LoopDisk.isAllowed), arguments: 0..<4)
    func fullDisk_alwaysDrains_andAlwaysStarts(seed: Int) throws {
        var random = SplitMix64(state: UInt64(seed))
        let disk = try LoopDisk(
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

    @Test(.enabled(if: LoopDisk.isAllowed))
    func emptiedStore_takesMessagesAgain_byItself() throws {
        let disk = try LoopDisk(megabytes: 30, blockSize: 4096)
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

    @Test(.enabled(if: LoopDisk.isAllowed), arguments: [1024, 4096])
    func diskWithoutAnyRoom_isExplained(blockSize: Int) throws {
        let disk = try LoopDisk(megabytes: 8, blockSize: blockSize)
        disk.takeTheRest()
        let path = disk.folder + "/store.sqlite"
        let error = #expect(throws: StoreError.self) { try TestStore.open(OutboxOptions(path: path)) }
        guard case .cannotCreate = error else {
            Issue.record("\(String(describing: error))")
            return
        }
    }
}
