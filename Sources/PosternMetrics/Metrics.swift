/// The counters and histograms of a run; names and labels are those of the design. Gauges are read when the metrics are
/// requested. Any thread.
public final class Metrics: Sendable {
    /// Messages on disk, by upstream and kind.
    public let accepted = Metrics.counters("upstream", "kind")
    /// Messages that were rejected before they were stored.
    public let refused = Metrics.counters("upstream", "reason")
    /// Messages that reached a final state.
    public let settled = Metrics.counters("upstream", "state")
    /// Messages, callbacks included, whose content was erased.
    public let erased = Metrics.counters("upstream")
    /// In seconds, with the fsync.
    public let commitDuration = Histogram(bounds: Histogram.durationBounds)
    /// Accepted messages per commit.
    public let commitMessages = Histogram(bounds: Histogram.countBounds)
    /// Upstream requests, by `Settlement.Outcome`.
    public let attempts = Metrics.counters("upstream", "outcome")
    /// In seconds, from sending the request to its response.
    public let attemptDuration = Metrics.histograms("upstream", bounds: Histogram.durationBounds)
    /// In seconds, from the acceptance of a message to its delivery. For the history; not among the metrics.
    public let deliveryWait = Metrics.histograms("upstream", bounds: Histogram.waitBounds)
    /// Messages per request to the upstream.
    public let batchMessages = Metrics.histograms("upstream", bounds: Histogram.countBounds)
    /// Messages that replays have dealt with, by the upstream that gets them.
    public let replayed = Metrics.counters("upstream", "outcome")
    /// The values of `outcome` in `replayed`.
    public static let replayOutcomes = ["replayed", "refused", "withoutPayload"]
    /// Requests that may or may not have arrived.
    public let ambiguousSends = Metrics.counters("upstream")
    /// Fetches of a token: `fetched`, `refused` (because of the credentials), or `failed`.
    public let tokenRefreshes = Metrics.counters("upstream", "outcome")
    /// The values of `outcome` in `tokenRefreshes`.
    public static let tokenOutcomes = ["fetched", "refused", "failed"]
    /// Steps of sequences that have ended, by `StepResult.Outcome`.
    public let steps = Metrics.counters("upstream", "step", "outcome")
    public let upstreamEvents = Metrics.counters("upstream", "event")
    /// Requests of callers, by the template of their route.
    public let requests = Metrics.counters("route", "status")
    /// Requests of SDKs to endpoints in the place of their platform's.
    public let sdkRequests = Metrics.counters("upstream", "call", "outcome")
    /// In seconds, from the last byte of the request to the response.
    public let requestDuration = Metrics.histograms("route", bounds: Histogram.durationBounds)

    /// Of a store in a database that several gateways share.
    public let database = DatabaseMetrics()

    public init() {}

    static func counters(_ labels: String...) -> Family<Counter> { Family(labels: labels) { Counter() } }

    private static func histograms(_ labels: String..., bounds: [Double]) -> Family<Histogram> {
        Family(labels: labels) { Histogram(bounds: bounds) }
    }

    /// Writes all of them. The owners of gauges append theirs.
    public func write(to exposition: inout Exposition) {
        exposition.counters(
            "postern_messages_accepted_total", "Messages on disk: answered with 2xx, or callbacks.", accepted)
        exposition.counters("postern_messages_refused_total", "Messages refused before anything was stored.", refused)
        exposition.counters("postern_messages_settled_total", "Messages that reached a final state.", settled)
        exposition.counters(
            "postern_messages_replayed_total", "Delivered messages that replays queued again, or could not.", replayed)
        exposition.counters("postern_messages_erased_total", "Messages whose content was erased.", erased)
        exposition.histograms(
            "postern_commit_duration_seconds", "Time from begin to end of a commit, fsync included.",
            Family(single: commitDuration))
        exposition.histograms(
            "postern_commit_messages", "Messages accepted in one commit.", Family(single: commitMessages))
        exposition.counters("postern_attempts_total", "Requests to upstreams by outcome.", attempts)
        exposition.histograms(
            "postern_attempt_duration_seconds", "Time from sending a request to its answer.", attemptDuration)
        exposition.histograms("postern_batch_messages", "Messages in one upstream request.", batchMessages)
        exposition.counters(
            "postern_ambiguous_sends_total", "Requests that may or may not have arrived.", ambiguousSends)
        exposition.counters("postern_token_refreshes_total", "Token requests by outcome.", tokenRefreshes)
        exposition.counters(
            "postern_steps_total", "Steps of sequences that have ended, by outcome: done, skipped, or failed.", steps)
        exposition.counters(
            "postern_upstream_events_total", "Events by the name that the upstream's own clients give them.",
            upstreamEvents)
        exposition.counters("postern_http_requests_total", "Requests answered.", requests)
        exposition.counters("postern_sdk_requests_total", "Requests of SDKs by call and outcome.", sdkRequests)
        exposition.histograms(
            "postern_http_request_duration_seconds", "Time from the request's last byte to its answer.",
            requestDuration)
        database.write(to: &exposition)
    }
}

extension Family {
    /// A family of one series without labels.
    convenience init(single: Series) {
        self.init(labels: []) { single }
        _ = self()
    }
}
