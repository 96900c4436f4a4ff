public import Logging
public import PosternCore
public import PosternThreads
import Synchronization

/// The right of this process to work on a store that others share: at any time, one node has it.
///
/// A thread of its own beats, so that the others see that this node lives. It looks for the end of other nodes, and ends what
/// they have left. If that was the owner, one of the others takes over. A life of a process is a row of `nodes`; one that was
/// ended never comes back, and begins again as another node.
public final class StoreLease: Loop, @unchecked Sendable {
    // @unchecked: what is below `MARK: State` belongs to the thread that turns.
    public let name = "postern-lease"
    let options: PostgresOptions
    private let threads: any Threads
    private let logger: Logger
    private let requests = Inbox<Never>()
    private let isLeaving = Atomic<Bool>(false)
    private let isTaken = Atomic<Bool>(false)
    private let mustBeat = Atomic<Bool>(false)
    /// Until when this node may send, in nanoseconds since boot. 0: not at all.
    private let end = Atomic<Int64>(0)
    private let replaced = Atomic(0)
    private let listens = Atomic<Bool>(false)
    private let tookOver = Atomic<Bool>(false)
    /// In milliseconds.
    private let offset = Atomic<Int64>(0)
    private let shared: Mutex<Shared>
    private let running = Mutex<(any RunningLoop)?>(nil)

    private enum Condition {
        /// Another node owns the store, or the database cannot be reached.
        case waiting(reason: String)
        case owner(Int64)
        case over(StoreError)
    }

    private struct Shared {
        var condition = Condition.waiting(reason: "connecting to the database")
        /// The number of this life; nil before it has begun.
        var node: Int64?
        /// The name of the last node that was seen to own the store.
        var ownerName: String?
        /// Differs from that of other nodes if the settings do.
        var configDigest: String
        /// Gets why beats fail, nil once they do not, and at last why the lease is over.
        var observer: (@Sendable (StoreError?) -> Void)?
    }

    // MARK: State
    private var sql: SQL?
    private var node: Int64?
    private var beat: Int64 = 0
    private var clock: LeaseClock
    private var hasOffset = false
    private var beatDueAt = MonotonicInstant.distantPast
    private var trimDueAt = MonotonicInstant.distantPast
    private var others: [Int64: ObservedNode] = [:]
    private var owns = false
    private var lookDueAt = MonotonicInstant.distantPast

    private var lease: Duration { .seconds(options.leaseSeconds) }
    /// How often a node that waits looks whether the store is free.
    private var lookInterval: Duration { min(Self.longestLookInterval, lease / 16) }
    private static let longestLookInterval = Duration.milliseconds(250)
    private static let retryInterval = Duration.milliseconds(500)
    private static let trimInterval = Duration.seconds(10)

    private init(_ options: PostgresOptions, threads: any Threads, logger: Logger) {
        self.options = options
        self.threads = threads
        self.logger = logger
        shared = Mutex(Shared(configDigest: options.configDigest))
        clock = LeaseClock(lease: .seconds(options.leaseSeconds))
    }

    // MARK: Owning the store

    /// Joins the nodes of the store, and waits until this one owns it. Blocks. Creates the tables if they are missing.
    ///
    /// Throws `StoreError.unsuitable`, `.newer`, or `.nodeRunning`; a database that cannot be reached is waited for.
    ///
    /// - Parameters:
    ///   - isCancelled: Asked several times a second, on this thread. If it is true, nil is returned.
    ///   - onWaiting: Told as often why this node does not own the store, on this thread.
    /// - Returns: What has to be handed to `Outbox`, whose `close` ends it, or to be ended by `leave`.
    public static func wait(
        _ options: OutboxOptions, threads: any Threads, logger: Logger, isCancelled: () -> Bool = { false },
        onWaiting: (String) -> Void = { _ in }
    ) throws(StoreError) -> StoreLease? {
        guard let lease = try join(options, threads: threads, logger: logger) else { return nil }
        return try lease.wait(isCancelled: isCancelled, onWaiting: onWaiting) ? lease : nil
    }

    /// Begins to join the nodes of the store. Returns nil if it is one that no other process can use.
    public static func join(
        _ options: OutboxOptions, threads: any Threads, logger: Logger
    ) throws(StoreError) -> StoreLease? {
        guard case .postgres(let options) = options.engine else { return nil }
        let lease = StoreLease(options, threads: threads, logger: logger)
        do throws(SystemLimitError) {
            let started = try threads.start(lease)
            lease.running.withLock { $0 = started }
        } catch {
            throw .systemLimit(error)
        }
        return lease
    }

    /// Waits until this node owns the store, as the static `wait`. Returns false, and ends this life, if `isCancelled`.
    public func wait(isCancelled: () -> Bool, onWaiting: (String) -> Void = { _ in }) throws(StoreError) -> Bool {
        let pause = Inbox<Never>()
        while true {
            switch shared.withLock({ $0.condition }) {
            case .owner:
                isTaken.store(true, ordering: .releasing)
                return true
            case .over(let error): throw error
            case .waiting(let reason): onWaiting(reason)
            }
            guard !isCancelled() else {
                leave()
                return false
            }
            threads.wait(for: pause, until: threads.instant + .milliseconds(100))
        }
    }

    /// Ends this life. Another node may own the store at once. Returns when that is done, or after a few seconds without the
    /// database.
    public func leave() {
        isLeaving.store(true, ordering: .releasing)
        requests.nudge()
        running.withLock { $0.take() }?.join()
    }

    /// Whether this node may send what it has claimed. Any thread.
    public var mayStillSend: Bool { left > .zero }

    /// Whether `wait` has found that this node owns the store. Any thread.
    public var isOwner: Bool { isTaken.load(ordering: .acquiring) }

    /// The name of the node that owns the store; nil if none was seen. Any thread.
    public var ownerName: String? { isOwner ? options.node : shared.withLock(\.ownerName) }

    /// How long it may, without another beat; zero if it may not. Any thread.
    public var left: Duration {
        max(.zero, MonotonicInstant(nanoseconds: end.load(ordering: .acquiring)) - .sinceBoot)
    }

    /// By how much the clock of this process is ahead of that of the database, as of the last beat. Any thread.
    public var clockOffset: Duration { .milliseconds(offset.load(ordering: .relaxed)) }

    /// Whether this node has ended the one that owned the store. Any thread.
    public var hasReplacedOwner: Bool { tookOver.load(ordering: .acquiring) }

    /// How many silent nodes this one has ended. Any thread.
    public var replacedNodes: Int { replaced.load(ordering: .acquiring) }

    /// The number of this life; throws once the lease is over.
    func ownNode() throws(StoreError) -> Int64 {
        switch shared.withLock({ $0.condition }) {
        case .owner(let node): return node
        case .over(let error): throw error
        case .waiting: throw .ownershipLost
        }
    }

    /// The number of this life, whether it owns the store or not; nil before it has begun. Throws once the lease is over.
    func liveNode() throws(StoreError) -> Int64? {
        let (condition, node) = shared.withLock { ($0.condition, $0.node) }
        if case .over(let error) = condition { throw error }
        return node
    }

    /// Whether this life has begun, so that the store can be opened. Any thread.
    public var hasJoined: Bool { shared.withLock { $0.node != nil } }

    /// Looks at once whether this life has been ended, and begins another one then. Any thread.
    func check() {
        mustBeat.store(true, ordering: .releasing)
        requests.nudge()
    }

    /// Shows the other nodes whether clients listen to events here. Any thread.
    func listen(_ listens: Bool) {
        self.listens.store(listens, ordering: .releasing)
        check()
    }

    /// Shows the other nodes that this one has reloaded its settings. Any thread.
    public func show(configDigest: String) {
        shared.withLock { $0.configDigest = configDigest }
        check()
    }

    /// Tells `body`, on the thread of the lease, why beats fail, nil once they do not, and at last why the lease is over.
    func observe(_ body: @escaping @Sendable (StoreError?) -> Void) { shared.withLock { $0.observer = body } }

    /// Another node has taken over, as a commit has found out, or commits are missing.
    func lose() {
        become(.over(.ownershipLost))
        requests.nudge()
    }

    private func become(_ condition: Condition) {
        if case .over = condition { end.store(0, ordering: .releasing) }
        let observer = shared.withLock { shared in
            if case .over = shared.condition { return nil as (@Sendable (StoreError?) -> Void)? }
            shared.condition = condition
            return shared.observer
        }
        if case .over(let error) = condition { observer?(error) }
    }

    // MARK: Turns

    public func wait(until deadline: MonotonicInstant) -> Bool { requests.wait(until: deadline) }

    public func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        _ = requests.takeAll()
        if isLeaving.load(ordering: .acquiring) { return depart() }
        if case .over = shared.withLock({ $0.condition }) { return depart() }
        do {
            let sql = try connection()
            let node = try self.node ?? join(sql)
            let start = MonotonicInstant.sinceBoot
            if mustBeat.exchange(false, ordering: .acquiring) || start >= beatDueAt { try beat(node, with: sql) }
            if start >= lookDueAt {
                if try look(node, with: sql), !owns {
                    owns = true
                    beatDueAt = .distantPast
                    return now
                }
                lookDueAt = .sinceBoot + (owns ? lease / 4 : lookInterval)
            }
            if start >= trimDueAt { try trim(node, with: sql) }
            if owns { becomeOwner(node) }
            report(nil)
            return now + max(.zero, min(beatDueAt, lookDueAt) - .sinceBoot)
        } catch let error as PostgresError where error.isConnectionLost || error.isConflict || error.isReadOnly {
            disconnect()
            report(.unavailable(detail: error.message))
            return now + Self.retryInterval
        } catch {
            let reason = StoreError(postgres: error)
            if reason != .closed { logger.error("lease lost", metadata: ["error": "\(reason)"]) }
            become(.over(owns ? .ownershipLost : reason))
            return depart()
        }
    }

    private func report(_ failure: StoreError?) {
        shared.withLock { $0.observer }?(failure)
        if !owns, let failure { become(.waiting(reason: "\(failure)")) }
    }

    private func connection() throws -> SQL {
        if let sql, !sql.isLost { return sql }
        let connection = try PostgresConnection(options)
        // What lasts longer than that is no use as a beat. A fence allows itself more.
        connection.patience = max(lease / 4, .milliseconds(500))
        let sql = SQL(postgres: connection)
        if node == nil {
            connection.patience = .seconds(60)
            try PostgresSchema.prepare(sql, options)
            connection.patience = max(lease / 4, .milliseconds(500))
        }
        self.sql = sql
        return sql
    }

    private func disconnect() {
        try? sql?.close()
        sql = nil
    }

    /// Begins a life, unless the store is not complete.
    private func join(_ sql: SQL) throws -> Int64 {
        let number = try sql.value(
            """
            INSERT INTO nodes (node, name, beat, state, version, configDigest)
            SELECT nextval('nodeNumbers'), ?, 0, ?, ?, ? FROM store WHERE movingFrom IS NULL RETURNING node
            """, options.node, PostgresSchema.up, PosternVersion.current, shared.withLock(\.configDigest),
            as: Int64.self)
        guard let number else {
            let file = try sql.value("SELECT movingFrom FROM store", as: String.self) ?? ""
            throw StoreError.moving(place: options.place, from: file)
        }
        (node, beat, beatDueAt, others) = (number, 0, .distantPast, [:])
        shared.withLock { $0.node = number }
        return number
    }

    /// Shows the others that this node lives.
    private func beat(_ node: Int64, with sql: SQL) throws {
        let start = MonotonicInstant.sinceBoot
        let row = try sql.first(
            """
            UPDATE nodes SET beat = beat + 1, clockOffsetMs = ?, isListening = ?, configDigest = ?
            WHERE node = ? AND state = ?
            RETURNING beat, (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT
            """, hasOffset ? offset.load(ordering: .relaxed) : nil, listens.load(ordering: .acquiring),
            shared.withLock(\.configDigest), node, PostgresSchema.up
        ) { (beat: $0[0] as Int64, time: $0[1] as Timestamp) }
        if let row {
            let found = SystemTime().now - (MonotonicInstant.sinceBoot - start) / 2 - row.time
            offset.store(found.wholeMilliseconds, ordering: .relaxed)
            hasOffset = true
        }
        guard let found = row?.beat, found > beat else {
            // Another one has ended this life, or the database has lost it. As long as it owns nothing, it may begin again.
            guard !owns else { throw StoreError.ownershipLost }
            self.node = nil
            shared.withLock { $0.node = nil }
            return
        }
        (beat, beatDueAt) = (found, start + lease / 4)
        clock.renew(since: start)
        guard owns else { return }
        let owner = try sql.value("SELECT owner FROM store", as: Int64?.self) ?? nil
        guard owner == node else { throw StoreError.ownershipLost }
        end.store(clock.end.nanoseconds, ordering: .releasing)
    }

    private func becomeOwner(_ node: Int64) {
        guard case .waiting = shared.withLock({ $0.condition }) else { return }
        logger.notice(
            "node owns the store", metadata: ["node": "\(options.node)", "life": .stringConvertible(node)])
        become(.owner(node))
    }

    // MARK: The other nodes

    /// Ends what silent nodes have left, and takes the store if it is free. Returns whether this node owns it.
    private func look(_ node: Int64, with sql: SQL) throws -> Bool {
        guard self.node == node else { return false }
        let start = MonotonicInstant.sinceBoot
        let seen = try sql.all(
            """
            SELECT node, name, beat, state, coalesce(node = owner, FALSE) FROM nodes CROSS JOIN store
            WHERE node <> ? AND (state = ? OR node = owner) ORDER BY node
            """, node, PostgresSchema.up
        ) { Seen(number: $0[0], name: $0[1], beat: $0[2], state: $0[3], isOwner: $0[4]) }
        let end = MonotonicInstant.sinceBoot
        others = others.filter { number, _ in seen.contains { $0.number == number } }
        for other in seen {
            var observed = others[other.number] ?? ObservedNode(lease: lease)
            let isSilent = observed.see(other.beat, from: start, to: end)
            others[other.number] = observed
            if other.isOwner { shared.withLock { $0.ownerName = other.name } }
            if isSilent || other.state == PostgresSchema.dead {
                try replace(other, with: sql)
            } else if isFormerLife(other), observed.isAlive {
                throw StoreError.nodeRunning(name: options.node)
            } else if other.isOwner {
                become(.waiting(reason: "node \(other.name) owns the store"))
            }
        }
        if owns { return true }
        guard !seen.contains(where: { $0.isOwner || isFormerLife($0) }) else { return false }
        return try sql.run("UPDATE store SET owner = ? WHERE owner IS NULL", node) == 1
    }

    /// Whether it has the name of this node, and was there before.
    private func isFormerLife(_ other: Seen) -> Bool {
        other.name == options.node && other.number < node ?? 0
    }

    private struct Seen {
        let number: Int64
        let name: String
        let beat: Int64
        let state: Int
        let isOwner: Bool
    }

    /// Ends a silent node. Each step may be repeated, by any node.
    private func replace(_ other: Seen, with sql: SQL) throws {
        let ended = try sql.run(
            "UPDATE nodes SET state = ? WHERE node = ? AND state = ? AND beat = ?", PostgresSchema.dead, other.number,
            PostgresSchema.up, other.beat)
        replaced.add(ended, ordering: .releasing)
        if ended > 0, other.isOwner { tookOver.store(true, ordering: .releasing) }
        let state = try sql.value("SELECT state FROM nodes WHERE node = ?", other.number, as: Int.self)
        // Otherwise it has beaten since.
        guard state == PostgresSchema.dead else { return }
        logger.warning(
            "node is silent; taking over",
            metadata: ["node": "\(other.name)", "life": .stringConvertible(other.number)])
        try free(other.number, with: sql)
    }

    /// Ends the writers of a dead life, and then its ownership.
    private func free(_ node: Int64, with sql: SQL) throws {
        let writers = try sql.all(
            "SELECT writer FROM writers WHERE node = ? AND NOT isEnded ORDER BY writer", node
        ) { $0[0] as Int64 }
        let fence = Fence(sql: sql, options: options)
        for writer in writers { try fence.end(writer) }
        // None can have been added: a writer is added under the lock of its node, which must be up.
        try sql.run(
            """
            UPDATE store SET owner = NULL
            WHERE owner = ?1 AND NOT EXISTS (SELECT 1 FROM writers WHERE node = ?1 AND NOT isEnded)
            """, node)
    }

    /// Ends a node that is up, in the middle of whatever it does, so that another one takes over. Blocks, for some seconds at
    /// most. Returns false if none of that name is up, or the store is one that no other process can use.
    public static func evict(_ name: String, from options: OutboxOptions, logger: Logger) throws(StoreError) -> Bool {
        guard case .postgres(let options) = options.engine else { return false }
        let lease = StoreLease(options, threads: DedicatedThreads(), logger: logger)
        do {
            let connection = try PostgresConnection(options)
            connection.patience = .seconds(options.commitTimeoutSeconds)
            let sql = SQL(postgres: connection)
            defer { try? sql.close() }
            let nodes = try sql.all(
                "UPDATE nodes SET state = ? WHERE name = ? AND state = ? RETURNING node", PostgresSchema.dead, name,
                PostgresSchema.up
            ) { $0[0] as Int64 }
            for node in nodes { try lease.free(node, with: sql) }
            return !nodes.isEmpty
        } catch {
            throw StoreError(postgres: error)
        }
    }

    // MARK: The end

    /// Ends this life in the database, if that is possible, so that others need not wait for the end of the lease.
    private func depart() -> MonotonicInstant? {
        end.store(0, ordering: .releasing)
        if let node {
            do {
                let sql = try connection()
                try sql.run("UPDATE nodes SET state = ? WHERE node = ?", PostgresSchema.dead, node)
                try free(node, with: sql)
            } catch {
                logger.warning("others take over after the lease", metadata: ["error": "\(error)"])
            }
        }
        disconnect()
        become(.over(.closed))
        return nil
    }

    /// Removes rows of `log` that nothing asks for any more, of this node and of those that were ended.
    private func trim(_ node: Int64, with sql: SQL) throws {
        trimDueAt = .sinceBoot + Self.trimInterval
        // The last row of a writer stays: the next one requires it.
        try sql.run(
            """
            DELETE FROM log USING writers WHERE log.writer = writers.writer AND node = ?
              AND at < extract(epoch FROM clock_timestamp()) * 1000 - 60000
              AND n < (SELECT max(n) FROM log AS later WHERE later.writer = log.writer)
            """, node)
        try sql.run(
            """
            WITH old AS (
              SELECT writer FROM writers WHERE isEnded AND (SELECT max(at) FROM log WHERE log.writer = writers.writer)
                < extract(epoch FROM clock_timestamp()) * 1000 - 3600000
                AND NOT EXISTS (SELECT 1 FROM arrivals WHERE arrivals.writer = writers.writer)
            ), gone AS (DELETE FROM log WHERE writer IN (SELECT writer FROM old))
            DELETE FROM writers WHERE writer IN (SELECT writer FROM old)
            """)
        try sql.run("DELETE FROM events WHERE at < extract(epoch FROM clock_timestamp()) * 1000 - 10000")
        // Of processes that have ended.
        try sql.run(
            "DELETE FROM requests WHERE askedAt < extract(epoch FROM clock_timestamp()) * 1000 - 3600000")
        try sql.run(
            """
            DELETE FROM nodes WHERE state = ? AND node NOT IN (SELECT node FROM writers)
              AND node NOT IN (SELECT owner FROM store WHERE owner IS NOT NULL) AND node < ?
            """, PostgresSchema.dead, node)
    }
}
