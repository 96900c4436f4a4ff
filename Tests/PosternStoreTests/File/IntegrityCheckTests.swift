import Logging
import PosternCore
import PosternTestKit
import Synchronization
import Testing

@testable import PosternStore

@Suite struct IntegrityCheckTests {
    /// A check reads one snapshot, so that the log of a large store would grow until the check ends.
    @Test func check_givesWay_andBeginsAgain() throws {
        let store = try Self.largeStore()
        let check = try IntegrityCheck(path: store.path, on: ManualThreads(), logger: Logger(label: "test"))
        defer { check.stop() }
        #expect(!check.giveWay())
        let now = MonotonicInstant(nanoseconds: 0)
        for pause in [Duration.seconds(60), .seconds(120)] {
            let next = Mutex<[MonotonicInstant?]>([])
            let thread = try DedicatedThread(name: "check") {
                let found = check.turn(at: now)
                next.withLock { $0.append(found) }
            }
            // Until it is really reading, an interruption has no effect.
            while next.withLock({ $0.isEmpty }) { _ = check.giveWay() }
            thread.join()
            #expect(next.withLock { $0 } == [now + pause])
        }
        #expect(check.turn(at: now) == nil)
        #expect(check.trouble == nil)
    }

    /// There, the log has room for few commits, and deliveries need all of it.
    @Test func check_givesWayToAnyLog_onAFullDisk() throws {
        let store = try Self.largeStore()
        let outbox = store.outbox
        func full() { outbox.becameFull(.full(detail: "as the test wants it")) }
        full()
        let now = MonotonicInstant(nanoseconds: 0)
        let next = Mutex<[MonotonicInstant?]>([])
        let thread = try DedicatedThread(name: "check") {
            let found = outbox.check.turn(at: now)
            next.withLock { $0.append(found) }
        }
        while next.withLock({ $0.isEmpty }) {
            // The disk has room, which the store notices.
            full()
            outbox.noteLog(frames: 1)
        }
        thread.join()
        #expect(next.withLock { $0 } == [now + .seconds(60)])
    }

    private static func largeStore() throws -> TestStore {
        let store = try TestStore()
        try store.execute(
            """
            CREATE TABLE many (n INTEGER PRIMARY KEY, text TEXT UNIQUE);
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 300000)
            INSERT INTO many SELECT n, 'text ' || n FROM numbers
            """)
        return store
    }
}
