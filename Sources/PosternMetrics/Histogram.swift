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

    /// Counts a value, in the unit of the bounds.
    public func observe(_ value: Double) {
        var index = 0
        while index < bounds.count, value > bounds[index] { index += 1 }
        buckets[index].add()
        sumMillionths.wrappingAdd(Int(value * 1_000_000), ordering: .relaxed)
    }

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
