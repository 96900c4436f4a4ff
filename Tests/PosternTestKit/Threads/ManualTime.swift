public import PosternCore
import Synchronization

/// A clock that only a test advances.
public final class ManualTime: TimeSource {
    private let state: Mutex<(now: Timestamp, instant: MonotonicInstant)>

    /// Starts at 2026-01-01T00:00:00Z. The monotonic clock is a day ahead of the machine's, so that a thread that
    /// waits for a deadline of this one really waits.
    public init(
        now: Timestamp = Timestamp(milliseconds: 1_767_225_600_000),
        instant: MonotonicInstant = SystemTime().instant + .seconds(86400)
    ) {
        state = Mutex((now, instant))
    }

    public var now: Timestamp { state.withLock { $0.now } }
    public var instant: MonotonicInstant { state.withLock { $0.instant } }

    public func advance(by span: Duration) {
        state.withLock { $0 = ($0.now + span, $0.instant + span) }
    }

    /// Sets the wall clock; the monotonic one does not change.
    public func setWallClock(back span: Duration) {
        state.withLock { $0.now = $0.now - span }
    }
}
