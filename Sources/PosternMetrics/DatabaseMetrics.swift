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
    /// How often the database lacked commits that it had confirmed, in the life of the store.
    public let lostCommits = Counter()
    /// Silent gateways from which this one took over, so that nothing of theirs is stored any more.
    public let fenced = Counter()

    private let gauges = Mutex<Gauges?>(nil)

    private struct Gauges {
        let isUp: @Sendable () -> Bool
        let leaseSeconds: @Sendable () -> Double
    }

    init() {}

    /// - Parameters:
    ///   - isUp: Whether the database answers, and this gateway owns the store.
    ///   - leaseSeconds: How long this gateway still may send without another beat; 0 if it may not.
    public func begin(isUp: @escaping @Sendable () -> Bool, leaseSeconds: @escaping @Sendable () -> Double) {
        gauges.withLock { $0 = Gauges(isUp: isUp, leaseSeconds: leaseSeconds) }
        for code in Self.retryCodes { _ = retries(code) }
        for outcome in Self.outcomes { _ = unknownCommits(outcome) }
    }

    /// What a gateway that does not own the store exports. With it, the first takeover is an increase, too.
    public static func writeWaiting(to exposition: inout Exposition) {
        write(leaseSeconds: 0, to: &exposition)
        write(fenced: Counter(), to: &exposition)
    }

    private static func write(leaseSeconds: Double, to exposition: inout Exposition) {
        exposition.gauges(
            "postern_node_lease_seconds",
            "How long this gateway may send without hearing from the database; 0: not at all.", [([], leaseSeconds)])
    }

    private static func write(fenced: Counter, to exposition: inout Exposition) {
        exposition.counters(
            "postern_fenced_total", "Silent gateways from which this one took over.", Family(single: fenced))
    }

    func write(to exposition: inout Exposition) {
        guard let gauges = gauges.withLock({ $0 }) else { return }
        exposition.gauges(
            "postern_store_up", "1 if the database answers and this gateway owns the store.",
            [([], gauges.isUp() ? 1 : 0)])
        Self.write(leaseSeconds: gauges.leaseSeconds(), to: &exposition)
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
            Family(single: lostCommits))
        Self.write(fenced: fenced, to: &exposition)
    }
}
