import Glibc
import PosternCore

extension MonotonicInstant {
    /// By the clock that also runs while the machine sleeps. Leases go by it.
    static var sinceBoot: Self {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return Self(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
    }
}

/// Until when a node may act as the owner of the store, by its own clock. Others wait for a whole lease since they first saw a
/// beat, so they begin after this has ended, whatever their clocks show.
struct LeaseClock: Equatable, Sendable {
    /// The part of a lease that the owner uses. The rest is for what is under way when it ends.
    static let share = 0.8

    let lease: Duration
    private(set) var end = MonotonicInstant.distantPast

    init(lease: Duration) { self.lease = lease }

    /// A beat was stored.
    ///
    /// - Parameter start: The instant before it was sent.
    mutating func renew(since start: MonotonicInstant) { end = max(end, start + lease * Self.share) }

    func isValid(at instant: MonotonicInstant) -> Bool { instant < end }
}

/// What a node has seen of the beats of another one, by its own clock.
struct ObservedNode: Equatable, Sendable {
    let lease: Duration
    private var beat: Int64?
    /// The instant after it was first seen.
    private var since = MonotonicInstant.distantPast
    private var lastLook = MonotonicInstant.distantPast
    /// Whether the beat has changed since the first look.
    private(set) var isAlive = false

    init(lease: Duration) { self.lease = lease }

    /// Whether it has beaten not long ago, so that it is likely to live.
    func isLively(at instant: MonotonicInstant) -> Bool { instant - since < lease * 0.6 }

    /// Returns whether the beat has been the same for a whole lease, so that the node is to be replaced.
    ///
    /// While the observer could not look, the other may have been unable to beat for the same reason. Then it gets a whole lease
    /// again.
    ///
    /// - Parameters:
    ///   - start: The instant before the database was asked.
    ///   - end: The instant after it has answered.
    mutating func see(_ beat: Int64, from start: MonotonicInstant, to end: MonotonicInstant) -> Bool {
        let couldLook = start - lastLook <= lease / 2
        lastLook = end
        guard let known = self.beat, known == beat, couldLook else {
            if let known = self.beat, known != beat { isAlive = true }
            (self.beat, since) = (beat, end)
            return false
        }
        return start - since >= lease
    }
}
