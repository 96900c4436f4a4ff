import Foundation
public import Logging
public import PosternCore
public import PosternEvents
public import PosternMetrics
public import PosternThreads
import PosternUpstream
import Synchronization

/// The durable store: queues, receipts, dead letters, upstream state. One process at a time.
///
/// One connection writes, on the writer's thread, and checkpoints; all others only read. That is fast, and avoids the
/// WAL-reset bug of SQLite before 3.51.3, which requires two connections that write or checkpoint.
public final class Outbox: Sendable {
    /// The absolute path of the store.
    public let path: String
    let writer: OutboxWriter
    let options: OutboxOptions
    let time: any TimeSource
    /// Drives the writer and the other loops of this store.
    public let threads: any Threads
    /// Events for `GET /v1/stream`, from the writer and the workers.
    public let events = EventFeed()
    let metrics: Metrics
    let logger: Logger
    /// The connection that writes. Used by `init`, then by the writer's thread, then by `close`.
    nonisolated(unsafe) let sql: SQL
    let readers: Readers
    let kinds = KindTable()
    let queues = QueueTable()
    let batches: BatchCounter
    let reserve: DiskReserve
    let logIndex: LogIndex
    let vault: Vault
    /// The result of the key rotation for the credentials of earlier runs.
    public let keyRotation: KeyRotationReport
    let lock: StoreLock
    let check: IntegrityCheck
    let health = StoreHealth()
    /// The state of the log when the store was opened.
    private let log: Inode?

    private let shared: Mutex<Shared>
    private let configuredCallbacks = Mutex<[Callback]?>(nil)
    private let capped = Atomic<Bool>(false)
    private let currentMaxBytes: Atomic<Int>
    private let isLogPinned = Atomic<Bool>(false)
    private let waitedFor = Atomic<Int>(0)

    private struct Shared {
        var ledgers: [UpstreamNumber: Ledger] = [:]
        var waiters: [MessageID: [@Sendable (SettledNotice) -> Void]] = [:]
        var names: [UpstreamNumber: UpstreamName] = [:]
        var sequence: Int64 = 0
    }

    /// Opens the store, or creates it.
    ///
    /// - Parameters:
    ///   - startFresh: A damaged store is kept under a new name, and an empty one is created.
    ///   - recover: If the write-ahead log is damaged, a copy of the store is kept, and the log is repaired.
    public init(
        _ options: OutboxOptions, startFresh: Bool = false, recover: Bool = false, time: any TimeSource,
        threads: any Threads, metrics: Metrics, logger: Logger
    ) throws(StoreError) {
        self.options = options
        path = options.path
        self.time = time
        self.threads = threads
        self.metrics = metrics
        self.logger = logger
        currentMaxBytes = Atomic(options.maxBytes)
        reserve = DiskReserve(for: options.path)
        writer = OutboxWriter(on: threads)
        do {
            lock = try StoreFile.prepare(
                options.path, startFresh: startFresh, recover: recover, reserve: reserve, at: time.now, logger: logger)
            let sql = try StoreFile.open(options.path)
            self.sql = sql
            readers = Readers { try StoreFile.openReader(options.path) }
            logIndex = try LogIndex(of: options.path)
            log = try Inode.at(options.path + "-wal", for: options.path)
            vault = Vault(options.encryptionKeys)
            keyRotation = try sql.transaction(.write) { [vault] in try KeyRotationReport.run(with: sql, vault: vault) }
            let found = try readers.readSnapshot { try PersistedState($0) }
            batches = BatchCounter(latest: found.numbers.batch)
            // Ids continue at least from the time of this start. If the file is a copy of an older state, the ids that
            // were assigned after the copy was made are not assigned again.
            let sequence = max(found.numbers.sequence, StoreFile.firstSequence(at: time.now))
            let ledgers = Dictionary(uniqueKeysWithValues: found.summaries.map { ($0.number, $0.ledger) })
            let names = Dictionary(uniqueKeysWithValues: found.summaries.map { ($0.number, $0.name) })
            shared = Mutex(Shared(ledgers: ledgers, names: names, sequence: sequence))
            found.kinds.forEach { [kinds] in kinds.learn($0.kind, number: $0.number) }
            check = try IntegrityCheck(path: options.path, on: threads, logger: logger)
        } catch {
            throw Self.startError(error, path: options.path)
        }
        if !reserve.take() { becameFull(.full(detail: "the disk has no room for the reserve")) }
        do throws(SystemLimitError) {
            try writer.start(on: self)
        } catch {
            close()
            throw .systemLimit(error)
        }
        do {
            try closeOpenAttempts()
        } catch {
            close()
            throw Self.startError(error, path: path)
        }
    }

    private static func startError(_ error: any Error, path: String) -> StoreError {
        let error = StoreError(error, path: path)
        guard error.isFull else { return error }
        let size = DiskReserve.bytesForStart >> 20
        return .cannotCreate(path: path, detail: "the disk is full; a start requires up to \(size) MiB (\(error))")
    }

    /// Commits what was submitted, and closes the store. All claims become void.
    public func close() {
        guard writer.stop() else { return }
        check.stop()
        // Readers are closed first: the last connection to close removes the WAL, which a reader cannot. If a reader is
        // still in use, the WAL remains, but is empty.
        readers.close()
        // If it fails, SQLite tries again as it closes.
        _ = try? Checkpoints(of: logIndex).run(.truncate, on: sql)
        try? sql.close()
        logIndex.close()
        if isFull { reserve.keepForStart() }
        lock.release()
    }

    /// Whether nothing is written or read any more.
    public var isClosed: Bool { writer.hasClosed }

    /// Reads on one consistent snapshot. Blocks; not for use on the write path.
    func read<T>(_ body: (SQL) throws -> T) throws(StoreError) -> T {
        do { return try readers.readSnapshot(body) } catch { throw StoreError(error, path: path) }
    }

    // MARK: Upstreams

    /// An upstream has been registered.
    func named(_ name: UpstreamName, _ number: UpstreamNumber) { shared.withLock { $0.names[number] = name } }

    /// Limits are checked from now on.
    func mayBeFull() { capped.store(true, ordering: .relaxed) }

    /// Changes the limit of the payload bytes of all queued messages, in the same way.
    public func adopt(maxBytes: Int) {
        currentMaxBytes.store(maxBytes, ordering: .relaxed)
        if maxBytes > 0 { mayBeFull() }
    }

    /// Reports what settles from the next transaction on. Nothing expires before the first call, because what settles
    /// before that would not be reported.
    public func adopt(_ callbacks: [Callback]) { configuredCallbacks.withLock { $0 = callbacks } }

    /// Nil before the first `adopt`.
    var callbacks: [Callback]? { configuredCallbacks.withLock { $0 } }

    /// Takes the next number. It is used once, also if nothing is sent.
    public func nextBatch() -> BatchID { batches.next() }

    // MARK: Accepting

    /// Stores all of `messages` or none. `completion` runs on the writer's thread once the commit is on disk
    /// (`synchronous=FULL`: a power cut takes back nothing that was completed), and must be quick.
    ///
    /// - Parameter record: Stored with the messages, and also if there are none.
    public func append(
        _ messages: [NewMessage], recording record: RequestRecord? = nil,
        completion: @escaping @Sendable (Result<AppendReceipt, AppendError>) -> Void
    ) {
        writer.append(messages, recording: record, completion: completion)
    }

    /// How long ago the writer's loop last turned; more than a few seconds means that it is stalled.
    public func sinceWriterTurned(at instant: MonotonicInstant) -> Duration { writer.sinceLastTurn(at: instant) }

    // MARK: Waiting for messages

    /// Calls `body` once, on the writer's thread, when the message is settled. Call it from the completion of the
    /// append, so that no settlement is missed.
    public func whenSettled(_ id: MessageID, _ body: @escaping @Sendable (SettledNotice) -> Void) {
        shared.withLock { shared in
            shared.waiters[id, default: []].append(body)
            waitedFor.store(shared.waiters.count, ordering: .relaxed)
        }
    }

    /// Removes the waiters of these messages; none of them is called after this.
    public func stopWaiting(for ids: [MessageID]) {
        shared.withLock { shared in
            ids.forEach { shared.waiters[$0] = nil }
            waitedFor.store(shared.waiters.count, ordering: .relaxed)
        }
    }

    /// Whether a reply waits for a settled message.
    var isWaitedFor: Bool { waitedFor.load(ordering: .relaxed) > 0 }

    // MARK: Health

    /// Why the store cannot accept messages; nil if it can.
    public var failure: StoreError? {
        check.failure ?? health.failure
    }

    var isFull: Bool { health.condition == .full }
    var isCapped: Bool { capped.load(ordering: .relaxed) }
    var maxBytes: Int { currentMaxBytes.load(ordering: .relaxed) }
    var keepsDelivered: Bool { options.deliveredRetention > .zero }

    /// The ledgers of all upstreams, as of the last commit. Any thread.
    public var ledgers: [UpstreamNumber: Ledger] { shared.withLock { $0.ledgers } }
    /// The names of all upstreams that the store has ever had.
    public var names: [UpstreamNumber: UpstreamName] { shared.withLock { $0.names } }
    /// The ledger of one upstream as of the last commit; empty for an unknown number.
    public func ledger(of number: UpstreamNumber) -> Ledger { shared.withLock { $0.ledgers[number] ?? Ledger() } }
    var firstSequence: Int64 { shared.withLock { $0.sequence } }

    // MARK: Notifications from the writer

    func publish(_ changed: [UpstreamWriteState]) {
        health.committed()
        let settled = shared.withLock { shared in
            for account in changed { shared.ledgers[account.number] = account.ledger }
            return changed.map { ($0.settled, shared.names[$0.number]?.description ?? "unknown") }
        }
        for (counts, name) in settled {
            for state in MessageState.allCases where counts[Int(state.rawValue)] > 0 {
                metrics.settled(name, state.name).add(counts[Int(state.rawValue)])
            }
        }
    }

    func emit(_ events: MessageEvents) {
        guard !events.runs.isEmpty else { return }
        let names = names
        for run in events.runs {
            guard let name = names[run.upstream] else { continue }
            let named = target(run.upstream)?.upstream.named(run.type, kind: run.kind)
            self.events.record(Event(run.type, name, ids: run.ids, named: named), isOrdered: run.isAgain)
        }
    }

    func announce(_ notices: [SettledNotice]) {
        guard !notices.isEmpty else { return }
        let told = shared.withLock { shared in
            let told = notices.compactMap { notice in
                shared.waiters.removeValue(forKey: notice.id).map { (notice, $0) }
            }
            waitedFor.store(shared.waiters.count, ordering: .relaxed)
            return told
        }
        for (notice, waiters) in told { waiters.forEach { $0(notice) } }
    }

    // MARK: Failures

    func report(_ error: StoreError) {
        logger.error("write failed", metadata: ["error": "\(error)"])
        health.record(error)
    }

    func becameFull(_ error: StoreError) {
        guard health.becomes(.full, because: error) else { return }
        reserve.giveBack()
        logger.error("disk full; rejecting new messages, deliveries continue", metadata: ["error": "\(error)"])
    }

    /// Accepts messages again if there is room for them and for the reserve. Returns whether that is a change.
    @discardableResult func checkForSpace() -> Bool {
        guard isFull, !isLogPinned.load(ordering: .relaxed), reserve.canBeTaken, reserve.take() else { return false }
        health.recovered()
        logger.notice("disk space recovered; accepting messages")
        return true
    }

    /// Reports a reader, perhaps of another program, that keeps the log from being reset, and stops accepting messages
    /// before the log fills the disk. `frames`: pages in the log after a checkpoint.
    func recordLog(frames: Int) {
        let bytes = frames * StoreFile.pageSize
        let isLong = bytes > options.maxLogBytes / 16
        // On a full disk, the log has room for few commits.
        if isLong || isFull && frames > 0, check.giveWay() {
            return logger.info(
                "store integrity check interrupted, because it keeps the write-ahead log from being reset; it begins again later",
                metadata: ["store.path": "\(path)", "bytes": .stringConvertible(bytes)])
        }
        guard isLong else { return isLogPinned.store(false, ordering: .relaxed) }
        if !isLogPinned.exchange(true, ordering: .relaxed) {
            logger.warning(
                "a long read keeps the write-ahead log from being reset; it grows until that read ends",
                metadata: ["store.path": "\(path)", "bytes": .stringConvertible(bytes)])
        }
        guard bytes > options.maxLogBytes else { return }
        becameFull(.full(detail: "a long read keeps the write-ahead log at \(bytes >> 20) MiB"))
    }

    func becameBroken(_ error: StoreError) {
        guard health.becomes(.failed, because: error) else { return }
        logger.error(
            "disk failed; rejecting all requests until the store has been checked", metadata: ["error": "\(error)"])
    }

    func isWorkingAgain() {
        health.recovered()
        logger.notice("disk recovered and store checked; accepting messages")
    }

    private var areFilesInPlace: Bool {
        get throws { try lock.isStill(at: path) && log != nil && Inode.at(path + "-wal", for: path) == log }
    }

    /// Compares the files at the path with those that are open: what is written to a deleted file is lost.
    func checkThatFilesAreInPlace() {
        // After an error it is not known where the files are. The next check may find out.
        guard let areInPlace = try? areFilesInPlace, !areInPlace else { return }
        let error = StoreError.lost(path: path)
        guard health.becomes(.lost, because: error) else { return }
        logger.critical("store deleted or replaced; rejecting everything", metadata: ["error": "\(error)"])
    }
}

/// Assigns the numbers of batches, in the order in which they are sent.
final class BatchCounter: Sendable {
    private let counter: Atomic<Int64>
    init(latest: Int64) { counter = Atomic(latest) }
    var latest: Int64 { counter.load(ordering: .relaxed) }
    func next() -> BatchID { BatchID(rawValue: counter.wrappingAdd(1, ordering: .relaxed).newValue) }
}

/// The state that an earlier run left, read once at the start.
private struct PersistedState {
    var summaries: [UpstreamSummary]
    var kinds: [(kind: Kind, number: Int)]
    var numbers: AssignedNumbers

    init(_ sql: SQL) throws {
        numbers = try AssignedNumbers(sql)
        summaries = try UpstreamSummary.all(with: sql)
        kinds = try sql.all("SELECT name, number FROM kinds") { (Kind($0[0]), $0[1]) }
    }
}
