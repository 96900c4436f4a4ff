import Foundation
public import Logging
public import PosternCore
public import PosternEvents
public import PosternMetrics
public import PosternThreads
import PosternUpstream
import Synchronization

/// The durable store: queues, receipts, dead letters, upstream state.
public final class Outbox: Sendable {
    let engine: any StoreEngine
    let readers: Readers
    let writer: OutboxWriter
    let options: OutboxOptions
    let time: any TimeSource
    /// Drives the writer and the other loops of this store.
    public let threads: any Threads
    /// Events for `GET /v1/stream`, from the writer and the workers.
    public let events = EventFeed()
    let metrics: Metrics
    let logger: Logger
    let kinds = KindTable()
    let queues = QueueTable()
    let vault: Vault
    /// The result of the key rotation for the credentials of earlier runs.
    public let keyRotation: KeyRotationReport
    let health = StoreHealth()
    let relays = Relays()
    let exchange = EventExchange()

    private let shared: Mutex<Shared>
    private let configuredCallbacks = Mutex<[Callback]?>(nil)
    private let capped = Atomic<Bool>(false)
    private let replays = Atomic<Bool>(false)
    /// Whether this process has begun or ended to work on a queue since the figures were read.
    private let queuesHaveMoved = Atomic<Bool>(false)
    private let currentMaxBytes: Atomic<Int>
    private let waitedFor = Atomic<Int>(0)

    private struct Shared {
        var ledgers: [UpstreamNumber: Ledger] = [:]
        var waiters: [MessageID: [@Sendable (SettledNotice) -> Void]] = [:]
        var names: [UpstreamNumber: UpstreamName] = [:]
    }

    /// Opens the store, or creates it.
    ///
    /// - Parameters:
    ///   - startFresh: A damaged store is kept under a new name, and an empty one is created.
    ///   - recover: If the write-ahead log is damaged, a copy of the store is kept, and the log is repaired.
    ///   - lease: Of a store that is shared; the caller ends it. Nil: it is waited for, until it keeps the store.
    public init(
        _ options: OutboxOptions, startFresh: Bool = false, recover: Bool = false, lease: StoreLease? = nil,
        time: any TimeSource, threads: any Threads, metrics: Metrics, logger: Logger
    ) throws(StoreError) {
        self.options = options
        self.time = time
        self.threads = threads
        self.metrics = metrics
        self.logger = logger
        currentMaxBytes = Atomic(options.maxBytes)
        writer = OutboxWriter(on: threads, health: health, answeringWithin: options.engine.commitTimeout)
        let vault = Vault(options.encryptionKeys)
        self.vault = vault
        var keyRotation = KeyRotationReport()
        var found = PersistedState()
        engine = try options.engine.open(
            options, startFresh: startFresh, recover: recover, lease: lease, health: health, time: time,
            threads: threads, metrics: metrics, logger: logger,
            prepare: {
                if $0.isPostgres { return keyRotation = try KeyRotationReport.runWithoutOwners(with: $0, vault: vault) }
                try Ledger.addTails(with: $0)
                keyRotation = try KeyRotationReport.run(with: $0, vault: vault)
            },
            read: { found = try PersistedState($0) })
        readers = engine.readers
        self.keyRotation = keyRotation
        let ledgers = Dictionary(uniqueKeysWithValues: found.summaries.map { ($0.number, $0.ledger) })
        let names = Dictionary(uniqueKeysWithValues: found.summaries.map { ($0.number, $0.name) })
        shared = Mutex(Shared(ledgers: ledgers, names: names))
        if found.hasReplays { mayReplay() }
        found.kinds.forEach { [kinds] in kinds.learn($0.kind, number: $0.number) }
        do throws(SystemLimitError) {
            try writer.start(on: self)
        } catch {
            close()
            throw .systemLimit(error)
        }
        // Of a store that is shared, those of a queue are closed when it is adopted.
        guard !engine.isShared else { return }
        do {
            try closeOpenAttempts()
        } catch {
            close()
            throw engine.startError(error)
        }
    }

    /// Commits what was submitted, and closes the store. All claims become void.
    public func close() {
        engine.willClose()
        if writer.stop() { engine.close() }
    }

    /// Whether nothing is written or read any more.
    public var isClosed: Bool { writer.hasClosed }

    /// Reads on one consistent snapshot. Blocks; not for use on the write path.
    func read<T>(_ body: (SQL) throws -> T) throws(StoreError) -> T {
        do { return try readers.readSnapshot(body) } catch { throw engine.error(error) }
    }

    // MARK: Upstreams

    /// An upstream has been registered.
    func named(_ name: UpstreamName, _ number: UpstreamNumber) { shared.withLock { $0.names[number] = name } }

    /// Limits are checked from now on.
    func mayBeFull() { capped.store(true, ordering: .relaxed) }

    /// Changes the limit of the payload bytes of all queued messages, from the next request on.
    public func setMaxBytes(_ maxBytes: Int) {
        currentMaxBytes.store(maxBytes, ordering: .relaxed)
        if maxBytes > 0 { mayBeFull() }
    }

    /// Reports what settles from the next transaction on. Nothing expires before the first call, because what settles
    /// before that would not be reported.
    public func setCallbacks(_ callbacks: [Callback]) { configuredCallbacks.withLock { $0 = callbacks } }

    /// Nil before the first `setCallbacks`.
    var callbacks: [Callback]? { configuredCallbacks.withLock { $0 } }

    /// Takes the next number. It is used once, also if nothing is sent.
    public func nextBatch() -> BatchID { engine.nextBatch() }

    // MARK: Accepting

    /// Stores all of `messages` or none. `completion` runs on the writer's thread once the commit is on disk
    /// (`synchronous=FULL`: a power cut takes back nothing that was completed), and must be quick.
    ///
    /// - Parameter record: Stored with the messages, and also if there are none. If another node has stored one with the same
    ///   key, nothing is stored (`AppendError.recorded`).
    public func append(
        _ messages: [NewMessage], recording record: RequestRecord? = nil, after admission: Admission? = nil,
        completion: @escaping @Sendable (Result<AppendReceipt, AppendError>) -> Void
    ) {
        writer.append(messages, recording: record, after: admission, completion: completion)
    }

    /// How long ago the writer's loop last turned; more than a few seconds means that it is stalled. Zero while it waits for a
    /// database that cannot be reached.
    public func sinceWriterTurned(at instant: MonotonicInstant) -> Duration {
        health.condition == .unavailable ? .zero : writer.sinceLastTurn(at: instant)
    }

    /// Whether a claimed message may be sent. It may not after another process may have taken over the store.
    public var mayStillSend: Bool { engine.mayStillSend }

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

    /// Finds out which of these messages another process has settled.
    func lookForSettled() {
        guard isWaitedFor else { return }
        let ids = shared.withLock { Array($0.waiters.keys) }
        let settled = try? read { sql in
            try ids.filter { try !sql.exists("SELECT 1 FROM queue_# WHERE id = ?", of: $0.upstream, $0) }
        }
        let records = (settled ?? []).compactMap { (try? message($0, payload: false)) ?? nil }
        announce(records.compactMap(SettledNotice.init))
    }

    /// Whether a reply waits for a settled message.
    var isWaitedFor: Bool { waitedFor.load(ordering: .relaxed) > 0 }

    // MARK: Health

    /// Why the store cannot accept messages; nil if it can.
    public var failure: StoreError? {
        engine.failure ?? health.failure
    }

    /// Why nothing is stored by this process any more; nil if that is not so.
    public var loss: StoreError? { health.condition == .lost ? health.failure : nil }

    /// Where the store is.
    public var path: String { engine.place }
    /// For metrics. Blocks.
    public var figures: StoreFigures { engine.figures }

    var isFull: Bool { health.condition == .full }
    var isCapped: Bool { capped.load(ordering: .relaxed) }
    var maxBytes: Int { currentMaxBytes.load(ordering: .relaxed) }
    var keepsDelivered: Bool { options.deliveredRetention > .zero }
    /// Whether the payloads of what is being delivered are kept. On a full disk, they are not.
    var keepsPayloads: Bool { options.deliveredPayloadRetention > .zero && keepsDelivered && !isFull }
    /// Whether messages may be copies of others.
    var hasReplays: Bool { replays.load(ordering: .relaxed) }
    func mayReplay() { replays.store(true, ordering: .relaxed) }

    /// The ledgers of all upstreams, as of the last commit. Any thread.
    public var ledgers: [UpstreamNumber: Ledger] { shared.withLock { $0.ledgers } }
    /// The number of messages that were ever accepted.
    public var accepted: Int { shared.withLock { $0.ledgers.values.reduce(0) { $0 + $1.accepted } } }
    /// The names of all upstreams that the store has ever had.
    public var names: [UpstreamNumber: UpstreamName] { shared.withLock { $0.names } }
    /// The ledger of one upstream as of the last commit; empty for an unknown number.
    public func ledger(of number: UpstreamNumber) -> Ledger { shared.withLock { $0.ledgers[number] ?? Ledger() } }

    // MARK: Notifications from the writer

    /// This process has begun or ended to work on a queue: the figures have to be read again.
    func queueHasMoved() { queuesHaveMoved.store(true, ordering: .releasing) }
    /// Whether that has happened since the last call.
    func takeMoves() -> Bool { queuesHaveMoved.exchange(false, ordering: .acquiring) }

    func publish(_ changed: [UpstreamWriteState]) {
        health.committed()
        let settled = shared.withLock { shared in
            for writeState in changed { shared.ledgers[writeState.number] = writeState.committed }
            return changed.filter(\.hasSettled).map { ($0.settled, shared.names[$0.number]?.description ?? "unknown") }
        }
        for (counts, name) in settled {
            for state in MessageState.allCases where counts[Int(state.rawValue)] > 0 {
                metrics.settled(name, state.name).add(counts[Int(state.rawValue)])
            }
        }
    }

    /// What other processes have done, too.
    func publish(_ summaries: [UpstreamSummary]) {
        shared.withLock { shared in
            for summary in summaries {
                shared.ledgers[summary.number] = summary.ledger
                shared.names[summary.number] = summary.name
            }
        }
    }

    func emit(_ events: MessageEvents) {
        guard !events.runs.isEmpty else { return }
        let names = names
        for run in events.runs {
            guard let name = names[run.upstream] else { continue }
            let named = target(run.upstream)?.upstream.named(run.type, kind: run.kind)
            self.events.record(Event(run.type, name, ids: run.ids, named: named, by: run.by), isOrdered: run.isAgain)
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
        // The store is sound, and the next job may succeed.
        if error == .notOwner { return }
        if case .conflict = error { return logger.warning("write gave way", metadata: ["error": "\(error)"]) }
        logger.error("write failed", metadata: ["error": "\(error)"])
        health.record(error)
    }
}

/// The state that an earlier run left, read once at the start.
private struct PersistedState {
    var summaries: [UpstreamSummary] = []
    var kinds: [(kind: Kind, number: Int)] = []
    var hasReplays = false

    init() {}

    init(_ sql: SQL) throws {
        // What other nodes add from the start on is counted when it is heard of.
        summaries = try UpstreamSummary.all(with: sql, withTails: !sql.isPostgres)
        kinds = try sql.all("SELECT name, number FROM kinds") { (Kind($0[0]), $0[1]) }
        hasReplays = try sql.exists("SELECT 1 FROM replays")
    }
}
