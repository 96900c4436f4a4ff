public import PosternCore
public import PosternUpstream
import Synchronization

/// The queue of one upstream as everything sees it that writes to the store: appends, settlements, callbacks, steering
/// and maintenance. It exists whether a worker sends from the queue or not; what is being sent is known only to the
/// `UpstreamQueue` of a process that has adopted it.
public final class QueueTarget: Sendable {
    public let name: UpstreamName
    /// The number in message ids and table names.
    public let number: UpstreamNumber
    /// Whether its messages are not delivered, because its upstream is disabled or no longer configured.
    let isDisabled: Bool
    /// Whether its type validates messages a second time when they are stored.
    let validatesAgainstState: Bool
    /// Whether messages that are accepted together may share a row. Separate lanes are found by the rows of their messages,
    /// and a second validation may ask for those.
    let mayUseBlocks: Bool
    /// Whether a request has messages of one kind only.
    let sendsKindsApart: Bool
    /// Whether the store has what turns need: then a message of a lane takes the turn of those of its lane that are queued.
    private let turns: Atomic<Bool>
    private let current: Mutex<Settings>

    /// What a reload of the configuration replaces.
    private struct Settings {
        var upstream: AnyUpstream
        var cap: QueueCap
        var collecting = Collecting()
        var fairness: Fairness?
    }

    /// How messages are collected into batches, and when they expire.
    struct Collecting {
        /// The limits of a batch.
        var limits = BatchLimits(maxMessages: 1, maxBytes: 1)
        /// How long messages are collected before a batch that is not full is sent.
        var wait = Duration.zero
        /// The age at which messages expire, whatever a worker does; zero means never.
        var expireAfter = Duration.zero
    }

    init(_ upstream: AnyUpstream, number: UpstreamNumber, cap: QueueCap, isDisabled: Bool, hasTurns: Bool) {
        name = upstream.name
        self.number = number
        self.isDisabled = isDisabled
        validatesAgainstState = upstream.validatesAgainstState
        mayUseBlocks = upstream.traits.laneRule == .acrossLanes && !upstream.validatesAgainstState
        sendsKindsApart = upstream.traits.sendsKindsApart
        turns = Atomic(hasTurns)
        current = Mutex(Settings(upstream: upstream, cap: cap))
    }

    /// The upstream; replaced when the configuration is reloaded (`Outbox.replace`).
    public internal(set) var upstream: AnyUpstream {
        get { current.withLock { $0.upstream } }
        set { current.withLock { $0.upstream = newValue } }
    }

    /// Checked when messages are stored. Replaced when the configuration is reloaded (`Outbox.setCap`).
    public internal(set) var cap: QueueCap {
        get { current.withLock { $0.cap } }
        set { current.withLock { $0.cap = newValue } }
    }

    /// How messages take turns; nil if they do not. See `Outbox.share`.
    public internal(set) var fairness: Fairness? {
        get { current.withLock { $0.fairness } }
        set { current.withLock { $0.fairness = newValue } }
    }

    /// Changed on the writer's thread.
    var hasTurns: Bool {
        get { turns.load(ordering: .relaxed) }
        set { turns.store(newValue, ordering: .relaxed) }
    }

    /// See `collect`; before its first call, nothing is collected, and nothing expires by age.
    var collecting: Collecting { current.withLock { $0.collecting } }

    /// Changes how messages are collected into batches of at most `limits`, for as long as `wait`, and at which age they
    /// expire, whether a worker sends from the queue or not. Zero as the age means never.
    public func collect(upTo limits: BatchLimits, for wait: Duration, expireAfter: Duration) {
        current.withLock { $0.collecting = .init(limits: limits, wait: wait, expireAfter: expireAfter) }
    }

    /// The limits of one request.
    public var limits: BatchLimits { collecting.limits }
}
