import Logging
import PosternCore
import PosternMetrics
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

@testable import PosternStore

@Suite struct IntegrityCheckTests {
    /// A check reads one snapshot, so that the log of a large store would grow until the check ends.
    @Test func check_givesWay_andBeginsAgain() throws {
        let store = try Self.largeStore()
        try Self.untilInTime {
            let check = try IntegrityCheck(path: store.path, on: ManualThreads(), logger: Logger(label: "test"))
            defer { check.stop() }
            #expect(!check.giveWay())
            for pause in [Duration.seconds(60), .seconds(120)] {
                guard let next = try Self.turn(check, during: { _ = check.giveWay() }) else { return false }
                #expect(next == Self.now + pause)
            }
            #expect(check.turn(at: Self.now) == nil)
            #expect(check.failure == nil)
            return true
        }
    }

    /// There, the log has room for few commits, and deliveries need all of it.
    @Test func check_givesWayToAnyLog_onAFullDisk() throws {
        try Self.untilInTime {
            let store = try Self.largeStore()
            let next = try Self.turn(store.sqlite.check) {
                // The disk has room, which the store notices.
                store.sqlite.enterFull(.full(detail: "as the test wants it"))
                store.sqlite.recordLog(frames: 1)
            }
            guard let next else { return false }
            #expect(next == Self.now + .seconds(60))
            return true
        }
    }

    /// Its snapshot keeps the log from being emptied, which a disk that failed is checked with.
    @Test func check_givesWay_toTheRecoveryOfAFailedDisk() throws {
        let (folder, threads) = (ScratchFolder(), ManualThreads())
        let outbox = try Outbox(
            OutboxOptions(path: folder.file("store.sqlite")), time: threads.time, threads: threads, metrics: Metrics(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        defer { outbox.close() }
        try threads.result { outbox.writer.change({ try $0.sql.connection.execute(Self.manyRows) }, completion: $0) }
        let engine = try #require(outbox.engine as? SQLiteEngine)
        try Self.untilInTime {
            let next = try Self.turn(engine.check) {
                engine.enterFailed(.failed(detail: "as the test wants it"))
                threads.advance(by: .seconds(1))
            }
            threads.advance(by: .seconds(1))
            #expect(outbox.failure == nil)
            guard let next else { return false }
            #expect(next == Self.now + .seconds(60))
            return true
        }
    }

    private static let now = MonotonicInstant(nanoseconds: 0)

    /// Runs a check on a thread of its own while `interrupt` is called all the time: until the check is really reading, that
    /// has no effect. Returns when it begins again; nil if it has ended.
    private static func turn(_ check: IntegrityCheck, during interrupt: () -> Void) throws -> MonotonicInstant? {
        let next = Mutex<[MonotonicInstant?]>([])
        let thread = try DedicatedThread(name: "check") {
            let found = check.turn(at: now)
            next.withLock { $0.append(found) }
        }
        while next.withLock({ $0.isEmpty }) { interrupt() }
        thread.join()
        return next.withLock { $0[0] }
    }

    /// On a busy machine, a check may end before the thread that interrupts it gets to run.
    private static func untilInTime(_ trial: () throws -> Bool) throws {
        for _ in 0..<20 { if try trial() { return } }
        Issue.record("no check was interrupted")
    }

    private static func largeStore() throws -> TestStore {
        let store = try TestStore()
        try store.execute(manyRows)
        return store
    }

    private static let manyRows = """
        CREATE TABLE many (n INTEGER PRIMARY KEY, text TEXT UNIQUE);
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 300000)
        INSERT INTO many SELECT n, 'text ' || n FROM numbers
        """
}
