public import Logging
public import PosternCore
public import PosternMetrics
public import PosternStore
public import PosternThreads
public import PosternUpstream
import Synchronization

/// Moves one upstream's messages from its queue to the upstream: claims, sends, judges, settles.
///
/// It has a thread of its own, so that neither a slow nor a busy upstream delays another one. All events reach it
/// through its inbox. Any thread may call the methods here.
public final class UpstreamWorker: Sendable {
    /// The queue that it empties; no other worker claims from it.
    public let queue: UpstreamQueue
    let client: UpstreamClient
    public var name: UpstreamName { queue.name }

    private let inbox = Inbox<WorkerEvent>()
    private let status: WorkerStatus
    private let loop: WorkerLoop
    private let threads: any Threads
    private let running = Mutex<(any RunningLoop)?>(nil)
    /// Whether the end has been put into the inbox. Nothing follows it there, so that what was taken is carried out.
    private let isEnding = Mutex(false)
    private let time: any TimeSource

    /// What all workers of a gateway share.
    public struct Dependencies: Sendable {
        public var outbox: Outbox
        var transport: any Transport
        var time: any TimeSource
        var metrics: Metrics
        var logger: Logger
        /// For the jitter of pauses, 0 ... 1.
        var random: @Sendable () -> Double

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

    /// A worker that continues in the state of the previous run: paused, or with its circuit open.
    /// `client`: nil for one of its own.
    public init(
        queue: UpstreamQueue, client: UpstreamClient? = nil, settings: DeliverySettings, dependencies: Dependencies
    ) throws(StoreError) {
        self.queue = queue
        let client = client ?? UpstreamClient(queue.name, settings, dependencies)
        self.client = client
        time = dependencies.time
        threads = dependencies.outbox.threads
        status = WorkerStatus(at: dependencies.time.instant)
        loop = try WorkerLoop(
            queue: queue, client: client, settings: settings, dependencies: dependencies, inbox: inbox, status: status)
    }

    /// Starts delivering, on the threads of the outbox. Call once.
    public func start() throws(SystemLimitError) {
        let started = try threads.start(loop)
        running.withLock { running in
            precondition(running == nil, "a worker starts once")
            running = started
        }
    }

    /// As of the end of the last turn. Any thread.
    public var snapshot: UpstreamSnapshot { status.snapshot }

    /// How long ago the loop last turned. It turns at least every few seconds; a much longer time means that it is
    /// stalled.
    func sinceLastTurn(at instant: MonotonicInstant) -> Duration { status.sinceLastTurn(at: instant) }

    /// Hands the loop what is to be done before it ends. Returns false if it has ended, or is about to.
    private func put(_ event: WorkerEvent) -> Bool {
        isEnding.withLock { isEnding in
            if !isEnding { inbox.put(event) }
            return !isEnding
        }
    }

    /// Carries out the request of an operator. Returns false if the worker does not, because it has ended, or is about to.
    /// `order`: who pauses, and when.
    func take(
        _ action: UpstreamAction, _ order: Pause, completion: @escaping @Sendable (FlushReport?) -> Void
    ) -> Bool {
        switch action {
        case .pause: pause(order)
        case .resume: resume()
        case .flush: flush(completion: completion)
        }
    }

    /// Stops sending; messages are still accepted. Requests in flight finish. The result: see `take`.
    @discardableResult public func pause(_ order: Pause = Pause()) -> Bool { put(.pause(order)) }
    /// Ends a pause, and probes now what waits for a circuit or an operator.
    @discardableResult func resume() -> Bool {
        client.renewConnections()
        return put(.resume)
    }
    /// Sends now what waits to be collected, for a schedule, for a retry, or for the circuit. `completion` is called on
    /// the worker's thread when everything that could be sent has been sent, or with nil when the worker ends before that.
    @discardableResult func flush(
        completion: @escaping @Sendable (FlushReport?) -> Void = { _ in }
    ) -> Bool {
        client.renewConnections()
        return put(.flush(completion))
    }

    /// Logs a notice in the response to a request of its client, unless it is the same as the last one.
    public func report(_ notice: UpstreamNotice) { _ = put(.noticed(notice)) }

    /// Continues with new settings. `upstream` replaces the current one, which has the same name and type: for example,
    /// other credentials or another URL.
    func apply(_ settings: DeliverySettings, upstream: (any Upstream)? = nil) {
        client.apply(settings)
        _ = put(.apply(settings, upstream: upstream.map { AnyUpstream($0) }))
    }

    // MARK: Stopping

    /// Stops claiming. Requests in flight may finish.
    public func beginStopping() { _ = put(.stop) }

    /// Whether it no longer claims, and nothing is in flight.
    var isIdle: Bool { status.isIdle }

    /// Waits until nothing is in flight, at most until `deadline`. Stopping the transport then cancels the rest.
    func waitUntilIdle(deadline: MonotonicInstant) {
        guard running.withLock({ $0 != nil }) else { return }
        status.waitUntilIdle(deadline: deadline, time: time, on: threads)
    }

    /// Ends the thread. Every transfer must have been completed or cancelled before.
    public func join() {
        isEnding.withLock { isEnding in
            if !isEnding { inbox.put(.end) }
            isEnding = true
        }
        running.withLock { $0.take() }?.join()
    }

    // MARK: For tests, which turn the loop by hand instead of starting it

    /// Batches whose result is not on disk yet.
    var unsettledBatches: Int { status.unsettledBatches }
    func turn() -> MonotonicInstant { loop.turn(inbox.takeAll()) }
}
