import PosternCore
import PosternMetrics
import Synchronization

/// The histories of all upstreams, and how long commits take. Any thread.
final class GatewayHistory: Sendable {
    private let state: Mutex<State>

    private struct State {
        /// When the last step ended.
        var to: Timestamp
        var upstreams: [UpstreamName: UpstreamHistory] = [:]
        /// The commits at the ends of the last steps, the oldest first.
        var commits: [BucketCounts] = []
    }

    /// The span over which the durations of commits are reported, in steps.
    private static let commitSteps = 6
    /// A response may have about this many bytes of history; with very many upstreams, it has less than an hour.
    private static let maxBytes = 700_000
    private static let bytesPerStep = 11 * UpstreamHistory.Series.allCases.count

    init(at now: Timestamp) { state = Mutex(State(to: now)) }

    /// Adds a step. An upstream that is not among `samples` is forgotten.
    func add(_ samples: [UpstreamName: UpstreamHistory.Sample], commits: BucketCounts, at now: Timestamp) {
        state.withLock { state in
            let former = state.upstreams
            state.upstreams = [:]
            for (name, sample) in samples {
                guard var history = former[name] else { continue }
                history.add(sample, at: now)
                state.upstreams[name] = history
                state.to = history.to
            }
            for (name, sample) in samples where state.upstreams[name] == nil {
                state.upstreams[name] = UpstreamHistory(sample, at: former.isEmpty ? now : state.to)
            }
            if former.isEmpty { state.to = now }
            if state.commits.count > Self.commitSteps { state.commits.removeFirst() }
            state.commits.append(commits)
        }
    }

    /// How long until the next sample is due.
    func pause(at now: Timestamp) -> Duration {
        let left = state.withLock { $0.to } + UpstreamHistory.step - now
        return min(max(.zero, left), UpstreamHistory.step * 2)
    }

    /// The commits of the last minute, of which `commits` are the latest.
    func recentCommits(_ commits: BucketCounts) -> BucketCounts {
        state.withLock { $0.commits.first.map { commits - $0 } ?? commits }
    }

    /// See `UpstreamHistory.drainRate`; nil if nothing is known of the upstream yet.
    func drainRate(of name: UpstreamName, delivered: Int, failed: Int, at now: Timestamp) -> Double? {
        state.withLock { $0.upstreams[name]?.drainRate(delivered: delivered, failed: failed, at: now) }
    }

    /// How long the oldest queued message of an upstream had been due when the last step ended; 0 if none was.
    func oldestSeconds(of name: UpstreamName) -> Double { state.withLock { $0.upstreams[name]?.oldestSeconds ?? 0 } }

    /// The steps that ended after `since`, of the upstreams that are shown, as a JSON object.
    func json(since: Timestamp?, isShown: (UpstreamName) -> Bool) -> String {
        let (to, all) = state.withLock { ($0.to, $0.upstreams) }
        let shown = all.filter { isShown($0.key) }.sorted { $0.key < $1.key }
        let most = Self.maxBytes / Self.bytesPerStep / max(1, shown.count)
        let counts = shown.map { $0.value.steps(since: since, atMost: most) }
        return JSONWriter.object { json in
            json.number("step", Int(UpstreamHistory.step.inSeconds))
            json.time("from", to - UpstreamHistory.step * (counts.max() ?? 0))
            json.time("to", to)
            json.object("upstreams") { upstreams in
                for ((name, history), count) in zip(shown, counts) {
                    upstreams.raw(name.description, history.json(last: count))
                }
            }
        }
    }
}
