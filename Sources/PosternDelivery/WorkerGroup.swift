public import PosternCore
public import PosternStore

/// All workers of a gateway: started together, stopped in order, watched. Any thread may call.
public final class WorkerGroup: Sendable {
    /// In the order in which they were given; never changed.
    public let workers: [UpstreamWorker]
    private let outbox: Outbox
    private let time: any TimeSource

    /// A thread that has not turned for this long is considered stalled.
    public static let stallsAfter = Duration.seconds(15)
    /// After the transport has stopped, results only have to be written to the disk, which does not take long.
    private static let recordingTime = Duration.seconds(5)

    public init(_ workers: [UpstreamWorker], outbox: Outbox, time: any TimeSource) {
        self.workers = workers
        self.outbox = outbox
        self.time = time
    }

    /// Starts one thread per worker. Call once.
    public func start() { for worker in workers { worker.start() } }

    /// Nil if the upstream is disabled or not configured.
    public func worker(named name: UpstreamName) -> UpstreamWorker? { workers.first { $0.name == name } }

    // MARK: Stopping

    /// Stops claiming in all workers. Requests in flight may finish.
    public func beginStopping() { for worker in workers { worker.beginStopping() } }

    /// Lets requests in flight finish until `deadline`, and cancels the others by `stopTransport`, which returns when
    /// all have completed. Then returns their messages to the queue and ends the threads. The store is closed after
    /// this.
    public func stop(deadline: MonotonicInstant, stopTransport: () -> Void) {
        beginStopping()
        for worker in workers { worker.waitUntilIdle(deadline: deadline) }
        stopTransport()
        let end = time.instant + Self.recordingTime
        for worker in workers { worker.waitUntilIdle(deadline: end) }
        for worker in workers { worker.join() }
    }

    // MARK: Watching

    /// The threads that are stalled: names of upstreams, and `writer` for the outbox writer.
    public func stalledWorkers(at instant: MonotonicInstant) -> [String] {
        let workers = workers.filter { $0.sinceLastTurn(at: instant) > Self.stallsAfter }.map(\.name.description)
        return workers + (outbox.sinceWriterTurned(at: instant) > Self.stallsAfter ? ["writer"] : [])
    }
}
