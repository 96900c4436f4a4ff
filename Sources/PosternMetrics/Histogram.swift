import Synchronization

/// Counts observations in buckets with fixed upper bounds. Any thread.
public final class Histogram: Sendable {
    /// Upper bounds, ascending; one more bucket, `+Inf`, is implied.
    let bounds: [Double]
    private let buckets: [Counter]
    /// The sum, in millionths, so that it can be changed atomically.
    private let sumMillionths = Atomic<Int>(0)

    init(bounds: [Double]) {
        self.bounds = bounds
        buckets = (0...bounds.count).map { _ in Counter() }
    }

    /// Bounds from 100 µs to 60 s, for commits, requests, and attempts.
    static let durationBounds: [Double] = [
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    ]
    /// Bounds from 1 to 10,000, for messages in a commit or a batch.
    static let countBounds: [Double] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]

    /// Bounds from 1 ms to 12 days, each twice the one before, for messages that may wait long.
    public static let waitBounds: [Double] = (0...30).map { Double(1 << $0) / 1000 }

    /// Counts a value, in the unit of the bounds.
    public func observe(_ value: Double, times: Int = 1) {
        var index = 0
        while index < bounds.count, value > bounds[index] { index += 1 }
        buckets[index].add(times)
        sumMillionths.wrappingAdd(Int(value * 1_000_000) * times, ordering: .relaxed)
    }

    /// The observations so far.
    public var counts: BucketCounts { BucketCounts(bounds, buckets.map(\.value)) }

    /// Observations up to each bound, cumulative, the last entry being all of them.
    var cumulative: [Int] {
        var running = 0
        return buckets.map { bucket in
            running += bucket.value
            return running
        }
    }

    /// The number of observations.
    var count: Int { buckets.reduce(0) { $0 + $1.value } }
    var sum: Double { Double(sumMillionths.load(ordering: .relaxed)) / 1_000_000 }
}

/// How many observations fell into each bucket of a histogram, until a moment or between two moments.
public struct BucketCounts: Sendable, Equatable {
    private var bounds: [Double]
    private var counts: [Int]

    /// No observations.
    public init() { (bounds, counts) = ([], []) }

    init(_ bounds: [Double], _ counts: [Int]) { (self.bounds, self.counts) = (bounds, counts) }

    /// The observations since `former`.
    public static func - (later: Self, former: Self) -> Self {
        guard former.counts.count == later.counts.count else { return later }
        // Mostly there are none: it is asked every few seconds.
        guard later.counts != former.counts else { return Self() }
        return Self(later.bounds, zip(later.counts, former.counts).map { max(0, $0 - $1) })
    }

    /// The value that this share of the observations does not exceed, 0 ... 1. Interpolated within its bucket; beyond the
    /// last bound, that bound. Nil without observations.
    public func quantile(_ share: Double) -> Double? {
        let rank = share * Double(counts.reduce(0, +))
        guard rank > 0 else { return nil }
        var before = 0.0
        for (index, bound) in bounds.enumerated() {
            let count = Double(counts[index])
            if before + count >= rank {
                let lower = index == 0 ? 0 : bounds[index - 1]
                return lower + (bound - lower) * (rank - before) / count
            }
            before += count
        }
        return bounds.last
    }
}
