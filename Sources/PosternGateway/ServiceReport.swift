import PosternCore
import PosternProcess

/// What a service manager is told while the gateway runs, a message at a time.
struct ServiceReport {
    /// What is known about the gateway.
    struct Condition {
        /// Why `/readyz` is 503; empty if it is 200.
        var reasons: [String] = []
        /// Whether a worker or the writer makes no progress.
        var isStalled = false
        var queued = 0
        var inFlight = 0
        /// The upstreams that are not `up`, with their health.
        var upstreams: [(name: String, health: String)] = []
    }

    /// Whether the gateway was ready once.
    private var hasStarted = false

    /// How long the start may take from the last message on. A full disk is no reason to end the process: deliveries
    /// may make room.
    private static let patience = Duration.seconds(30)

    /// How often there is a message: three times in each period of the watchdog, but at most a hundred times a second.
    static func period(_ watchdog: Duration?) -> Duration {
        max(min(watchdog.map { $0 / 3 } ?? .seconds(5), .seconds(5)), .milliseconds(10))
    }

    /// The next message. A process whose `/readyz` is 503 because something is stalled leaves out `WATCHDOG=1`, and is
    /// ended and started again after the period that the unit gives.
    mutating func message(on condition: Condition) -> [String] {
        var lines: [String] = []
        if !hasStarted {
            hasStarted = condition.reasons.isEmpty
            lines.append(
                hasStarted
                    ? "READY=1" : "EXTEND_TIMEOUT_USEC=\(Self.patience.components.seconds * 1_000_000)")
        }
        if !condition.isStalled { lines.append("WATCHDOG=1") }
        return lines + ["STATUS=\(Self.status(condition))"]
    }

    private static func status(_ condition: Condition) -> String {
        let state =
            condition.reasons.isEmpty ? "Accepting messages" : "Not ready: \(condition.reasons.joined(separator: ", "))"
        let upstreams = condition.upstreams.map { "\($0.name) \($0.health)" }.joined(separator: ", ")
        // The manager's protocol has one line for each assignment.
        return
            ("\(state); \(condition.queued) queued, \(condition.inFlight) in flight"
            + (upstreams.isEmpty ? "" : "; \(upstreams)")).printable()
    }
}
