import Glibc

/// A point on a clock that only goes forward, in nanoseconds; unlike wall-clock time it cannot be set.
public struct MonotonicInstant: Hashable, Comparable, Sendable {
    /// Since an unspecified start; only differences have a meaning.
    public let nanoseconds: Int64
    @inlinable public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

    /// Before and after all that a clock shows.
    public static let distantPast = Self(nanoseconds: 0)
    public static let distantFuture = Self(nanoseconds: .max)

    @inlinable public static func < (left: Self, right: Self) -> Bool { left.nanoseconds < right.nanoseconds }

    /// What is further away than the clock can show, 292 years, is `distantFuture`: a caller may ask for any year.
    public static func + (instant: Self, span: Duration) -> Self {
        Self(nanoseconds: Int64(clamping: Int128(instant.nanoseconds) + span.attoseconds / 1_000_000_000))
    }

    /// Negative if `later` is earlier.
    public static func - (later: Self, earlier: Self) -> Duration {
        .nanoseconds(later.nanoseconds - earlier.nanoseconds)
    }
}

extension Duration {
    /// Milliseconds for `poll`, rounded up, so that it does not return before the instant.
    public var pollMilliseconds: Int32 {
        let (seconds, attoseconds) = components
        let milliseconds = seconds * 1000 + (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000
        return Int32(clamping: max(0, milliseconds))
    }
}

/// A source of time. Decisions take times as parameters; only the code that drives them reads a `TimeSource`.
public protocol TimeSource: Sendable {
    /// Wall-clock time, for what is shown, stored or sent.
    var now: Timestamp { get }
    /// The monotonic clock, by which waits and durations are measured.
    var instant: MonotonicInstant { get }
}

/// The machine's clocks.
public struct SystemTime: TimeSource {
    public init() {}

    public var now: Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000)
    }

    public var instant: MonotonicInstant {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return MonotonicInstant(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
    }
}
