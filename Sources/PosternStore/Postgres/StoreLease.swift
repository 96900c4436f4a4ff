public import Logging
public import PosternCore
public import PosternThreads
import Synchronization

/// The life of this process as one of the nodes that share a store, and its right to work on what it has adopted.
///
/// A thread of its own beats, so that the others see that this node lives. It looks for the end of other nodes, and ends what
/// they have left; which queues this node is to work on follows from what it sees (`Balance`). One of the nodes also keeps the
/// store: it does what concerns no queue, or one that none works on. A life is a row of `nodes`. One that was ended never comes
/// back: a node that has had nothing begins again as another one.
public final class StoreLease: Loop, @unchecked Sendable {
    // @unchecked: what is below `MARK: State` belongs to the thread that turns.
    public let name = "postern-lease"
    let options: PostgresOptions
    private let threads: any Threads
    private let logger: Logger
    private let requests = Inbox<Never>()
    private let isLeaving = Atomic<Bool>(false)
    private let keeps = Atomic<Bool>(false)
    /// Whether this life has had anything that another node could have taken over.
    private let hadSomething = Atomic<Bool>(false)
    private let isStopping = Atomic<Bool>(false)
    private let mustBeat = Atomic<Bool>(false)
    /// Until when this node may send, in nanoseconds since boot. 0: not at all.
    private let end = Atomic<Int64>(0)
    private let replaced = Atomic(0)
    private let listens = Atomic<Bool>(false)
    /// In milliseconds.
    private let offset = Atomic<Int64>(0)
    private let shared: Mutex<Shared>
    private let running = Mutex<(any RunningLoop)?>(nil)

    private enum Condition {
        /// It has not joined the others yet.
        case waiting(reason: String)
        case joined
        case over(StoreError)
    }

    private struct Shared {
        var condition = Condition.waiting(reason: "connecting to the database")
        /// The number of this life; nil before it has begun, and has looked at the others.
        var node: Int64?
        /// The name of the last node that was seen to keep the store.
        var keeperName: String?
        /// What this node can work on, as `nodes.serves` has it.
        var serves = ""
        var view = QueueView()
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
    private var lookDueAt = MonotonicInstant.distantPast

    private var lease: Duration { .seconds(options.leaseSeconds) }
    /// How often a node looks what the others do.
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

    // MARK: Any thread

    /// Joins the nodes of the store, and waits until this one keeps it. Blocks. Creates the tables if they are missing.
    ///
    /// Throws `StoreError.unsuitable`, `.newer`, or `.nodeRunning`; a database that cannot be reached is waited for.
    ///
    /// - Parameters:
    ///   - isCancelled: Asked several times a second, on this thread. If it is true, nil is returned.
    ///   - onWaiting: Told as often why this node has not joined; nil: it has.
    /// - Returns: What has to be handed to `Outbox`, whose `close` ends it, or to be ended by `leave`.
    static func wait(
        _ options: OutboxOptions, threads: any Threads, logger: Logger, isCancelled: () -> Bool = { false },
        onWaiting: (String?) -> Void = { _ in }
    ) throws(StoreError) -> StoreLease? {
        guard let lease = try join(options, threads: threads, logger: logger) else { return nil }
        let keeps = try lease.wait(until: { lease.isKeeper }, isCancelled: isCancelled, onWaiting: onWaiting)
        return keeps ? lease : nil
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

    /// Waits until this node has joined the others, and `isDone`. Returns false, and ends this life, if `isCancelled`; both
    /// are asked several times a second, on this thread.
    ///
    /// - Parameter onWaiting: Told as often why this node has not joined; nil: it has.
    public func wait(
        until isDone: () -> Bool = { true }, isCancelled: () -> Bool, onWaiting: (String?) -> Void = { _ in }
    ) throws(StoreError) -> Bool {
        let pause = Inbox<Never>()
        while true {
            switch shared.withLock({ $0.condition }) {
            case .joined:
                if isDone() { return true }
                onWaiting(nil)
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

    /// Ends this life. Other nodes may take over at once. Returns when that is done, or after a few seconds without the
    /// database.
    public func leave() {
        isLeaving.store(true, ordering: .releasing)
        requests.nudge()
        running.withLock { $0.take() }?.join()
    }

    /// Whether this node may send what it has claimed. Any thread.
    public var mayStillSend: Bool { left > .zero }

    /// Whether this node does what concerns no queue. Any thread.
    public var isKeeper: Bool { keeps.load(ordering: .acquiring) }

    /// The name of the node that does; nil if none was seen. Any thread.
    var keeperName: String? { isKeeper ? options.node : shared.withLock(\.keeperName) }

    /// What this node has seen of the queues. Any thread.
    var view: QueueView { shared.withLock(\.view) }

    /// Shows the others which queues this node can work on, and which of them belong together. Any thread.
    func serve(_ queues: Set<UpstreamNumber>, joint: Set<UpstreamNumber>) {
        let text = QueueView.text(of: queues, joint: joint)
        let isNew = shared.withLock { shared in
            defer { shared.serves = text }
            return shared.serves != text
        }
        if isNew { check() }
    }

    /// Has the others take over the queues as soon as this node releases them. It is to end soon. Any thread.
    public func beginStopping() {
        isStopping.store(true, ordering: .releasing)
        check()
    }

    /// From now on, the end of this life is the end of what this process may do. Any thread.
    func takes() { hadSomething.store(true, ordering: .sequentiallyConsistent) }

    /// Whether the end of this life is that of the process. Any thread.
    var isFinal: Bool { hadSomething.load(ordering: .sequentiallyConsistent) }

    /// How long it may, without another beat; zero if it may not. Any thread.
    public var left: Duration {
        max(.zero, MonotonicInstant(nanoseconds: end.load(ordering: .acquiring)) - .sinceBoot)
    }

    /// By how much the clock of this process is ahead of that of the database, as of the last beat. Any thread.
    public var clockOffset: Duration { .milliseconds(offset.load(ordering: .relaxed)) }

    /// How many silent nodes this one has ended. Any thread.
    public var replacedNodes: Int { replaced.load(ordering: .acquiring) }

    /// The number of this life; nil before it has begun. Throws once the lease is over.
    func liveNode() throws(StoreError) -> Int64? {
        let (condition, node) = shared.withLock { ($0.condition, $0.node) }
        if case .over(let error) = condition { throw error }
        return node
    }

    /// Whether this life has begun, so that the store can be opened. Any thread.
    public var hasJoined: Bool { shared.withLock { $0.node != nil } }

    /// Beats and looks at once. Any thread.
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

    private func become(_ condition: Condition, as node: Int64? = nil) {
        if case .over = condition {
            end.store(0, ordering: .releasing)
            keeps.store(false, ordering: .releasing)
        }
        let observer = shared.withLock { shared in
            if case .over = shared.condition { return nil as (@Sendable (StoreError?) -> Void)? }
            (shared.condition, shared.node) = (condition, node ?? shared.node)
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
            let isAsked = mustBeat.exchange(false, ordering: .acquiring)
            if isAsked || start >= beatDueAt { try beat(node, with: sql) }
            if self.node == node, isAsked || start >= lookDueAt {
                let hasFreed = try look(node, with: sql)
                lookDueAt = hasFreed ? .distantPast : .sinceBoot + lookInterval
                become(.joined, as: node)
            }
            if start >= trimDueAt { try trim(node, with: sql) }
            report(nil)
            return now + max(.zero, min(beatDueAt, lookDueAt) - .sinceBoot)
        } catch let error as PostgresError where error.isConnectionLost || error.isConflict || error.isReadOnly {
            disconnect()
            report(.unavailable(detail: error.message))
            return now + Self.retryInterval
        } catch {
            let reason = StoreError(postgres: error)
            if reason != .closed { logger.error("lease lost", metadata: ["error": "\(reason)"]) }
            become(.over(isFinal ? .ownershipLost : reason))
            return depart()
        }
    }

    private func report(_ failure: StoreError?) {
        let (observer, isWaiting) = shared.withLock { shared in
            if case .waiting = shared.condition { (shared.observer, true) } else { (shared.observer, false) }
        }
        observer?(failure)
        if isWaiting, let failure { become(.waiting(reason: "\(failure)")) }
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
        (node, beat, beatDueAt, lookDueAt, others) = (number, 0, .distantPast, .distantPast, [:])
        return number
    }

    /// Shows the others that this node lives.
    private func beat(_ node: Int64, with sql: SQL) throws {
        let start = MonotonicInstant.sinceBoot
        let (digest, serves) = shared.withLock { ($0.configDigest, $0.serves) }
        let row = try sql.first(
            """
            UPDATE nodes SET beat = beat + 1, clockOffsetMs = ?, isListening = ?, configDigest = ?, serves = ?, state = ?
            WHERE node = ? AND state <> ?
            RETURNING beat, (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT
            """, hasOffset ? offset.load(ordering: .relaxed) : nil, listens.load(ordering: .acquiring), digest, serves,
            isStopping.load(ordering: .acquiring) ? PostgresSchema.stopping : PostgresSchema.up, node,
            PostgresSchema.dead
        ) { (beat: $0[0] as Int64, time: $0[1] as Timestamp) }
        if let row {
            let found = SystemTime().now - (MonotonicInstant.sinceBoot - start) / 2 - row.time
            offset.store(found.wholeMilliseconds, ordering: .relaxed)
            hasOffset = true
        }
        guard let found = row?.beat, found > beat else {
            // Another one has ended this life, or the database has lost it. As long as it has had nothing, it may begin again.
            guard !isFinal else { throw StoreError.ownershipLost }
            self.node = nil
            shared.withLock { $0.node = nil }
            return
        }
        (beat, beatDueAt) = (found, start + lease / 4)
        clock.renew(since: start)
        end.store(clock.end.nanoseconds, ordering: .releasing)
    }

    // MARK: What it sees

    /// Ends silent nodes, keeps the store if no other node does, and finds out which queues this one is to work on.
    ///
    /// Returns whether it has ended a node, so that queues may be free now.
    private func look(_ node: Int64, with sql: SQL) throws -> Bool {
        var hasFreed = false
        let seen = try SeenNodes(as: node, with: sql)
        others = others.filter { number, _ in seen.nodes.contains { $0.number == number } }
        for other in seen.nodes where other.number != node {
            var observed = others[other.number] ?? ObservedNode(lease: lease)
            let isSilent = observed.see(other.beat, from: seen.start, to: seen.end)
            others[other.number] = observed
            if isSilent || other.state == PostgresSchema.dead {
                hasFreed = try replace(other, with: sql) || hasFreed
            } else if isFormerLife(other), observed.isAlive {
                throw StoreError.nodeRunning(name: options.node)
            }
        }
        try keep(seen, as: node, with: sql)
        let isNamesake = seen.nodes.contains { $0.number != node && isFormerLife($0) }
        let late = Set(others.filter { !$0.value.isLively(at: seen.end) }.keys)
        shared.withLock { shared in
            if let keeper = seen.keeper { shared.keeperName = keeper.name }
            // Two with one name could not be told apart.
            shared.view = QueueView(seen, as: node, late: isNamesake ? [node] : late, after: shared.view)
        }
        return hasFreed
    }

    /// Keeps the store as long as no other node does.
    private func keep(_ seen: SeenNodes, as node: Int64, with sql: SQL) throws {
        // The answer to the statement below may have been lost.
        guard seen.keeper?.number != node else { return keeps.store(true, ordering: .releasing) }
        guard !isKeeper else { throw StoreError.ownershipLost }
        guard seen.keeper == nil, !isStopping.load(ordering: .acquiring),
            !seen.nodes.contains(where: { $0.number != node && isFormerLife($0) })
        else { return }
        takes()
        guard try sql.run("UPDATE store SET owner = ? WHERE owner IS NULL", node) == 1 else { return }
        shared.withLock { $0.keeperName = options.node }
        keeps.store(true, ordering: .releasing)
        logger.notice(
            "node keeps the store", metadata: ["node": "\(options.node)", "life": .stringConvertible(node)])
    }

    /// Whether it has the name of this node, and was there before.
    private func isFormerLife(_ other: SeenNodes.Node) -> Bool {
        other.name == options.node && other.number < node ?? 0
    }

    /// Ends a silent node. Each step may be repeated, by any node.
    private func replace(_ other: SeenNodes.Node, with sql: SQL) throws -> Bool {
        let ended = try sql.run(
            "UPDATE nodes SET state = ? WHERE node = ? AND state <> ? AND beat = ?", PostgresSchema.dead, other.number,
            PostgresSchema.dead, other.beat)
        replaced.add(ended, ordering: .releasing)
        let state = try sql.value("SELECT state FROM nodes WHERE node = ?", other.number, as: Int.self)
        // Otherwise it has beaten since.
        guard state == PostgresSchema.dead else { return false }
        logger.warning(
            "node is silent; taking over",
            metadata: ["node": "\(other.name)", "life": .stringConvertible(other.number)])
        try free(other.number, with: sql)
        return true
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
            UPDATE queues SET owner = NULL
            WHERE owner = ?1 AND NOT EXISTS (SELECT 1 FROM writers WHERE node = ?1 AND NOT isEnded)
            """, node)
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
                "UPDATE nodes SET state = ? WHERE name = ? AND state <> ? RETURNING node", PostgresSchema.dead, name,
                PostgresSchema.dead
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
        keeps.store(false, ordering: .releasing)
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
              AND node NOT IN (SELECT owner FROM store WHERE owner IS NOT NULL)
              AND node NOT IN (SELECT owner FROM queues WHERE owner IS NOT NULL) AND node < ?
            """, PostgresSchema.dead, node)
    }
}
