import PosternCore
import PosternSimulatedDisk
import PosternTestKit
import Testing

@testable import PosternStore

/// Starts on a disk without a free block, after a process that was killed.
@Suite struct FullDiskStartTests {
    /// A store that fills its disk, and other programs that take the rest. Returns how many messages it has.
    private func fill(_ store: DiskStore, _ process: DiskStore.Process, dice: inout SplitMix64) throws -> Int {
        store.disk.capacityBytes = Int.random(in: 20...32, using: &dice) << 20
        var count = 0
        #expect(throws: AppendError.self) {
            while true {
                try process.append(100, length: [400, 700].randomElement(using: &dice)!)
                count += 100
            }
        }
        store.disk.capacityBytes = store.disk.usedBytes
        return count
    }

    /// A stop removes the log, whose space the next start needs.
    @Test func stoppedStore_isOpenedAgain_onADiskWithoutABlock() throws {
        let store = DiskStore(seed: 5)
        var dice = SplitMix64(state: 5)
        let count = try store.run(closing: true) { try fill(store, $0, dice: &dice) }
        store.disk.kill()
        for _ in 0..<3 {
            store.disk.capacityBytes = store.disk.usedBytes
            #expect(try store.run(closing: true) { try $0.ids().count } == count)
            store.disk.kill()
        }
    }

    @Test func firstRefusal_isThatTheDiskIsFull_ifTheLogHasNoRoomEither() throws {
        let store = DiskStore(seed: 6)
        try store.run { process in
            try process.append(10)
            store.disk.strike(.noSpace, on: .write, of: "-wal", times: 1000)
            for _ in 0..<2 {
                let refusal = #expect(throws: AppendError.self) { try process.append(10) }
                guard case .store(.full) = refusal else {
                    Issue.record("\(String(describing: refusal))")
                    return
                }
            }
        }
        store.disk.endStrikes()
        store.disk.kill()
        #expect(try store.contents().ids.count == 10)
    }
}
