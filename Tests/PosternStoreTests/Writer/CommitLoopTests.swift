import Logging
import PosternCore
import PosternMetrics
import PosternThreads
import PosternTestKit
import Testing

@testable import PosternStore

/// What the store does with what an engine says, also one that is not SQLite.
@Suite struct CommitLoopTests {
    @Test func jobs_areToldThatTheirOutcomeIsUnknown_ifTheEngineDoesNotKnowIt() throws {
        #expect(try Self.ends(after: .broken(isUndone: false)) == ["unknown", "unknown"])
        #expect(try Self.ends(after: .broken(isUndone: true)) == ["failed", "failed"])
    }

    @Test func messages_areRejectedAndChangesRepeated_ifThereWasNoRoom() throws {
        #expect(try Self.ends(after: .full(hasMoreRoom: true)) == ["full", "done"])
        #expect(try Self.ends(after: .full(hasMoreRoom: true), isUndone: false) == ["unknown", "done"])
    }

    @Test func jobs_areRepeatedAlone_ifOneOfThemIsAtFault() throws {
        #expect(try Self.ends(after: .other) == ["failed", "done"])
    }

    /// How a message, which the engine does not accept, and a change of the same commit end.
    private static func ends(after failure: CommitFailure, isUndone: Bool = true) throws -> [String] {
        let store = try TestStore()
        let queue = try store.register()
        let writer = StubWriter(SQL(try SQLiteConnection(":memory:")))
        (writer.failure, writer.isUndone) = (failure, isUndone)
        let (inbox, change, message) = (Inbox<OutboxWriter.Job>(), SharedValue("none"), SharedValue("none"))
        inbox.put(.change({ _ in { change.set("done") } }, failed: { change.set(name($0)) }))
        inbox.put(
            .append([store.message(to: queue)], nil, nil) { result in
                switch result {
                case .success: message.set("done")
                case .failure(.store(let error)): message.set(name(error))
                case .failure: message.set("rejected")
                }
            })
        let loop = CommitLoop(outbox: store.outbox, inbox: inbox, writer: writer)
        _ = loop.turn(at: store.threads.instant)
        return [message.value, change.value]
    }

    /// As a message is: it may be there after a kill.
    @Test(arguments: [(true, "full"), (false, "unknown")])
    func changeWithoutRoom_isAnsweredAsUndone_onlyIfThatIsCertain(isUndone: Bool, end: String) throws {
        let store = try TestStore()
        let writer = StubWriter(SQL(try SQLiteConnection(":memory:")))
        (writer.failure, writer.isUndone) = (.full(hasMoreRoom: false), isUndone)
        let (inbox, change) = (Inbox<OutboxWriter.Job>(), SharedValue("none"))
        inbox.put(
            .change(
                { _ in throw StoreError.full(detail: "as the test wants it") }, failed: { change.set(Self.name($0)) }))
        _ = CommitLoop(outbox: store.outbox, inbox: inbox, writer: writer).turn(at: store.threads.instant)
        #expect(change.value == end)
    }

    /// What cannot be committed now cannot be a moment later.
    @Test(arguments: [false, true]) func maintenance_goesOnAtOnce_unlessItFailed(fails: Bool) throws {
        let (folder, threads) = (ScratchFolder(), ManualThreads())
        let outbox = try Outbox(
            OutboxOptions(path: folder.file("store.sqlite")), time: threads.time, threads: threads, metrics: Metrics(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        defer { outbox.close() }
        let sql = SQL(try SQLiteConnection(":memory:"))
        try Migrations.apply(with: sql)
        let writer = StubWriter(sql)
        (writer.hasMoreToShrink, writer.failsAtEnd) = (true, fails)
        let loop = CommitLoop(outbox: outbox, inbox: Inbox(), writer: writer)
        loop.begin()
        threads.time.advance(by: Maintenance.interval)
        let now = threads.instant
        #expect(loop.turn(at: now) == now + (fails ? Maintenance.interval : Maintenance.pause))
    }

    private static func name(_ error: StoreError) -> String {
        switch error {
        case .unknown: "unknown"
        case .full: "full"
        default: "failed"
        }
    }

    /// An engine with several writers gives each of them a few numbers at a time.
    @Test func ids_ascend_fromOneBlockToTheNext() throws {
        let store = try TestStore()
        let (number, found) = (try store.register().number, SharedValue<[Int64]>([]))
        try store.transact { former in
            let transaction = Transaction(
                sql: former.sql, writer: StubWriter(former.sql), outbox: former.outbox, writeStates: former.writeStates)
            func take(_ count: Int) throws -> [Int64] {
                try (0..<count).map { _ in try transaction.nextID(of: number).sequence }
            }
            var ids = try take(2)
            // What is undone may be assigned again.
            try transaction.inSavepoint {
                _ = try take(3)
                return false
            }
            ids += try take(4)
            #expect(transaction.sequence == ids.last)
            found.set(ids)
        }
        #expect(found.value == [11, 12, 13, 31, 32, 33])
    }
}

/// Commits to a database without tables. Its numbers are in blocks of three, and others have those between them.
private final class StubWriter: StoreWriter {
    private let sql: SQL
    private var block: Int64 = 0
    /// What the first error means; later ones are the fault of a job.
    var failure = CommitFailure.other
    var isUndone = true
    /// Whether commits fail once their jobs are done.
    var failsAtEnd = false
    var hasMoreToShrink = false

    init(_ sql: SQL) { self.sql = sql }

    func commit(_ body: (SQL) throws -> Growth?) throws {
        try sql.transaction(.write) {
            _ = try body(sql)
            if failsAtEnd { throw StoreError.failed(detail: "as the test wants it") }
        }
    }
    func recover(from error: any Error) -> CommitFailure {
        defer { failure = .other }
        return failure
    }
    func undoFailedCommit() -> Bool { isUndone }
    func nextSequences(_ count: Int, in sql: SQL) -> ClosedRange<Int64> {
        block += 10
        return block + 1...block + 3
    }
    func didAssign(through sequence: Int64) {}
    func nextVersion(in sql: SQL) -> Int64 { 0 }
    func keepBatch(in sql: SQL) throws {}
    func spareBytes(in sql: SQL) throws -> Int { 0 }
    func shrink(_ sql: SQL) throws -> Bool { hasMoreToShrink }
    func didReply(isQuiet: Bool) {}
    func overwriteUnused(from position: Int?) throws(StoreError) -> OverwriteProgress { .done }
    func maintain(_ work: () -> Void) { work() }
    func begin() {}
    func end() {}
}
