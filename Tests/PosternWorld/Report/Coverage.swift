import PosternCore
import PosternDelivery
import PosternScenarios
import PosternUpstream

/// Which states and transitions of the diagrams in ARCHITECTURE.md were visited, by name.
public struct Coverage: Sendable {
    public private(set) var visited: Set<String> = []

    /// Those there are.
    public static let all = states + repeats + callbacks + alerts + probes + queues + replays

    private static let repeats = [
        "a request gets its first response", "what was stored is not stored again", "another under a key is refused",
    ].map { "repeat: \($0)" }

    private static let probes = ["ok", "unauthorized", "misconfigured", "failed", "unreachable"].map { "probe: \($0)" }

    private static let queues = [
        "dropped with requests under way", "adopted again", "lanes admitted by its owner",
        "a caller waits while others are sent",
    ].map { "queue: \($0)" }

    private static let replays = ["queues copies", "goes on after a restart", "has ended"].map { "replay: \($0)" }

    private static let callbacks = ["delivered", "failed", "expired", "dropped"].map { "callback: \($0)" }

    private static let alerts =
        ["upstream.down", "upstream.unauthorized", "queue.old", "messages.dropped", "disk.full"].map { "\($0) firing" }
        .map { "alert: \($0)" }
        + ["upstream.up", "upstream.unauthorized", "queue.old", "disk.full"].map { "alert: \($0) resolved" }

    private static let states: [String] =
        ["delivered", "failed", "cancelled", "expired", "dropped"].map { "message: queued → \($0)" }
        + ["message: failed → queued", "message: dropped → queued", "message: erased"]
        + ["message: failed when it was accepted", "message: of an SDK"]
        + ["closed → open", "open → half-open", "half-open → closed", "half-open → open", "open → closed"].map {
            "circuit: \($0)"
        }
        + ["retry", "order", "circuit", "token", "credentials", "pause", "schedule", "guard", "rate"].map {
            "message waits: \($0)"
        }
        + [
            "hold: credentials", "hold: configuration", "endpoint waits", "a wrong endpoint comes first",
            "token refused", "an upstream rejects everything",
        ]
        + ["stop", "kill", "kill inside a turn", "kill inside a call of the disk"].map { "store: open after a \($0)" }
        + ["power cut", "power cut inside a turn", "power cut inside a call of the disk"].map {
            "store: open after a \($0)"
        }
        + ["sound → full", "full → sound", "sound → failed", "failed → sound"].map { "store: \($0)" }
        + ["store: damaged, and repaired by the operator", "store: backup made", "store: open after a restore"]

    public var missing: [String] { Self.all.filter { !visited.contains($0) } }

    mutating func visit(_ name: String) { visited.insert(name) }
    public mutating func add(_ other: Coverage) { visited.formUnion(other.visited) }

    mutating func look(at now: UpstreamSnapshot, after before: UpstreamSnapshot?) {
        let (from, to) = ((before ?? UpstreamSnapshot()).circuit.name, now.circuit.name)
        if from != to { visit("circuit: \(from) → \(to)") }
        if let hold = now.hold { visit("hold: \(hold.rawValue)") }
        if !now.endpoints.isEmpty { visit("endpoint waits") }
        if now.token?.failures ?? 0 > 0 { visit("token refused") }
    }
}

extension Circuit.State {
    fileprivate var name: String {
        switch self {
        case .closed: "closed"
        case .open: "open"
        case .halfOpen: "half-open"
        }
    }
}
