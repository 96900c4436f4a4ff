import Foundation
import PosternCore
import PosternEvents
import PosternMetrics
import PosternTestKit
import PosternThreads
import PosternUpstream
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
                try transaction.settle(first, of: queue.target) { _ in [.set(key: "a", value: [1])] }
                throw StoreError.failed(detail: "after all")
            }
        }
        #expect(try store.outbox.withState(of: queue.number) { $0.value(of: "a") } == nil)
        #expect(try store.state(claim.messages[0].id) == .queued)
        try store.settle(settlement, of: queue, changes: [.set(key: "a", value: [1])])
        #expect(try store.outbox.withState(of: queue.number) { $0.value(of: "a") } == [1])
        try store.settle(settlement, of: queue, changes: [.remove(key: "a"), .set(key: "b", value: [])])
        #expect(try store.outbox.withState(of: queue.number) { $0.value(of: "a") } == nil)
        #expect(try store.outbox.withState(of: queue.number) { $0.value(of: "b") } == [])
        #expect(try store.isBalanced())
    }

    /// Else messages of two kinds would share a number, and be sent as what they are not.
    @Test func kindOfAnUndoneTransaction_hasNoNumber() throws {
        let store = try TestStore()
        #expect(throws: StoreError.self) {
            try store.transact { transaction in
                try transaction.enter(["undone"])
                throw StoreError.failed(detail: "after all")
            }
        }
        try store.transact { try $0.enter(["other"]) }
        try store.transact { try $0.enter(["undone", "undone"]) }
        try store.settleDown()
        for _ in 1...2 {
            let kinds = store.outbox.kinds
            let numbers = [kinds.number(of: "other"), kinds.number(of: "undone")]
            #expect(Set(numbers).count == 2 && !numbers.contains(0))
            #expect(numbers.map(kinds.kind) == ["other", "undone"])
            try store.reopen()
        }
    }

    @Test func append_isSeenByAnotherConnection_whenItCompletes() throws {
        let store = try TestStore()
        let queue = try store.register()
        let view = try StoreView(path: store.path)
        let seen = Inbox<MessageRecord?>()
        store.outbox.append([store.message("{\"a\":1}", to: queue, key: "k")]) { result in
            guard case .success(let receipt) = result else { return seen.put(nil) }
            seen.put(try? view.message(receipt.ids[0], payload: true))
        }
        let record = try #require(try store.threads.receive(from: seen)[0])
        #expect(record.payload == Array("{\"a\":1}".utf8))
        #expect(record.state == .queued)
        #expect(record.key == "k")
        #expect(record.acceptedAt == store.time.now)
    }

    /// A directory for temporary files may be full, missing or read-only, and others may read it.
    @Test func changeOfManyPages_createsNoTemporaryFile() throws {
        let store = try TestStore()
        let queue = try store.register()
        let text = String(repeating: "x", count: 2000)
        try store.append((0..<500).map { _ in store.message(text, to: queue) })
        try store.transact { transaction in
            // Each page of it may have to be put back.
            try transaction.inSavepoint {
                try transaction.sql.run("UPDATE queue_# SET attempts = 1", of: queue.number)
                // What SQLite calls its temporary files, which no longer have a name in their directory.
                let files = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
                    try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
                }
                #expect(!files.contains { $0.contains("etilqs_") })
                return true
            }
        }
    }

    @Test func change_thatFails_leavesItsNeighboursAlone() throws {
        let store = try TestStore()
        let queue = try store.register()
        let gate = store.holdWriter()
        let stored = Inbox<Bool>()
        let failed = Inbox<Result<Void, StoreError>>()
        store.outbox.append([store.message(to: queue)]) { stored.put((try? $0.get()) != nil) }
        store.outbox.writer.change { _ in
            throw StoreError.failed(detail: "on purpose")
        } completion: {
            failed.put($0)
        }
        store.outbox.append([store.message(to: queue)]) { stored.put((try? $0.get()) != nil) }
        gate.put(())
        #expect(try store.threads.receive(2, from: stored) == [true, true])
        #expect(throws: StoreError.failed(detail: "on purpose")) { try store.threads.receive(from: failed)[0].get() }
        #expect(try store.kept(.queued) == 2)
        #expect(try store.isBalanced())
    }

    /// Others wait for a commit no longer than for the jobs of a tenth of a second.
    @Test func transaction_isCommitted_beforeMoreIsApplied_ifItTakesLong() throws {
        let store = try TestStore()
        let queue = try store.register()
        let gate = store.holdWriter()
        let steps = SharedValue<[String]>([])
        let done = Inbox<Void>()
        let time = store.time
        for job in 1...7 {
            store.outbox.writer.change { transaction in
                steps.set(steps.value + ["\(job)"])
                try transaction.sql.run("UPDATE store SET undone = undone + 1")
                // The last two are quick.
                if job < 6 { time.advance(by: .milliseconds(60)) }
            } completion: { _ in
                steps.set(steps.value + ["\(job) committed"])
                done.put(())
            }
        }
        store.outbox.append([store.message(to: queue)]) { _ in done.put(()) }
        gate.put(())
        _ = try store.threads.receive(8, from: done)
        #expect(
            steps.value == [
                "1", "2", "1 committed", "2 committed", "3", "4", "3 committed", "4 committed", "5", "6", "7",
                "5 committed", "6 committed", "7 committed",
            ])
    }

    /// The one that fails, and those before it, are tried alone; the rest have their turn.
    @Test func failureInALongTransaction_leavesTheOthersAlone() throws {
        let store = try TestStore()
        let queue = try store.register()
        let gate = store.holdWriter()
        let results = SharedValue<[Bool]>([])
        let done = Inbox<Void>()
        let (time, message) = (store.time, store.message(to: queue))
        for job in 0..<6 {
            store.outbox.writer.change { transaction in
                time.advance(by: .milliseconds(40))
                if job == 1 || job == 4 { throw StoreError.failed(detail: "on purpose") }
                _ = try transaction.append([message])
            } completion: {
                results.set(results.value + [(try? $0.get()) != nil])
                done.put(())
            }
        }
        gate.put(())
        _ = try store.threads.receive(6, from: done)
        #expect(results.value == [true, false, true, true, false, true])
        #expect(try store.kept(.queued) == 4)
        #expect(try store.isBalanced())
    }

    /// Each waits in its turn for nothing: another program that writes to the store holds its lock for as long as it likes.
    @Test func jobs_areAnswered_ifTheirTransactionCannotBegin() throws {
        let store = try TestStore()
        let queue = try store.register()
        nonisolated(unsafe) let other = try SQLiteConnection(store.path)
        let (begun, gate, answers) = (Inbox<Void>(), Inbox<Void>(), Inbox<Result<AppendReceipt, AppendError>>())
        store.outbox.writer.change { _ in
            begun.put(())
            _ = gate.wait(until: SystemTime().instant + longestWait)
        } completion: { _ in
            // Between two commits.
            try? other.execute("BEGIN IMMEDIATE")
        }
        // They come too late for that commit.
        _ = try store.threads.receive(from: begun)
        for _ in 0..<3 { store.outbox.append([store.message(to: queue)]) { answers.put($0) } }
        gate.put(())
        do {
            defer { try? other.execute("ROLLBACK") }
            for answer in try store.threads.receive(3, from: answers) {
                guard case .failure(.store(.failed)) = answer else {
                    Issue.record("\(answer)")
                    continue
                }
            }
        }
        try store.append(to: queue)
        #expect(store.outbox.ledger(of: queue.number).accepted == 1)
        #expect(try store.isBalanced())
    }

    @Test func close_commitsWhatWasHandedIn_andAnswersWhatComesLater() throws {
        let store = try TestStore()
        let queue = try store.register()
        let gate = store.holdWriter()
        let answers = Inbox<Result<AppendReceipt, AppendError>>()
        for _ in 0..<50 { store.outbox.append([store.message(to: queue)]) { answers.put($0) } }
        gate.put(())
        store.outbox.close()
        #expect(try store.threads.receive(50, from: answers).allSatisfy { (try? $0.get()) != nil })
        store.outbox.append([store.message(to: queue)]) { answers.put($0) }
        #expect(throws: AppendError.store(.closed)) { try store.threads.receive(from: answers)[0].get() }
        store.outbox.close()
        try store.reopen()
        #expect(store.outbox.ledger(of: queue.number).accepted == 50)
    }

    @Test func everyAppend_isAnswered_whenTheStoreClosesMeanwhile() throws {
        for _ in 0..<20 {
            let store = try TestStore()
            let queue = try store.register()
            let answers = Inbox<Bool>()
            let message = store.message(to: queue)
            let writer = store.outbox.writer
            let isReady = Inbox<Void>()
            let threads = try (0..<2).map { _ in
                try DedicatedThread(name: "appends") {
                    isReady.put(())
                    for _ in 0..<200 { writer.append([message]) { answers.put((try? $0.get()) != nil) } }
                }
            }
            _ = try store.threads.receive(2, from: isReady)
            store.outbox.close()
            threads.forEach { $0.join() }
            let stored = try store.threads.receive(400, from: answers).count { $0 }
            try store.reopen()
            #expect(store.outbox.ledger(of: queue.number).accepted == stored)
        }
    }

    @Test func waiter_isNotified_afterTheCommitThatSettlesItsMessage() throws {
        let store = try TestStore()
        let queue = try store.register()
        let id = try store.append(to: queue)
        let notices = Inbox<SettledNotice>()
        store.outbox.whenSettled(id) { notices.put($0) }
        let claim = try store.claim(queue)
        var settlement = store.settlement(.delivered)
        settlement.delivered = claim.messages
        settlement.result = Array("{}".utf8)
        try store.settle(settlement, of: queue)
        let notice = try store.threads.receive(from: notices)[0]
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
        let (threads, writer, message) = (store.threads, store.outbox.writer, store.message(to: queue))
        let thread = try DedicatedThread(name: "appends") {
            while !isOver.load(ordering: .relaxed) {
                let answer = Inbox<Result<AppendReceipt, AppendError>>()
                writer.append([message]) { answer.put($0) }
                guard let ids = try? threads.receive(from: answer)[0].get().ids else { return }
                accepted.withLock { $0 += ids }
            }
        }
        let copy = store.folder.file("copy.sqlite")
        #expect(eventually { accepted.withLock(\.count) > 50 })
        let before = accepted.withLock { $0 }
        let (source, target) = (try SQLiteConnection(store.path, isReadOnly: true), try SQLiteConnection(copy))
        try source.copy(to: target, pagesPerStep: -1) { _, _ in }
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
        let before = try store.outbox.withState(of: queue.number) { $0.value(of: "taken") }
        #expect(before == [1])
        let request = ["yes", "no", "yes", "no"].map { store.message($0, to: queue) }
        #expect(
            throws: AppendError.refused([
                .init(index: 1, refusal: AcceptanceError(.conflict, "no")),
                .init(index: 3, refusal: AcceptanceError(.conflict, "no")),
            ])
        ) { try store.append(request) }
        #expect(try store.outbox.withState(of: queue.number) { $0.value(of: "taken") } == [1])
        #expect(store.outbox.ledger(of: queue.number).accepted == 1)
        let last = try store.append("yes", to: queue)
        #expect(try store.claim(queue).messages.last?.id == last)
        #expect(try store.outbox.withState(of: queue.number) { $0.value(of: "taken") } == [1, 1])
        #expect(try store.isBalanced())
    }

    /// What is undone has not happened, also for those who listen.
    @Test func refusal_isNotTold() throws {
        let store = try TestStore()
        let queue = try store.register(CountingUpstream())
        store.outbox.events.open {}
        let gate = store.holdWriter()
        let answers = Inbox<[MessageID]>()
        for texts in [["yes"], ["yes", "yes", "no"], ["yes", "yes"]] {
            let request = texts.map { store.message($0, to: queue) }
            store.outbox.append(request) { answers.put((try? $0.get().ids) ?? []) }
        }
        gate.put(())
        let stored = try store.threads.receive(3, from: answers).flatMap { $0 }
        try store.settleDown()
        #expect(stored.count == 3)
        #expect(store.outbox.events.take() == [Event(.messageQueued, queue.name, ids: stored)])
    }

    @Test func refusal_leavesNeighboursOfTheSameCommitAlone() throws {
        let store = try TestStore()
        let queue = try store.register(CountingUpstream())
        let gate = store.holdWriter()
        let answers = Inbox<Bool>()
        for text in ["yes", "no", "yes"] {
            store.outbox.append([store.message(text, to: queue)]) { answers.put((try? $0.get()) != nil) }
        }
        gate.put(())
        #expect(try store.threads.receive(3, from: answers) == [true, false, true])
        #expect(try store.drain(queue).count == 2)
        #expect(try store.isBalanced())
    }
}

@Suite struct CheckpointTests {
    @Test func log_isWrittenBeforeTheFirstCommit_andKeepsItsBlocks() throws {
        let store = try TestStore()
        let queue = try store.register()
        // `SEEK_HOLE`, see lseek(2).
        let seekHole: Int32 = 4
        func writtenBytes() throws -> Int {
            let log = FileDescriptor(open(store.path + "-wal", O_RDONLY))
            #expect(log.isOpen)
            return Int(lseek(log.number, 0, seekHole))
        }
        // To the file system, blocks that are only allocated are a hole.
        #expect(try writtenBytes() == DiskReserve.bytesOfUsualLog)
        let text = String(repeating: "x", count: 2000)
        for _ in 0..<40 { try store.append((0..<100).map { _ in store.message(text, to: queue) }) }
        #expect(try writtenBytes() >= DiskReserve.bytesOfUsualLog)
    }

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
        let isReading = Inbox<Void>()
        let gate = Inbox<Void>()
        let reader = try DedicatedThread(name: "long read") {
            try? view.read { _ in
                isReading.put(())
                _ = gate.wait(until: SystemTime().instant + longestWait)
            }
        }
        _ = try store.threads.receive(from: isReading)[0]
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
        gate.put(())
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
private struct CountingUpstream: PlainAtHeart, StateValidatingUpstream {
    let plain = PlainUpstream("counting")

    func validate(_ candidate: PendingMessage, against state: any UpstreamState) throws(AcceptanceError)
        -> [StateChange]
    {
        guard candidate.payload != Array("no".utf8) else { throw AcceptanceError(.conflict, "no") }
        return [.set(key: "taken", value: (state.value(of: "taken") ?? []) + [1])]
    }
}

extension TestStore {
    /// Keeps the writer busy until the test puts something into the inbox. It is busy when this returns, so that what comes
    /// later is in one portion.
    fileprivate func holdWriter() -> Inbox<Void> {
        let (held, release) = (Inbox<Void>(), Inbox<Void>())
        outbox.writer.change { _ in
            held.put(())
            _ = release.wait(until: SystemTime().instant + longestWait)
        }
        _ = held.wait(until: SystemTime().instant + longestWait)
        return release
    }
}
