import PosternCore
import PosternSimulatedDisk
import PosternTestKit
import Testing

@testable import PosternStore

/// `--recover`, which repairs a damaged write-ahead log.
@Suite struct RecoveryTests {
    /// A store whose log is damaged such that a start sees it; nil if the bit that this seed flips is not seen.
    private func damagedStore(seed: Int) throws -> DiskStore? {
        let store = DiskStore(seed: seed)
        try store.run { process in for _ in 0..<8 { try process.append() } }
        store.disk.powerCut()
        #expect(store.disk.flipBit(in: "store.sqlite-wal") != nil)
        do {
            try store.run { _ in }
            return nil
        } catch StoreError.logDamaged {
            store.disk.kill()
            return store
        }
    }

    /// The power goes at every call of a recovery in turn. The damaged log is left, at its place or as a copy, and the
    /// next recovery restores what this one would have.
    @Test func recovery_losesNothing_atAnyPowerCut() throws {
        let seed = try #require(try (1...20).first { try damagedStore(seed: $0) != nil })
        let usual = try #require(try damagedStore(seed: seed)).contents(recover: true)
        #expect(usual.ids.count == 8)
        #expect(usual.findings == [])
        for calls in 0..<1000 {
            let store = try #require(try damagedStore(seed: seed))
            let path = store.disk.path("store.sqlite-wal")
            let damaged = try Files.read(path, for: path)
            let copy = "store.sqlite.damaged-\(store.time.now.milliseconds)-wal"
            store.disk.strike(.stop, on: nil, after: calls)
            _ = try? store.contents(recover: true)
            guard store.disk.hasStopped else {
                #expect(calls > 20)
                return
            }
            store.disk.powerCut()
            let left = try ["store.sqlite-wal", copy].map { try Files.read(store.disk.path($0), for: $0) }
            #expect(left.contains(damaged), "after \(calls) calls")
            let found = try store.contents(recover: true)
            #expect(found == usual, "after \(calls) calls")
        }
    }
}
