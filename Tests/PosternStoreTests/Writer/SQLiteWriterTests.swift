import Foundation
import GRDB
import PosternCore
import PosternMetrics
import PosternTestKit
import Synchronization
import Testing

@testable import PosternStore

@Suite struct OutboxWriterTests {
    @Test func stateChanges_areCommitted_withTheirSettlement_orNotAtAll() throws {
        let store = try TestStore()
        let queue = try store.register()
        try store.append(1, to: queue)
        let claim = try store.claim(queue)
        var settlement = store.settlement(.delivered)
        settlement.delivered = claim.messages
        let first = settlement
        #expect(throws: StoreError.self) {
            try store.transact { transaction in
                try transaction.settle(first, of: queue) { _ in [.set(key: "a", value: [1])] }
                throw StoreError.failed(detail: "after all")
            }
        }
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "a") } == nil)
        #expect(try store.state(claim.messages[0].id) == .queued)
        try store.settle(settlement, of: queue, changes: [.set(key: "a", value: [1])])
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "a") } == [1])
        try store.settle(settlement, of: queue, changes: [.remove(key: "a"), .set(key: "b", value: [])])
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "a") } == nil)
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "b") } == [])
        #expect(try store.isBalanced())
    }

    @Test func append_isSeenByAnotherConnection_whenItCompletes() throws {
        let store = try TestStore()
        let queue = try store.register()
        let view = try StoreView(path: store.path)
        let seen = Waiter<MessageRecord?>()
        store.outbox.append([store.message("{\"a\":1}", to: queue, key: "k")]) { result in
            guard case .success(let receipt) = result else { return seen.put(nil) }
            seen.put(try? view.message(receipt.ids[0], payload: true))
        }
        let record = try #require(try seen.take())
        #expect(record.payload == Array("{\"a\":1}".utf8))
        #expect(record.state == .queued)
        #expect(record.key == "k")
        #expect(record.acceptedAt == store.time.now)
    }

    @Test func commit_syncsTheWALOnce_howeverManyMessages() throws {
        SyncCounter.install()
        let store = try TestStore()
        let queue = try store.register()
        for count in [1, 1000] {
            let before = SyncCounter.count(of: store.path + "-wal")
            try store.append(count, to: queue)
            #expect(SyncCounter.count(of: store.path + "-wal") - before == 1)
        }
    }

    @Test func appends_shareACommit_whileOneIsUnderWay() throws {
        SyncCounter.install()
        let store = try TestStore()
        let queue = try store.register()
        let gate = Gate()
        store.outbox.writer.change { _ in gate.wait() }
        let done = Waiter<Bool>()
        let before = SyncCounter.count(of: store.path + "-wal")
        for _ in 0..<200 {
            store.outbox.append([store.message(to: queue)]) { result in
                done.put((try? result.get()) != nil)
            }
        }
        gate.open()
        #expect(try done.take(200).allSatisfy { $0 })
        #expect(SyncCounter.count(of: store.path + "-wal") - before <= 2)
        #expect(store.outbox.ledger(of: queue.number).accepted == 200)
    }

    /// A directory for temporary files may be full, missing or read-only, and others may read it.
    @Test func changeOfManyPages_createsNoTemporaryFile() throws {
        SyncCounter.install()
        let store = try TestStore()
        let queue = try store.register()
        let text = String(repeating: "x", count: 2000)
        try store.append((0..<500).map { _ in store.message(text, to: queue) })
        let before = SyncCounter.temporaryFiles
        try store.transact { transaction in
            // Each page of it may have to be put back.
            try transaction.attempt {
                try transaction.sql.run("UPDATE queue_# SET attempts = 1", of: queue.number)
                return true
            }
        }
        #expect(SyncCounter.temporaryFiles == before)
    }

    @Test func change_thatFails_leavesItsNeighboursAlone() throws {
        let store = try TestStore()
        let queue = try store.register()
        let gate = Gate()
        store.outbox.writer.change { _ in gate.wait() }
        let stored = Waiter<Bool>()
        let failed = Waiter<Result<Void, StoreError>>()
        store.outbox.append([store.message(to: queue)]) { stored.put((try? $0.get()) != nil) }
        store.outbox.writer.change { _ in
            throw StoreError.failed(detail: "on purpose")
        } completion: {
            failed.put($0)
        }
        store.outbox.append([store.message(to: queue)]) { stored.put((try? $0.get()) != nil) }
        gate.open()
        #expect(try stored.take(2) == [true, true])
        #expect(throws: StoreError.failed(detail: "on purpose")) { try failed.take().get() }
        #expect(try store.kept(.queued) == 2)
        #expect(try store.isBalanced())
    }

    @Test func close_commitsWhatWasHandedIn_andAnswersWhatComesLater() throws {
        let store = try TestStore()
        let queue = try store.register()
        let gate = Gate()
        store.outbox.writer.change { _ in gate.wait() }
        let answers = Waiter<Result<AppendReceipt, AppendError>>()
        for _ in 0..<50 { store.outbox.append([store.message(to: queue)]) { answers.put($0) } }
        gate.open()
        store.outbox.close()
        #expect(try answers.take(50).allSatisfy { (try? $0.get()) != nil })
        store.outbox.append([store.message(to: queue)]) { answers.put($0) }
        #expect(throws: AppendError.store(.closed)) { try answers.take().get() }
        store.outbox.close()
        try store.reopen()
        #expect(store.outbox.ledger(of: queue.number).accepted == 50)
    }

    @Test func everyAppend_isAnswered_whenTheStoreClosesMeanwhile() throws {
        for _ in 0..<20 {
            let store = try TestStore()
            let queue = try store.register()
            let answers = Waiter<Bool>()
            let message = store.message(to: queue)
            let writer = store.outbox.writer
            let isReady = Waiter<Void>()
            let threads = (0..<2).map { _ in
                DedicatedThread(name: "appends") {
                    isReady.put(())
                    for _ in 0..<200 { writer.append([message]) { answers.put((try? $0.get()) != nil) } }
                }
            }
            _ = try isReady.take(2)
            store.outbox.close()
            threads.forEach { $0.join() }
            let stored = try answers.take(400).count { $0 }
            try store.reopen()
            #expect(store.outbox.ledger(of: queue.number).accepted == stored)
        }
    }

    @Test func settledMessage_isToldToWhoeverWaits_afterTheCommit() throws {
        let store = try TestStore()
        let queue = try store.register()
        let id = try store.append(to: queue)
        let notices = Waiter<SettledNotice>()
        store.outbox.whenSettled(id) { notices.put($0) }
        let claim = try store.claim(queue)
        var settlement = store.settlement(.delivered)
        settlement.delivered = claim.messages
        settlement.result = Array("{}".utf8)
        try store.settle(settlement, of: queue)
        let notice = try notices.take()
        #expect(notice.id == id)
        #expect(notice.state == .delivered)
        #expect(notice.result == Array("{}".utf8))
        #expect(store.metrics.settled("plain", "delivered").value == 1)
    }
}

@Suite struct CopyTests {
    /// As `sqlite3 … ".backup"` makes it, next to a gateway that goes on accepting.
    @Test func copyByTheBackupAPI_holdsAllThatWasAnsweredBefore_andBalances() throws {
        let store = try TestStore()
        let queue = try store.register()
        let isOver = Atomic<Bool>(false)
        let accepted = Mutex<[MessageID]>([])
        let (writer, message) = (store.outbox.writer, store.message(to: queue))
        let thread = DedicatedThread(name: "appends") {
            while !isOver.load(ordering: .relaxed) {
                let answer = Waiter<Result<AppendReceipt, AppendError>>()
                writer.append([message]) { answer.put($0) }
                guard let ids = try? answer.take().get().ids else { return }
                accepted.withLock { $0 += ids }
            }
        }
        let copy = store.folder.file("copy.sqlite")
        #expect(eventually { accepted.withLock(\.count) > 50 })
        let before = accepted.withLock { $0 }
        var reading = Configuration()
        reading.readonly = true
        let (source, target) = (
            try DatabaseQueue(path: store.path, configuration: reading), try DatabaseQueue(path: copy)
        )
        try source.backup(to: target)
        try source.close()
        try target.close()
        let count = accepted.withLock(\.count)
        #expect(eventually { accepted.withLock(\.count) > count })
        isOver.store(true, ordering: .relaxed)
        thread.join()

        let restored = try TestStore.open(OutboxOptions(path: copy))
        defer { restored.close() }
        let ids = try restored.messages(MessageFilter(), after: nil, limit: 100_000).messages.map(\.id)
        #expect(ids.starts(with: before))
        #expect(accepted.withLock { $0.starts(with: ids) })
        #expect(try restored.audit().isBalanced)
    }
}

@Suite struct AcceptByStateTests {
    @Test func refusal_takesBackTheWholeRequest_withTheStateItChanged() throws {
        let store = try TestStore()
        let queue = try store.register(CountingUpstream())
        try store.append("yes", to: queue)
        let before = try store.outbox.withState(of: queue.number) { try $0.value(of: "taken") }
        #expect(before == [1])
        let request = ["yes", "no", "yes", "no"].map { store.message($0, to: queue) }
        #expect(
            throws: AppendError.refused([
                .init(index: 1, refusal: AcceptanceError(.conflict, "no")),
                .init(index: 3, refusal: AcceptanceError(.conflict, "no")),
            ])
        ) { try store.append(request) }
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "taken") } == [1])
        #expect(store.outbox.ledger(of: queue.number).accepted == 1)
        let last = try store.append("yes", to: queue)
        #expect(try store.claim(queue).messages.last?.id == last)
        #expect(try store.outbox.withState(of: queue.number) { try $0.value(of: "taken") } == [1, 1])
        #expect(try store.isBalanced())
    }

    @Test func refusal_leavesNeighboursOfTheSameCommitAlone() throws {
        let store = try TestStore()
        let queue = try store.register(CountingUpstream())
        let gate = Gate()
        store.outbox.writer.change { _ in gate.wait() }
        let answers = Waiter<Bool>()
        for text in ["yes", "no", "yes"] {
            store.outbox.append([store.message(text, to: queue)]) { answers.put((try? $0.get()) != nil) }
        }
        gate.open()
        #expect(try answers.take(3) == [true, false, true])
        #expect(try store.drain(queue).count == 2)
        #expect(try store.isBalanced())
    }
}

@Suite struct CheckpointTests {
    @Test func wal_isMovedIntoTheFile_andStaysSmall() throws {
        let store = try TestStore()
        let queue = try store.register()
        let text = String(repeating: "x", count: 2000)
        for _ in 0..<60 { try store.append((0..<100).map { _ in store.message(text, to: queue) }) }
        let wal = try FileManager.default.attributesOfItem(atPath: store.path + "-wal")[.size] as? Int
        // 12 MB of payload went through it.
        #expect(try #require(wal) < 4 << 20)
        let file = try FileManager.default.attributesOfItem(atPath: store.path)[.size] as? Int
        #expect(try #require(file) > 8 << 20)
    }

    @Test func longRead_endsAccepting_beforeTheLogTakesTheDisk() throws {
        let store = try TestStore { $0.maxLogBytes = 4 << 20 }
        let queue = try store.register()
        let view = try StoreView(path: store.path)
        let isReading = Waiter<Void>()
        let gate = Gate()
        let reader = DedicatedThread(name: "long read") {
            try? view.read { _ in
                isReading.put(())
                gate.wait()
            }
        }
        _ = try isReading.take()
        let text = String(repeating: "x", count: 9000)
        let refusal = #expect(throws: AppendError.self) {
            for _ in 0..<500 { try store.append((0..<20).map { _ in store.message(text, to: queue) }) }
        }
        guard case .store(.full) = refusal else {
            Issue.record("\(String(describing: refusal))")
            return
        }
        let claim = try store.claim(queue, most: 5)
        try store.deliver(claim.messages, of: queue)
        gate.open()
        reader.join()
        #expect(eventually { (try? store.append(to: queue)) != nil })
        #expect(try store.isBalanced())
    }

    @Test func close_leavesNoWAL() throws {
        let store = try TestStore()
        try store.append(10, to: store.register())
        store.outbox.close()
        #expect(!FileManager.default.fileExists(atPath: store.path + "-wal"))
        try store.reopen()
        #expect(try store.outbox.audit().accounts.map(\.ledger.queued) == [10])
    }
}

/// An upstream whose consent depends on its state: counts what it took, and refuses payloads that say "no".
private struct CountingUpstream: PlainAtHeart, AcceptingUpstream {
    let plain = PlainUpstream("counting")

    func accept(_ candidate: PendingMessage, in state: any UpstreamState) throws -> [StateChange] {
        guard candidate.payload != Array("no".utf8) else { throw AcceptanceError(.conflict, "no") }
        return [.set(key: "taken", value: (try state.value(of: "taken") ?? []) + [1])]
    }
}
