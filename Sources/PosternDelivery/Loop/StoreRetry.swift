import PosternCore

/// When a worker asks the store again that could not be read or written.
///
/// The first retry comes after half a second, and each one that fails doubles the time: 0.5, 1, 2, 4, 5, 5 … seconds. All
/// failures before the next retry is due belong to the same round.
struct StoreRetry {
    private static let first = Duration.milliseconds(500)
    static let longest = Duration.seconds(5)

    /// When the next round is due; nil if the store succeeded last.
    private(set) var at: MonotonicInstant?
    private var delay = Duration.zero

    func isWaiting(at now: MonotonicInstant) -> Bool { at.map { now < $0 } ?? false }

    /// Records a failure. Returns whether it is the first one since the store succeeded.
    mutating func failed(at now: MonotonicInstant) -> Bool {
        guard !isWaiting(at: now) else { return false }
        let isFirst = at == nil
        delay = isFirst ? Self.first : min(delay * 2, Self.longest)
        at = now + delay
        return isFirst
    }

    /// Records a success. Returns whether the store had failed before.
    mutating func succeeded() -> Bool {
        defer { at = nil }
        return at != nil
    }
}
