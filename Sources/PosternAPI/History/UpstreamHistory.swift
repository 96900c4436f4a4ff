import PosternCore
import PosternMetrics

/// What happened to one upstream in the last hour, in steps of ten seconds. A value: figures and times are passed in.
struct UpstreamHistory: Sendable, Equatable {
    static let step = Duration.seconds(10)
    static let maxSteps = 360

    /// Figures at one moment. All but `queued` and `oldestSeconds` only grow, as counts since some earlier moment.
    struct Sample: Sendable, Equatable {
        var accepted = 0
        var delivered = 0
        /// Messages that failed, including those that were retried since.
        var failed = 0
        var queued = 0
        /// How long the oldest queued message has been due; 0 if none is.
        var oldestSeconds = 0.0
        var requests = 0
        var requestsFailed = 0
        /// Durations of requests, in seconds.
        var durations = BucketCounts()
        /// Times from acceptance to delivery, in seconds.
        var waits = BucketCounts()
    }

    /// In the order in which a step has their values.
    enum Series: String, CaseIterable {
        case accepted, delivered, failed, queued, oldestSeconds, requests, requestsFailed, requestP50Ms, requestP99Ms,
            waitP99Ms

        /// Whether values are tenths.
        fileprivate var isDuration: Bool { rawValue.hasSuffix("Ms") }
    }

    /// When the last step ended.
    private(set) var to: Timestamp
    private var last: Sample
    /// The values of one step after those of another, the oldest first. Four bytes each, so that an hour takes less than
    /// 16 KiB. Durations are tenths of milliseconds; `absent` if there was nothing to measure.
    private var values: [UInt32] = []
    private static let absent = UInt32.max

    /// Begins with a first step that ends later than `now`.
    init(_ sample: Sample, at now: Timestamp) {
        (last, to) = (sample, now)
        values.reserveCapacity(Self.maxSteps * Series.allCases.count)
    }

    var oldestSeconds: Double { last.oldestSeconds }

    var steps: Int { values.count / Series.allCases.count }

    /// The time of the next sample.
    var nextAt: Timestamp { to + Self.step }

    /// Ends the step that ends closest to `now`. Steps that were missed, for example because the process was stopped, are
    /// filled in: nothing happened in them, and what did is in the last one. If the clock was set back, the history begins
    /// again.
    mutating func add(_ sample: Sample, at now: Timestamp) {
        let steps = Int(((now - to).inSeconds / Self.step.inSeconds).rounded())
        if steps < 0 { self = UpstreamHistory(sample, at: now) }
        guard steps > 0 else { return }
        for _ in 1..<min(steps, Self.maxSteps + 1) { append(last, since: last) }
        append(sample, since: last)
        to = to + Self.step * steps
        last = sample
    }

    private mutating func append(_ sample: Sample, since former: Sample) {
        let excess = values.count - (Self.maxSteps - 1) * Series.allCases.count
        if excess > 0 { values.removeFirst(excess) }
        let (durations, waits) = (sample.durations - former.durations, sample.waits - former.waits)
        for series in Series.allCases {
            let value: Double? =
                switch series {
                case .accepted: Double(sample.accepted - former.accepted)
                case .delivered: Double(sample.delivered - former.delivered)
                case .failed: Double(sample.failed - former.failed)
                case .queued: Double(sample.queued)
                case .oldestSeconds: sample.oldestSeconds
                case .requests: Double(sample.requests - former.requests)
                case .requestsFailed: Double(sample.requestsFailed - former.requestsFailed)
                case .requestP50Ms: durations.quantile(0.5).map { $0 * 10_000 }
                case .requestP99Ms: durations.quantile(0.99).map { $0 * 10_000 }
                case .waitP99Ms: waits.quantile(0.99).map { $0 * 10_000 }
                }
            values.append(value.map { UInt32(min(max(0, $0.rounded()), Double(Self.absent - 1))) } ?? Self.absent)
        }
    }

    // MARK: Reading

    /// The messages per second that deliveries took out of the queue in the last minute, whether they were delivered or
    /// failed; in a shorter time if the history is shorter. The arguments are the counts of a sample at `now`.
    func drainRate(delivered: Int, failed: Int, at now: Timestamp) -> Double {
        let count = min(steps, Self.stepsPerMinute)
        let settled = [Series.delivered, .failed].reduce(delivered - last.delivered + failed - last.failed) {
            $0 + values($1, last: count).reduce(0) { $0 + Int($1) }
        }
        // The clock may have been set back since the last step.
        let span = max(1, (now - to).inSeconds + Self.step.inSeconds * Double(count))
        return Double(max(0, settled)) / span
    }

    private static let stepsPerMinute = 6

    /// The number of steps that ended after `since`, at most `most`.
    func steps(since: Timestamp?, atMost most: Int = maxSteps) -> Int {
        guard let since else { return min(steps, most) }
        let later = ((to - since).inSeconds / Self.step.inSeconds).rounded(.up)
        return min(steps, most, Int(min(max(0, later), Double(Self.maxSteps))))
    }

    /// The values of the last `count` steps, the oldest first, as numbers in JSON.
    func texts(_ series: Series, last count: Int) -> [String] {
        values(series, last: count).map { value in
            if value == Self.absent { return "null" }
            return series.isDuration ? "\(value / 10).\(value % 10)" : String(value)
        }
    }

    private func values(_ series: Series, last count: Int) -> some Sequence<UInt32> {
        let (width, offset) = (Series.allCases.count, Series.allCases.firstIndex(of: series) ?? 0)
        return stride(from: values.count - count * width + offset, to: values.count, by: width).lazy.map { values[$0] }
    }

    /// The last `count` steps, as a JSON object.
    func json(last count: Int) -> String {
        JSONWriter.object { json in
            for series in Series.allCases { json.raw(series.rawValue, JSONWriter.array(texts(series, last: count))) }
        }
    }
}
