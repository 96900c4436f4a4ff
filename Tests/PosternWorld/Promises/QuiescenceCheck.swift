import PosternCore

/// A gateway that has nothing to do does nothing: its loops do not turn without end.
final class QuiescenceCheck {
    static let promise = "the gateway comes to rest"
    /// Turns of all loops within one span.
    private static let most = 200_000
    private static let span = Duration.seconds(600)
    private unowned let promises: Promises
    private var turns = 0
    private var endsAt = MonotonicInstant(nanoseconds: 0)

    init(_ promises: Promises) { self.promises = promises }

    func turned(at now: MonotonicInstant) {
        if now >= endsAt { (turns, endsAt) = (0, now + Self.span) }
        turns += 1
        if turns == Self.most { promises.fail(Self.promise, "\(turns) turns in ten minutes") }
    }
}
