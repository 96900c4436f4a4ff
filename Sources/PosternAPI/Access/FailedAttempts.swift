import Glibc
import PosternCore
import PosternHTTP

/// How long failed authentications of an address are delayed. Time is an argument.
///
/// The first few cost nothing, so that a client whose key was just replaced is not slowed down. Beyond them the delay
/// doubles with each failure. The count of an address halves every `halfLife`.
struct FailedAttempts {
    private struct Entry {
        var count: Double
        var updatedAt: MonotonicInstant
    }
    private var entries: [PeerAddress: Entry] = [:]

    static let halfLife = Duration.seconds(10)
    /// Failures without a delay.
    static let free = 10.0
    static let shortest = Duration.milliseconds(50)
    static let longest = Duration.seconds(2)
    /// The maximum number of addresses that are remembered. One more clears all of them; a client that needs many tries
    /// gains little.
    static let most = 10_000

    /// Counts a failure. Returns the delay of its response.
    mutating func failed(from address: PeerAddress, at now: MonotonicInstant) -> Duration {
        if entries.count >= Self.most, entries[address] == nil { entries = [:] }
        var entry = entries[address] ?? Entry(count: 0, updatedAt: now)
        let halvings = max(0, (now - entry.updatedAt).inSeconds) / Self.halfLife.inSeconds
        entry.count = halvings > 60 ? 1 : entry.count / exp2(halvings) + 1
        entry.updatedAt = now
        entries[address] = entry
        guard entry.count > Self.free else { return .zero }
        let doublings = min(20, entry.count - Self.free - 1)
        return min(Self.longest, Self.shortest * exp2(doublings))
    }
}
