public import Logging
public import PosternCore
public import PosternMetrics
public import PosternStore
import Synchronization

/// Moves one upstream's messages from its queue to the upstream: claims, sends, judges, settles.
///
/// It has a thread of its own, so that neither a slow upstream nor a busy one is in another's way. All that happens to
/// it comes through its inbox. Any thread may call the methods here.
public final class UpstreamWorker: Sendable {
    public let queue: UpstreamQueue
    public var name: UpstreamName { queue.name }

    private let inbox: Inbox<WorkerEvent>
    private let shared: WorkerShared
    private let loop: WorkerLoop
    private let thread = Mutex<OwnThread?>(nil)
    private let time: any TimeSource

    public struct Parts: Sendable {
        public var outbox: Outbox
        public var transport: any Transport
        public var time: any TimeSource
        public var metrics: Metrics
        public var logger: Logger
        /// For the jitter of pauses, 0 ... 1.
        public var random: @Sendable () -> Double

        public init(
            outbox: Outbox, transport: any Transport, time: any TimeSource, metrics: Metrics, logger: Logger,
            random: @escaping @Sendable () -> Double = { .random(in: 0...1) }
        ) {
            self.outbox = outbox
            self.transport = transport
            self.time = time
            self.metrics = metrics
            self.logger = logger
            self.random = random
        }
    }

    /// A worker that goes on as the former run left off: paused, or with its circuit open.
    public init(queue: UpstreamQueue, settings: DeliverySettings, parts: Parts) throws(StoreError) {
        self.queue = queue
        time = parts.time
        inbox = Inbox()
        shared = WorkerShared(at: parts.time.instant)
        loop = try WorkerLoop(queue: queue, settings: settings, parts: parts, inbox: inbox, shared: shared)
    }

    /// Starts the thread.
    public func start() {
        loop.listen()
        thread.withLock { thread in
            thread = OwnThread(name: "to-\(name)") { [loop] in loop.run() }
        }
    }

    public var snapshot: UpstreamSnapshot { shared.snapshot.withLock { $0 } }

    /// How long ago the loop last turned. It turns at least every few seconds; much more means that it hangs.
    public func sinceLastTurn(at instant: MonotonicInstant) -> Duration { shared.sinceLastTurn(at: instant) }

    /// Keeps accepting, stops sending. What is under way ends.
    public func pause() { inbox.put(.pause) }
    public func resume() { inbox.put(.resume) }
    /// Sends now what waits to collect, for a retry or for the circuit.
    public func flush() { inbox.put(.flush) }
    public func adopt(_ settings: DeliverySettings) { inbox.put(.adopt(settings)) }

    /// Claims no more; requests under way may end. `finishStopping` waits for them.
    public func beginStopping() { inbox.put(.stop) }

    /// Waits for requests under way until `deadline`. The transport's own stop cancels what is left, so stop it next
    /// and call `join` then.
    public func waitUntilIdle(deadline: MonotonicInstant) {
        while time.instant < deadline, shared.unsettled.load(ordering: .acquiring) > 0 {
            _ = shared.idle.takeAll(waitingUntil: min(deadline, time.instant + .milliseconds(50)))
        }
    }

    /// Ends the thread; every transfer has been answered or cancelled by then.
    public func join() {
        inbox.put(.end)
        thread.withLock { $0 }?.join()
    }

    // MARK: For tests, which turn the loop by hand instead of starting it

    func turn() -> MonotonicInstant { loop.turn(loop.takeEvents()) }
    func turn(waitingUntil deadline: MonotonicInstant) -> MonotonicInstant {
        loop.turn(loop.takeEvents(waitingUntil: deadline))
    }
}

/// What a worker is told.
enum WorkerEvent: Sendable {
    case answered(Flight, TransferResult)
    case settled(Flight, Result<Void, StoreError>)
    case expired
    case tokenAnswered(TransferResult, startedAt: MonotonicInstant)
    case pause, resume, flush, stop, end
    case adopt(DeliverySettings)
}

/// One request under way.
struct Flight: Sendable {
    let batch: Batch
    let claim: Claim
    let startedAt: MonotonicInstant
    let sentAt: Timestamp
    /// The token it went out under.
    let generation: Int
    /// What follows once the settlement is on disk.
    var after: AfterSettlement = .init()
    var settlement: Settlement?
}

/// What a settlement means for the queue in memory.
struct AfterSettlement: Sendable {
    var release: [Message] = []
    /// Each group goes out again as it is.
    var again: [(messages: [Message], dueAt: Timestamp, history: BatchHistory)] = []
    var giveBack = false
}

/// What the loop shows to other threads.
final class WorkerShared: Sendable {
    let snapshot = Mutex(UpstreamSnapshot())
    let unsettled = Atomic<Int>(0)
    let idle = Inbox<Void>()
    private let lastTurn: Atomic<Int64>

    init(at instant: MonotonicInstant) { lastTurn = Atomic(instant.nanoseconds) }

    func turned(at instant: MonotonicInstant) { lastTurn.store(instant.nanoseconds, ordering: .relaxed) }
    func sinceLastTurn(at instant: MonotonicInstant) -> Duration {
        instant - MonotonicInstant(nanoseconds: lastTurn.load(ordering: .relaxed))
    }
}
