import PosternCore
import PosternHTTP
import PosternStore
import Synchronization

/// The holder of a key, as long as the key is configured. Any thread.
final class Caller: Sendable {
    let key: APIKey
    private let lastUsed = Atomic<Int64>(0)
    private let buckets: Mutex<Buckets>
    let isLimited: Bool
    /// See `Fairness`.
    let turn: Int64

    private struct Buckets {
        var requests: TokenBucket?
        var messages: TokenBucket?
    }

    init(_ key: APIKey, at now: MonotonicInstant) {
        self.key = key
        turn = Fairness.turn(ofCaller: key.name)
        let limits = key.limits
        func bucket(_ rate: Double) -> TokenBucket? {
            rate > 0 ? TokenBucket(rate: rate, burst: limits.burst, at: now) : nil
        }
        let buckets = Buckets(requests: bucket(limits.requestsPerSecond), messages: bucket(limits.messagesPerSecond))
        isLimited = buckets.requests != nil || buckets.messages != nil
        self.buckets = Mutex(buckets)
    }

    /// Nil if it was not used in this run.
    var lastUsedAt: Timestamp? {
        let milliseconds = lastUsed.load(ordering: .relaxed)
        return milliseconds > 0 ? Timestamp(milliseconds: milliseconds) : nil
    }

    /// Many requests arrive within a millisecond. Most find the time unchanged and do not write, so the cache line
    /// stays shared.
    func used(at now: Timestamp) {
        guard lastUsed.load(ordering: .relaxed) != now.milliseconds else { return }
        lastUsed.store(now.milliseconds, ordering: .relaxed)
    }

    // MARK: What it may do

    /// Whether it may know of this upstream.
    func mayUse(_ upstream: UpstreamName) -> Bool { key.upstreams?.contains(upstream) ?? true }

    // MARK: Limits

    /// Counts a request. Returns how long to wait if the request exceeds the limit.
    func takeRequest(at now: @autoclosure () -> MonotonicInstant) -> Duration? {
        isLimited ? buckets.withLock { $0.requests?.take(1, at: now()) } : nil
    }

    /// Counts messages. Returns how long to wait if they exceed the limit.
    func takeMessages(_ count: Int, at now: @autoclosure () -> MonotonicInstant) -> Duration? {
        isLimited ? buckets.withLock { $0.messages?.take(count, at: now()) } : nil
    }

    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10), which every response to a limited
    /// key has.
    var limitHeaders: [(name: String, value: String)] {
        guard isLimited else { return [] }
        let (requests, messages) = buckets.withLock { ($0.requests, $0.messages) }
        let known = [("requests", requests), ("messages", messages)].compactMap { name, bucket in
            bucket.map { (name, $0) }
        }
        let policies = known.map { "\"\($0)\";q=\(Int($1.capacity));w=\(Self.wholeSeconds($1.window))" }
        let states = known.map { "\"\($0)\";r=\($1.remaining);t=\(Self.wholeSeconds($1.untilFull))" }
        return [
            ("RateLimit-Policy", policies.joined(separator: ", ")), ("RateLimit", states.joined(separator: ", ")),
        ]
    }

    /// Rounded up, and at least 1: a second too early would only be refused again.
    static func wholeSeconds(_ duration: Duration) -> Int { max(1, Int((duration.wholeMilliseconds + 999) / 1000)) }
}
