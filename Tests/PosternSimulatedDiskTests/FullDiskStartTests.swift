import PosternCore
import PosternSimulatedDisk
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternStore

/// Starts on a disk without a free block, after a process that was killed.
@Suite struct FullDiskStartTests {
    /// A store that fills its disk, and other programs that take the rest. Returns how many messages it has.
    private func fill(
        _ store: DiskStore, _ process: DiskStore.Process, lengths: [Int] = [400, 700], random: inout SplitMix64
    ) throws -> Int {
        store.disk.capacityBytes = Int.random(in: 20...32, using: &random) << 20
        var count = 0
        #expect(throws: AppendError.self) {
            while true {
                try process.append(100, length: lengths.randomElement(using: &random)!)
                count += 100
            }
        }
        store.disk.capacityBytes = store.disk.usedBytes
        return count
    }

    /// A stop removes the log, whose space the next start needs.
    @Test func stoppedStore_isOpenedAgain_onADiskWithoutABlock() throws {
        let store = DiskStore(seed: 5)
        var random = SplitMix64(state: 5)
        let count = try store.run(closing: true) { try fill(store, $0, random: &random) }
        store.disk.kill()
        for _ in 0..<3 {
            store.disk.capacityBytes = store.disk.usedBytes
            #expect(try store.run(closing: true) { try $0.ids().count } == count)
            store.disk.kill()
        }
    }

    /// Killed inside any call, also of a start, while other programs take every block that becomes free.
    @Test(arguments: 0..<12) func start_servesOnAFullDisk_afterAKillAtAnyPoint(seed: Int) throws {
        let store = DiskStore(seed: seed)
        var random = SplitMix64(state: UInt64(seed))
        // Killed before its connections are closed: SQLite would remove the log and its index.
        func live<T>(_ body: (DiskStore.Process) throws -> T) throws -> T {
            try store.run { process in
                defer { store.disk.kill() }
                return try body(process)
            }
        }
        var left = try live { try fill(store, $0, random: &random) }
        var lives = 0
        while left > 0 {
            store.disk.capacityBytes = store.disk.usedBytes
            let call = [DiskCall.write, .truncate, .allocate, .sync].randomElement(using: &random)!
            let number = Int.random(in: 0..<(call == .write ? 200 : 12), using: &random)
            store.disk.strike(.stop, on: call, after: number)
            do {
                try store.run { process in
                    try drain(process, random: &random)
                    store.disk.kill()
                }
            } catch {
                // Only because it was killed.
                try #require(store.disk.hasStopped, "\(error)")
                store.disk.kill()
            }
            store.disk.endStrikes()
            lives += 1
            guard lives.isMultiple(of: 8) else { continue }
            store.disk.capacityBytes = store.disk.usedBytes
            left = try live { process in
                #expect(try process.findings() == [])
                try deliver(100, process)
                return try process.ids().count
            }
        }
    }

    private func drain(_ process: DiskStore.Process, random: inout SplitMix64) throws {
        while try deliver(Int.random(in: 1...32, using: &random), process) {}
    }

    /// Delivers some of the oldest messages. Returns false if there are none.
    @discardableResult private func deliver(
        _ count: Int, _ process: DiskStore.Process, isRecorded: Bool = true
    ) throws -> Bool {
        let (outbox, queue) = (process.outbox, process.queue)
        let limits = BatchLimits(maxMessages: count, maxBytes: 1 << 20)
        let messages = try queue.claim(limits, now: outbox.time.now, oldest: nil, preferring: .inTurn).messages
        guard !messages.isEmpty else { return false }
        let batch = outbox.nextBatch()
        if isRecorded {
            try process.threads.result {
                outbox.openAttempt(batch, carrying: messages.map(\.id), at: outbox.time.now, of: queue, completion: $0)
            }
        }
        var settlement = Settlement(batch: batch, outcome: .delivered, endedAt: outbox.time.now)
        settlement.delivered = messages
        _ = try process.threads.result {
            outbox.settle(settlement, of: queue, changes: { _ in [] }, completion: $0)
        }
        process.queue.release(messages)
        return true
    }

    /// A claim, or any other read, keeps the log from being reset at the moment at which that is tried.
    @Test func log_isReset_forTheFirstCommitThatDoesNotFit_onceTheReadHasEnded() throws {
        let store = DiskStore(seed: 7)
        var random = SplitMix64(state: 7)
        try store.run { process in
            _ = try fill(store, process, lengths: [7000], random: &random)
            let error = #expect(throws: StoreError.self) {
                try process.outbox.read { sql in
                    _ = try sql.value("SELECT count(*) FROM upstreams", as: Int.self)
                    while try deliver(32, process, isRecorded: false) {}
                }
            }
            guard case .full = error else {
                Issue.record("\(String(describing: error))")
                return
            }
            #expect(try deliver(32, process, isRecorded: false))
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
