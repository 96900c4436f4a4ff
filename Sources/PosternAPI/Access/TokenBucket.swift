import PosternCore

/// A rate limit that allows short bursts. Time is an argument.
///
/// The bucket holds at most `capacity` units and gains `rate` of them per second. A request takes as many units as it
/// costs. One that costs more than the bucket can hold passes when the bucket is full, and leaves a debt.
struct TokenBucket: Equatable {
    /// Units per second, above 0.
    let rate: Double
    /// The most units that the bucket can hold, at least 1.
    let capacity: Double
    private var level: Double
    private var updatedAt: MonotonicInstant

    /// A full bucket. A `burst` of 0 means what one second adds.
    init(rate: Double, burst: Int, at now: MonotonicInstant) {
        self.rate = rate
        capacity = max(1, burst > 0 ? Double(burst) : rate)
        level = capacity
        updatedAt = now
    }

    /// Takes `cost` units. If there are too few it takes none, and returns how long it is until there will be enough.
    mutating func take(_ cost: Int, at now: MonotonicInstant) -> Duration? {
        refill(at: now)
        // What rounding has lost must not cost another round trip.
        let missing = min(Double(cost), capacity) - level
        guard missing <= 1e-6 else { return .fromSeconds(missing / rate) }
        level -= Double(cost)
        return nil
    }

    private mutating func refill(at now: MonotonicInstant) {
        level = min(capacity, level + max(0, (now - updatedAt).inSeconds) * rate)
        updatedAt = now
    }

    /// Whole units that are left.
    var remaining: Int { max(0, Int(level + 1e-6)) }
    /// The time until the bucket is full again.
    var untilFull: Duration { .fromSeconds((capacity - level) / rate) }
    /// The time until an empty bucket is full.
    var window: Duration { .fromSeconds(capacity / rate) }
}
