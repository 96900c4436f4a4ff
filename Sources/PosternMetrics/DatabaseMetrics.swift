import Synchronization

/// The connection to a database that several gateways share, and the lease of this one. Nothing is exported before `begin`.
/// Any thread.
public final class DatabaseMetrics: Sendable {
    /// In seconds, from a statement to its result.
    public let roundTrip = Histogram(bounds: Histogram.durationBounds)
    /// Connections that replaced one that was lost.
    public let reconnects = Counter()
    /// Transactions that were run again, by the SQLSTATE that ended them.
    public let retries = Metrics.counters("code")
    /// The usual values of `code` in `retries`: serialization failure, deadlock, lock timeout.
    public static let retryCodes = ["40001", "40P01", "55P03"]
    /// Commits whose connection was lost, by what was found out.
    public let unknownCommits = Metrics.counters("outcome")
    /// The values of `outcome` in `unknownCommits`.
    public static let outcomes = ["stored", "notStored"]
    /// How often the database lacked commits that it had confirmed, in the life of the store. There is no series before the
    /// store has been opened: a zero would have every start of a gateway count as a loss what was lost before.
    public let lostCommits = Metrics.counters()
    /// Queues that this gateway has begun to work on, by what they had before.
    public let queueMoves = Metrics.counters("reason")
    /// The values of `reason` in `queueMoves`: no owner, one that was silent, or one that has released it to this gateway.
    public static let reasons = ["free", "takeover", "balance"]
    private let logLag = Atomic<Int>(0)
    /// How long ago the oldest transaction of another gateway was committed, when this one has counted it; in milliseconds.
    public var logLagMilliseconds: Int {
        get { logLag.load(ordering: .relaxed) }
        set { logLag.store(newValue, ordering: .relaxed) }
    }

    private let node = Mutex<Node?>(nil)

    /// What is asked at each export.
    public struct Node: Sendable {
        let isUp: @Sendable () -> Bool
        let leaseSeconds: @Sendable () -> Double
        let clockOffsetSeconds: @Sendable () -> Double
        let queues: @Sendable () -> Int
        let fenced: @Sendable () -> Int

        /// - Parameters:
        ///   - isUp: Whether the database answers.
        ///   - leaseSeconds: How long this gateway still may send without another beat; 0 if it may not.
        ///   - clockOffsetSeconds: By how much the clock of this gateway is ahead of that of the database.
        ///   - queues: How many queues it works on.
        ///   - fenced: How many silent gateways it has ended, so that nothing of theirs is stored any more.
        public init(
            isUp: @escaping @Sendable () -> Bool, leaseSeconds: @escaping @Sendable () -> Double,
            clockOffsetSeconds: @escaping @Sendable () -> Double, queues: @escaping @Sendable () -> Int,
            fenced: @escaping @Sendable () -> Int
        ) {
            self.isUp = isUp
            self.leaseSeconds = leaseSeconds
            self.clockOffsetSeconds = clockOffsetSeconds
            self.queues = queues
            self.fenced = fenced
        }
    }

    init() {}

    public func begin(_ node: Node) {
        self.node.withLock { $0 = node }
        for code in Self.retryCodes { _ = retries(code) }
        for outcome in Self.outcomes { _ = unknownCommits(outcome) }
        for reason in Self.reasons { _ = queueMoves(reason) }
    }

    /// What a gateway exports that has not opened the store. With it, the first takeover is an increase, too.
    public static func writeWaiting(to exposition: inout Exposition) {
        write(leaseSeconds: 0, to: &exposition)
        write(fenced: 0, to: &exposition)
    }

    private static func write(leaseSeconds: Double, to exposition: inout Exposition) {
        exposition.gauges(
            "postern_node_lease_seconds",
            "How long this gateway may send without hearing from the database; 0: not at all.", [([], leaseSeconds)])
    }

    private static func write(fenced: Int, to exposition: inout Exposition) {
        let counter = Counter()
        counter.add(fenced)
        exposition.counters("postern_fenced_total", "Silent gateways that this one has ended.", Family(single: counter))
    }

    func write(to exposition: inout Exposition) {
        guard let node = node.withLock({ $0 }) else { return }
        exposition.gauges("postern_store_up", "1 if the database answers.", [([], node.isUp() ? 1 : 0)])
        Self.write(leaseSeconds: node.leaseSeconds(), to: &exposition)
        exposition.gauges(
            "postern_clock_offset_seconds", "By how much the clock of this gateway is ahead of that of the database.",
            [([], node.clockOffsetSeconds())])
        exposition.gauges(
            "postern_queues_owned", "Queues that this gateway works on.", [([], Double(node.queues()))])
        exposition.counters(
            "postern_queue_moves_total", "Queues that this gateway has begun to work on, by what they had before.",
            queueMoves)
        exposition.gauges(
            "postern_commit_log_lag_seconds", "Time from a commit of another gateway until this one has counted it.",
            [([], Double(logLagMilliseconds) / 1000)])
        exposition.histograms(
            "postern_store_round_trip_seconds", "Time from a statement to its result.", Family(single: roundTrip))
        exposition.counters(
            "postern_store_reconnects_total", "Connections that replaced a lost one.", Family(single: reconnects))
        exposition.counters(
            "postern_store_retries_total", "Transactions that were run again, by SQLSTATE.", retries)
        exposition.counters(
            "postern_store_unknown_commits_total", "Commits whose connection was lost, by what was found out.",
            unknownCommits)
        exposition.counters(
            "postern_store_lost_commits_total",
            "How often the database lacked commits that it had confirmed, in the life of the store.",
            lostCommits)
        Self.write(fenced: node.fenced(), to: &exposition)
    }
}
