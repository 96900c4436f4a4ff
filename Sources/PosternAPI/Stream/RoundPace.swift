import PosternCore

/// When the next round of events may begin.
///
/// A round begins when listeners are woken, and has been carried out when nine tenths of them have been served, so that
/// it does not last longer because of a few that read slowly. The pause after it is 50 times as long as that took, and
/// as it took to find those to wake, so that all listeners together get at most two percent of the time. If the gateway
/// is busy, when each round delays those who write, it is also at least 5 ms for each listener: from a load of a
/// quarter of the processors on, and less below in proportion. Ten listeners get the shortest pause in any case. A
/// round of 1000 takes 3 to 10 ms, so the pause is at most half a second while the gateway does little, 2 s at a load
/// of 0.1, and 5 s under full load.
struct RoundPace {
    /// The least time from one round to the next.
    static let shortest = Duration.milliseconds(50)
    /// The longest pause for each listener of a round: that of a busy gateway, and a machine that stops for a moment
    /// costs a few listeners little.
    static let longestForEach = Duration.milliseconds(5)
    /// The longest pause for however many.
    static let longest = Duration.seconds(10)

    /// Counts the rounds.
    private(set) var round = 0
    /// When the next round may begin; while a round is being carried out, the earliest time at which that is possible.
    private(set) var next = MonotonicInstant.distantPast
    private var began = MonotonicInstant.distantPast
    private var busySeconds = 0.0
    /// The share of the processors that the gateway used between the last two rounds, from 0 to 1.
    private var load = 0.0
    private var woken = 0
    /// What the search for the listeners of the round adds to the pause.
    private var searchPause = Duration.zero
    /// How many have to be served until the round has been carried out.
    private var unserved = 0

    /// How long the next round has to wait at least; nil if it may begin.
    func delay(at now: MonotonicInstant) -> Duration? {
        let due = unserved == 0 ? next : max(next, min(now + Self.shortest, began + longestPause))
        return now < due ? due - now : nil
    }

    /// A round begins with `listeners` to serve.
    ///
    /// - Parameters:
    ///   - all: How many listeners there are.
    ///   - search: How long it took to find those to serve among all.
    ///   - busySeconds: The time for which the gateway would have used all processors of the machine, since it started.
    mutating func begin(
        waking listeners: Int, of all: Int = 0, foundIn search: Duration = .zero, at now: MonotonicInstant,
        busySeconds: Double
    ) {
        load = min(max(0, (busySeconds - self.busySeconds) / max(0.001, (now - began).inSeconds)), 1)
        self.busySeconds = busySeconds
        round += 1
        (began, woken, unserved) = (now, listeners, listeners - listeners / 10)
        searchPause = min(search * 50, Self.longestPause(for: all))
        next = now + max(Self.shortest, searchPause)
    }

    /// A listener of round `round` has been served, or has left.
    mutating func serveOne(of round: Int, at now: MonotonicInstant) {
        guard round == self.round, unserved > 0 else { return }
        unserved -= 1
        guard unserved == 0 else { return }
        let cost = min((now - began) * 50, longestPause) + searchPause
        let pause = max(Self.shortest, cost, longestPause * min(1, 4 * load))
        next = now + min(pause, Self.longest)
    }

    private var longestPause: Duration { Self.longestPause(for: woken) }

    private static func longestPause(for listeners: Int) -> Duration {
        max(shortest, min(longestForEach * listeners, longest))
    }
}
