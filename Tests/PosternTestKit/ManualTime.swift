public import PosternCore
import Synchronization

/// Time that stands still until a test moves it.
public final class ManualTime: TimeSource {
    private let state: Mutex<(now: Timestamp, instant: MonotonicInstant)>

    /// Starts at 2026-01-01T00:00:00Z, one hour after the machine's start.
    public init(now: Timestamp = Timestamp(milliseconds: 1_767_225_600_000)) {
        state = Mutex((now, MonotonicInstant(nanoseconds: 3_600_000_000_000)))
    }

    public var now: Timestamp { state.withLock { $0.now } }
    public var instant: MonotonicInstant { state.withLock { $0.instant } }

    public func advance(by span: Duration) {
        state.withLock { $0 = ($0.now + span, $0.instant + span) }
    }
}
