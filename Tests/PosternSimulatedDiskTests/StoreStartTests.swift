import Logging
import PosternCore
import PosternMetrics
import PosternSimulatedDisk
import PosternTestKit
import Testing

@testable import PosternStore

/// A start of the store, with one call that fails.
@Suite struct StoreStartTests {
    private let disk = SimulatedDisk(seed: 1)
    private let time = ManualTime()

    /// Runs `body` on the store as a process does that ends with it.
    private func run<T>(
        closing: Bool = false, _ body: (Outbox, UpstreamQueue, ManualThreads) throws -> T
    ) throws -> T {
        let threads = ManualThreads(time: time)
        defer { threads.abandon() }
        let outbox = try Outbox(
            OutboxOptions(path: disk.path("store.sqlite")), time: time, threads: threads, metrics: Metrics(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let queue = try outbox.register(PlainUpstream(), type: "plain", cap: QueueCap())
        let result = try body(outbox, queue, threads)
        if closing { outbox.close() }
        return result
    }

    private func append(to outbox: Outbox, _ queue: UpstreamQueue, _ threads: ManualThreads) throws -> MessageID {
        let message = NewMessage(queue: queue, kind: "thing", acceptedAt: time.now, bytes: Array("{}".utf8))
        let receipts = Inbox<Result<AppendReceipt, AppendRefusal>>()
        outbox.append([message]) { receipts.put($0) }
        return try #require(threads.take(from: receipts).first).get().ids[0]
    }

    /// The log is a new file in each run. Found by seed 29 of the trials with syncs that fail.
    @Test func log_staysAfterAPowerCut_whenTheSyncOfItsFolderFailed() throws {
        _ = try run(closing: true, append)
        var accepted: MessageID?
        disk.strike(.ioError, on: .sync, of: "/")
        accepted = try? run(append)
        disk.endStrikes()
        disk.powerCut()
        let queued = try run { outbox, queue, _ in outbox.ledger(of: queue.number).queued }
        #expect(queued == (accepted == nil ? 1 : 2))
    }

    /// Found by seed 2 of the trials with errors. SQLite itself may still call the file malformed: it takes an `EIO` for a
    /// damaged file system.
    @Test func readThatFailsOnce_isNotTakenForDamage_byTheIntegrityCheck() throws {
        _ = try run(append)
        disk.kill()
        var succeeded = false
        for read in stride(from: 0, to: 2000, by: 3) where !succeeded {
            disk.strike(.ioError, on: .read, after: read)
            do {
                try run { _, _, _ in }
                succeeded = disk.strikesLeft > 0
            } catch let error as StoreError {
                switch error {
                case .cannotCreate, .failed, .corrupt(_, detail: "database disk image is malformed"): break
                default: Issue.record("read \(read): \(disk.neutral("\(error)"))")
                }
            }
            disk.endStrikes()
            disk.kill()
        }
        #expect(succeeded)
    }

    @Test func commit_costsOneSync() throws {
        try run { outbox, queue, threads in
            _ = try append(to: outbox, queue, threads)
            let before = disk.counts(of: "store.sqlite-wal").syncs
            for _ in 0..<10 { _ = try append(to: outbox, queue, threads) }
            #expect(disk.counts(of: "store.sqlite-wal").syncs == before + 10)
        }
    }
}
