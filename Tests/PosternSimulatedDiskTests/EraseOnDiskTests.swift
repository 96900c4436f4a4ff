import Foundation
import PosternCore
import PosternSimulatedDisk
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// A request to erase that a kill, or a power cut, ends inside any call that changes something on the disk, and that is sent
/// again.
@Suite struct EraseOnDiskTests {
    private static let person = "person-4711-is-to-be-erased"
    private static let other = "person-4712-stays"

    private func fill(_ process: DiskStore.Process) throws {
        for round in 0..<4 {
            let messages = (0..<8).map { number in
                let person = number % 4 == 1 ? Self.person : Self.other
                let text = #"{"id":"\#(person)","text":"\#(String(repeating: "x", count: round * 6000))"}"#
                return NewMessage(
                    queue: process.queue.target, kind: "thing", key: person, acceptedAt: process.outbox.time.now,
                    bytes: Array(text.utf8))
            }
            let record = ResponseRecord(key: [UInt8(round)], fingerprint: []) { Array("\(Self.person) \($0.ids)".utf8) }
            let receipt = try process.threads.result {
                process.outbox.append(messages, recording: .response(record), completion: $0)
            }
            guard round < 3 else { continue }
            let claim = try process.queue.claim(
                BatchLimits(maxMessages: 100, maxBytes: 1 << 20), now: process.outbox.time.now, oldest: nil,
                preferring: .inTurn)
            #expect(claim.messages.map(\.id) == receipt.ids)
            var settlement = Settlement(
                batch: process.outbox.nextBatch(), outcome: .rejected, endedAt: process.outbox.time.now)
            settlement.delivered = Array(claim.messages[..<4])
            settlement.ended = claim.messages[4...].map { .init($0, as: .failed, error: nil) }
            _ = try process.threads.result {
                process.outbox.settle(settlement, of: process.queue, changes: { _ in [] }, completion: $0)
            }
            process.queue.release(claim.messages)
        }
    }

    private func erase(_ process: DiskStore.Process) throws -> EraseCounts {
        let request = EraseRequest(.key(Self.person)) { _ in Array("202".utf8) }
        let executor = EraseExecutor(run: { $0() }, later: { $1() }, isStopping: { false })
        return try process.threads.result { process.outbox.erase(request, on: executor, completion: $0) }
    }

    private func traces(_ disk: SimulatedDisk) throws -> [String] {
        try StoreFile.tails.filter { tail in
            let bytes = try Files.read(disk.path("store.sqlite" + tail), for: "") ?? []
            return Data(bytes).range(of: Data(Self.person.utf8)) != nil
        }
    }

    @Test(arguments: [false, true]) func erasure_thatIsCutShort_isCompletedByTheNext(byPowerCut: Bool) throws {
        var place = 0
        var isInterrupted = true
        while isInterrupted {
            let store = DiskStore(seed: place)
            isInterrupted = try store.run { process in
                try fill(process)
                store.disk.strike(.stop, on: nil, after: place)
                _ = try? erase(process)
                return store.disk.hasStopped
            }
            store.disk.endStrikes()
            if byPowerCut { store.disk.powerCut() } else { store.disk.kill() }
            try store.run { process in
                #expect(try process.findings() == [], "\(place)")
                _ = try erase(process)
                #expect(try traces(store.disk) == [], "\(place)")
                #expect(try process.findings() == [], "\(place)")
                let records = try process.outbox.messages(MessageFilter(), after: nil, limit: 100).messages
                #expect(records.count == 32)
                #expect(records.filter { $0.key == Self.other }.count == 24, "\(place)")
                #expect(records.filter { $0.state == .queued }.map(\.key) == Array(repeating: Self.other, count: 6))
            }
            store.disk.powerCut()
            #expect(try store.run { _ in try traces(store.disk) } == [], "\(place), after a power cut")
            place += 7
        }
        #expect(place > 70)
    }
}
