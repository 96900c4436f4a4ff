import PosternCore
import PosternEvents
import PosternSimulatedDisk
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternStore

/// The writer's behavior on a failing disk, and how often it syncs.
@Suite struct DiskFailureTests {
    private let store = DiskStore(seed: 1)
    private var syncsOfLog: Int { store.disk.counts(of: "store.sqlite-wal").syncs }

    @Test func failedSync_isNoFullDisk_andLeavesNoTrace() throws {
        let refusal = try store.run { process in
            try process.append(3)
            store.disk.strike(.ioError, on: .sync, of: "-wal")
            return #expect(throws: AppendError.self) { try process.append() }
        }
        guard case .store(.failed) = refusal else {
            Issue.record("\(String(describing: refusal))")
            return
        }
        store.disk.kill()
        #expect(try store.contents().ids.count == 3)
    }

    @Test func failedDisk_rejectsEverything_untilTheStoreWasChecked() throws {
        try store.run { process in
            try process.append(3)
            store.disk.strike(.ioError, on: .sync, of: "-wal", times: 1000)
            let refusal = #expect(throws: AppendError.self) { try process.append() }
            // Even the undoing of the commit failed.
            guard case .store(.unknown) = refusal else {
                Issue.record("\(String(describing: refusal))")
                return
            }
            #expect(process.outbox.failure != nil)
            #expect(throws: StoreError.self) {
                try process.threads.result { process.outbox.writer.change({ _ in }, completion: $0) }
            }
            #expect(throws: AppendError.self) { try process.append() }
            store.disk.endStrikes()
            process.threads.advance(by: .seconds(20))
            #expect(process.outbox.failure == nil)
            #expect(try process.ids().count == 3)
            try process.append(2)
            let claim = try process.queue.claim(
                BatchLimits(maxMessages: 10, maxBytes: 1 << 20), now: store.time.now, oldest: nil)
            #expect(claim.messages.count == 5)
            #expect(try process.findings() == [])
        }
        store.disk.kill()
        let found = try store.contents()
        #expect(found.ids.count == 5)
        #expect(found.findings == [])
    }

    @Test func reserve_isTakenAgain_whenADiskThatWasFullHasFailedAndRecovered() throws {
        func reserved(_ process: DiskStore.Process) throws -> [Int] {
            let path = store.disk.path("store.sqlite.reserve")
            let inside = try process.outbox.read { try $0.value("SELECT count(*) FROM reserve", as: Int.self) }
            return [try Files.size(of: path, for: path), inside ?? 0]
        }
        try store.run { process in
            try process.append()
            let whole = try reserved(process)
            let capacity = store.disk.capacityBytes
            store.disk.capacityBytes = store.disk.usedBytes
            while (try? process.append(10, length: 7000)) != nil {}
            #expect(try reserved(process) != whole)
            store.disk.strike(.ioError, on: .sync, of: "-wal", times: 1000)
            #expect(throws: StoreError.self) {
                try process.threads.result {
                    process.outbox.writer.change(
                        { try $0.sql.run("UPDATE store SET undone = undone + 1") }, completion: $0)
                }
            }
            store.disk.endStrikes()
            store.disk.capacityBytes = capacity
            process.threads.advance(by: .seconds(20))
            #expect(process.outbox.failure == nil)
            #expect(try reserved(process) == whole)
            try process.append()
        }
    }

    /// Blocks are allocated before a commit refers to them. If that fails, no message is at fault.
    @Test func failedAllocation_failsTheDisk() throws {
        // The first process has opened the store under another name.
        try store.run { process in try process.append() }
        store.disk.kill()
        try store.run { process in
            store.disk.strike(.ioError, on: .allocate, of: "store.sqlite", times: 1000)
            let refusal = #expect(throws: AppendError.self) { try process.append(300, length: 7000) }
            guard case .store(.failed) = refusal else {
                Issue.record("\(String(describing: refusal))")
                return
            }
            #expect(throws: AppendError.self) { try process.append() }
            store.disk.endStrikes()
            process.threads.advance(by: .seconds(20))
            #expect(process.outbox.failure == nil)
            try process.append(300, length: 7000)
            #expect(try process.findings() == [])
        }
    }

    @Test func indexOfTheLog_isFullOrFailed_asTheDiskSays() throws {
        let path = store.disk.path("other.sqlite")
        try Files.write([], to: path + "-shm", for: path)
        store.disk.strike(.noSpace, on: .allocate, of: "other.sqlite-shm")
        // There is room for that of a short log.
        let index = try LogIndex(of: path)
        defer { index.close() }
        for (fault, failure) in [(DiskFault.noSpace, DiskFailure.full), (.ioError, .broken)] {
            store.disk.strike(fault, on: .allocate, of: "other.sqlite-shm")
            let error = #expect(throws: (any Error).self) { try index.makeRoom(forFrames: 20_000) }
            #expect(error.flatMap { DiskFailure($0, systemError: 0) } == failure)
        }
        try index.makeRoom(forFrames: 20_000)
    }

    /// A disk that is full would start, and reject messages.
    @Test(arguments: [".reserve", "-wal", "-shm"]) func start_saysThatTheDiskFailed_ifItDid(file: String) throws {
        store.disk.strike(.ioError, on: .allocate, of: file, times: 1000)
        let error = #expect(throws: StoreError.self) { try store.run { _ in } }
        guard case .failed = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        store.disk.endStrikes()
        store.disk.kill()
        try store.run { process in try process.append() }
    }

    /// SQLite would take what is left of an earlier log for one of the new store.
    @Test func firstStart_fails_ifItCannotRemoveWhatAnInterruptedOneLeft() throws {
        try Files.write([1, 2, 3], to: store.disk.path("store.sqlite.new-wal"), for: store.disk.path("store.sqlite"))
        store.disk.strike(.ioError, on: .delete, of: ".new-wal")
        #expect(throws: StoreError.self) { try store.run { _ in } }
        store.disk.kill()
        try store.run { process in try process.append() }
    }

    @Test func failedCheckpoint_isReported() throws {
        try store.run { process in
            // Checkpoints sync the file of the store, commits do not.
            store.disk.strike(.ioError, on: .sync, of: "store.sqlite", times: 1000)
            for _ in 0..<40 { _ = try? process.append(100, length: 2000) }
            #expect(process.outbox.failure != nil)
            store.disk.endStrikes()
            process.threads.advance(by: .seconds(20))
            #expect(process.outbox.failure == nil)
            try process.append()
            #expect(try process.findings() == [])
        }
    }

    @Test func commit_syncsTheWALOnce_howeverManyMessages() throws {
        try store.run { process in
            for count in [1, 1000] {
                let before = syncsOfLog
                try process.append(count)
                #expect(syncsOfLog - before == 1)
            }
        }
    }

    @Test func appends_shareACommit_whenTheyHaveArrivedBeforeIt() throws {
        try store.run { process in
            let stored = Inbox<Bool>()
            let before = syncsOfLog
            for _ in 0..<200 { process.outbox.append([process.message()]) { stored.put((try? $0.get()) != nil) } }
            let answers = try process.threads.receive(200, from: stored)
            #expect(answers.allSatisfy { $0 })
            #expect(syncsOfLog - before == 1)
            #expect(process.outbox.ledger(of: process.queue.number).accepted == 200)
        }
    }

    // MARK: Callbacks

    /// An alert finds room in the reserve, also once the store has returned its free pages.
    @Test func fullDisk_isTold_whileItIsFull() throws {
        try store.run { process in
            let outbox = process.outbox
            let hooks = try outbox.register(PlainUpstream("hooks"), type: "plain", cap: QueueCap())
            outbox.setCallbacks([
                Callback(
                    to: hooks, as: "thing", of: [], in: nil, includesPayload: false, alerts: [.diskFull],
                    events: { $0.map { _ in Callback.Event([], lane: .none) } })
            ])
            func tell(_ record: String, after former: String?) throws -> AlertOutcome {
                let alert = Alert(AlertKey(.diskFull, nil), [UInt8](repeating: 32, count: 500))
                return try process.threads.result { done in
                    outbox.tell([alert], after: former.map { Array($0.utf8) }) { _ in
                        Array(record.utf8)
                    } completion: {
                        done($0)
                    }
                }
            }
            try process.append(300, length: 100)
            store.disk.capacityBytes = store.disk.usedBytes
            #expect(throws: AppendError.self) { while true { try process.append(1, length: 100_000) } }
            store.disk.capacityBytes = store.disk.usedBytes
            let own: [UpstreamName: Int] = [hooks.name: 0]
            #expect(try tell("a", after: nil) == .told(record: Array("a".utf8), own: own))
            process.threads.advance(by: .seconds(600))
            #expect(outbox.isFull)
            #expect(try tell("b", after: "a") == .told(record: Array("b".utf8), own: own))
            #expect(outbox.ledger(of: hooks.number).queued == 2)
            #expect(try process.findings() == [])
        }
    }

    /// Events take the room that the settled messages leave. A settlement does without them if there is not enough.
    @Test(arguments: QueueCap.WhenFull.allCases, [100, 5000, 100_000])
    func fullDisk_dropsEvents_andSettlesAllTheSame(whenFull: QueueCap.WhenFull, length: Int) throws {
        try store.run { process in
            let outbox = process.outbox
            let hooks = try outbox.register(
                PlainUpstream("hooks"), type: "plain", cap: QueueCap.with { $0.whenFull = whenFull })
            outbox.setCallbacks([
                Callback(to: hooks, as: "thing", of: [.delivered], in: nil, includesPayload: true) { messages in
                    messages.map { Callback.Event(Array("{\"payload\":".utf8) + ($0.payload ?? []), lane: .none) }
                }
            ])
            func deliver(_ count: Int) throws {
                let claim = try process.queue.claim(
                    BatchLimits(maxMessages: count, maxBytes: 8 << 20), now: store.time.now, oldest: nil)
                #expect(claim.messages.count == count)
                var settlement = Settlement(batch: outbox.nextBatch(), outcome: .delivered, endedAt: store.time.now)
                settlement.delivered = claim.messages
                _ = try process.threads.result {
                    outbox.settle(settlement, of: process.queue, changes: { _ in [] }, completion: $0)
                }
                process.queue.release(claim.messages)
            }
            try process.append(300, length: length)
            try deliver(10)
            #expect(outbox.ledger(of: hooks.number).queued == 10)
            store.disk.capacityBytes = store.disk.usedBytes
            // A message that finds no room: the disk is full from now on.
            #expect(throws: AppendError.self) { while true { try process.append(1, length: 100_000) } }
            // Another program takes what the gateway has released, so that the log cannot grow either.
            store.disk.capacityBytes = store.disk.usedBytes
            for _ in 0..<29 { try deliver(10) }
            let ledger = outbox.ledger(of: hooks.number)
            #expect(outbox.ledger(of: process.queue.number).delivered >= 300)
            #expect(ledger.accepted == outbox.ledger(of: process.queue.number).delivered)
            #expect(ledger.queued + ledger.dropped == ledger.accepted)
            #expect(ledger.queued >= (length == 100_000 ? 10 : 150), "\(ledger)")
            #expect((ledger.dropped > 0) == (length == 100_000), "\(ledger)")
            let (rows, payloads) = try outbox.read { sql in
                try sql.first("SELECT count(*), count(payload) FROM ended_#", of: hooks.number) {
                    ($0[0] as Int, $0[1] as Int)
                } ?? (0, 0)
            }
            #expect(rows == ledger.dropped && payloads == 0)
            #expect(try process.findings() == [])
        }
    }
}
