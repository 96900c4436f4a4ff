import Logging
import PosternCore
import PosternMetrics
import PosternThreads
import Synchronization

/// A store in a schema of a PostgreSQL database, which several processes share. Each adds messages to any queue, and works on those
/// that it has adopted.
final class PostgresEngine: StoreEngine {
    let options: PostgresOptions
    let health: StoreHealth
    let metrics: Metrics
    let logger: Logger
    let lease: StoreLease
    /// Whether `close` ends the lease.
    private let ownsLease: Bool
    let readers: Readers
    /// A connection of the writer's thread, which must not wait for as long as a read may.
    private let glances: Readers
    let laneAdmission = LaneAdmission.byOwner(after: .zero)
    /// What `init` has written with. The commit loop goes on with it.
    private nonisolated(unsafe) var writer: PostgresWriter?
    let time: any TimeSource
    private let batches = Mutex(BatchNumbers())
    private let problems = Mutex(Problems())
    /// When the writer no longer waits for the database, in monotonic nanoseconds.
    private let waitsUntil = Atomic<Int64>(.max)

    /// Why the writer, and the lease, cannot reach the database.
    private struct Problems {
        var writer: StoreError?
        var lease: StoreError?
    }

    /// How far behind its time the sequence of ids has to be to be moved: what it gets in a second.
    private static let leastJump: Int64 = 1 << 20
    /// The longest wait of a read for its rows.
    private static let readPatience = Duration.seconds(15)
    /// How long `close` waits for a database that does not answer.
    private static let closePatience = Duration.seconds(3)

    /// - Parameter lease: Of a node that has joined the others. Nil: one that keeps the store is waited for.
    init(
        _ options: OutboxOptions, _ settings: PostgresOptions, lease: StoreLease?, health: StoreHealth,
        time: any TimeSource, threads: any Threads, metrics: Metrics, logger: Logger, prepare: (SQL) throws -> Void,
        read: (SQL) throws -> Void
    ) throws(StoreError) {
        self.options = settings
        self.health = health
        self.metrics = metrics
        self.logger = logger
        self.time = time
        ownsLease = lease == nil
        if let lease {
            self.lease = lease
        } else {
            guard let lease = try StoreLease.wait(options, threads: threads, logger: logger) else { throw .closed }
            self.lease = lease
        }
        readers = Self.view(settings)
        glances = Self.view(settings, patience: .seconds(settings.commitTimeoutSeconds))
        let writer = PostgresWriter(of: self)
        do {
            if self.lease.isKeeper {
                try writer.commit { sql in
                    try beginKeeping(at: time.now, in: sql)
                    try prepare(sql)
                    return nil
                }
            }
            try readers.readSnapshot { sql in
                let lost = try sql.value("SELECT lostCommits FROM store", as: Int.self) ?? 0
                metrics.database.lostCommits().add(lost)
                try read(sql)
            }
        } catch {
            close()
            throw StoreError(postgres: error)
        }
        self.writer = writer
        self.lease.observe { [weak self] failure in self?.leaseHas(failure) }
    }

    func beginKeeping(at now: Timestamp, in sql: SQL) throws {
        // After a failover, or from a copy, the sequence may be behind ids that were answered: as with a file, they continue at
        // least from the time of this start. Other nodes draw numbers meanwhile, but not as many.
        let next = try sql.value("SELECT nextval('ids')", as: Int64.self) ?? 0
        let first = StoreFile.firstSequence(at: now)
        if first - next > Self.leastJump { _ = try sql.value("SELECT setval('ids', ?)", first, as: Int64.self) }
    }

    /// Connections that only read. The node need not own the store.
    static func view(_ options: PostgresOptions, patience: Duration = readPatience) -> Readers {
        Readers {
            let connection = try PostgresConnection(options)
            connection.patience = patience
            return SQL(postgres: connection)
        }
    }

    func makeWriter() -> any StoreWriter {
        defer { writer = nil }
        return writer ?? PostgresWriter(of: self)
    }

    func close() {
        readers.close()
        glances.close()
        if ownsLease { lease.leave() }
    }

    func willClose() {
        waitsUntil.store((SystemTime().instant + Self.closePatience).nanoseconds, ordering: .releasing)
    }

    /// Whether the store is being closed, and the database has had its time.
    var waitsNoLonger: Bool { SystemTime().instant.nanoseconds > waitsUntil.load(ordering: .acquiring) }

    var isShared: Bool { true }
    var isKeeper: Bool { lease.isKeeper }
    func ownerName(of number: UpstreamNumber) -> String? { lease.view.ownerNames[number] ?? nil }
    var assignment: QueueAssignment? { QueueAssignment(lease.view) }
    func isOfAnother(_ number: UpstreamNumber) -> Bool { lease.view.others.contains(number) }
    func serve(_ queues: Set<UpstreamNumber>, joint: Set<UpstreamNumber>) { lease.serve(queues, joint: joint) }
    var node: Int64? { (try? lease.liveNode()) ?? nil }
    func listen(_ listens: Bool) { lease.listen(listens) }
    func glance() throws -> Glance? {
        try node.flatMap { node in try glances.readOnce { try Glance(as: node, isKeeper: isKeeper, with: $0) } }
    }
    var place: String { options.place }
    var failure: StoreError? { nil }
    var pollInterval: Duration? { .seconds(options.pollSeconds) }
    var messagesPerCommitWhenFull: Int { OutboxWriter.maxMessagesPerCommit }
    var mayStillSend: Bool { lease.mayStillSend }
    /// In dead rows until a `VACUUM`, then in free space of its pages, and in its log.
    var keepsDeleted: Bool { true }

    var figures: StoreFigures {
        // For metrics only: what cannot be read counts as empty.
        let bytes = try? readers.readSnapshot { sql in
            try sql.value(
                """
                SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class
                WHERE relkind = 'r' AND relnamespace = to_regnamespace(?)
                """, options.schema, as: Int.self)
        }
        return StoreFigures(store: (bytes ?? nil) ?? 0, log: nil, free: nil)
    }

    func nextBatch() -> BatchID { BatchID(rawValue: batches.withLock { $0.next() }) }

    /// Reserves numbers of batches, so that there are enough until the next commit.
    func reserveBatches(with sql: SQL) throws {
        guard batches.withLock({ $0.areFew }) else { return }
        let blocks = try sql.all(
            "SELECT nextval('batches') FROM generate_series(1, ?)", Int64(BatchNumbers.blocks)
        ) { $0[0] as Int64 }
        batches.withLock { $0.add(blocks) }
    }

    func error(_ error: any Error) -> StoreError { StoreError(postgres: error) }
    func startError(_ error: any Error) -> StoreError { StoreError(postgres: error) }

    // MARK: Condition

    /// Any thread. Nil: the writer is connected.
    func writerHas(_ failure: StoreError?) { note { $0.writer = failure } }

    private func leaseHas(_ failure: StoreError?) {
        switch failure {
        case nil, .unavailable: note { $0.lease = failure }
        case .ownershipLost: loseOwnership()
        // It was left by `close`.
        case .closed: break
        case let failure?: end(because: failure)
        }
    }

    /// While either cannot reach the database, everything is rejected at once.
    private func note(_ change: (inout Problems) -> Void) {
        problems.withLock { problems in
            change(&problems)
            if let failure = problems.writer ?? problems.lease {
                if health.becomes(.unavailable, because: failure) {
                    logger.error("store is not available", metadata: ["error": "\(failure)"])
                }
            } else if health.condition == .unavailable {
                health.recovered()
                logger.notice("store is available again")
            }
        }
    }

    /// Nothing is written or sent any more: another node has taken over what this one worked on.
    func loseOwnership() {
        lease.lose()
        end(because: .ownershipLost)
    }

    private func end(because reason: StoreError) {
        problems.withLock { _ in
            if health.becomes(.lost, because: reason) {
                logger.critical("the store is lost; rejecting everything", metadata: ["error": "\(reason)"])
            }
        }
    }
}

/// The numbers of batches that are reserved. They are few at no time, because each batch is followed by a commit, and each
/// commit reserves more.
private struct BatchNumbers {
    static let blocks = 32
    private var starts: [Int64] = []
    private var following: Int64 = 0
    private var end: Int64 = 0

    var areFew: Bool { starts.count <= Self.blocks / 2 }

    mutating func add(_ blocks: [Int64]) { starts += blocks }

    mutating func next() -> Int64 {
        if following == end, !starts.isEmpty {
            following = starts.removeFirst()
            end = following + Int64(PostgresSchema.batchesPerBlock)
        }
        following += 1
        return following - 1
    }
}
