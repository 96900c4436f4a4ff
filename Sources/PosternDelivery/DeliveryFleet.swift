public import PosternCore
public import PosternStore

/// All workers of a gateway: started together, stopped in order, watched. Any thread may call.
public final class DeliveryFleet: Sendable {
    public let workers: [UpstreamWorker]
    private let outbox: Outbox
    private let time: any TimeSource

    /// A thread that has not turned for so long hangs.
    public static let stallsAfter = Duration.seconds(15)
    /// What is under way after the transport has stopped is on its way to the disk: that does not take long.
    private static let recordingTime = Duration.seconds(5)

    public init(_ workers: [UpstreamWorker], outbox: Outbox, time: any TimeSource) {
        self.workers = workers
        self.outbox = outbox
        self.time = time
    }

    public func start() { for worker in workers { worker.start() } }

    public func worker(named name: UpstreamName) -> UpstreamWorker? { workers.first { $0.name == name } }

    // MARK: Stopping

    /// No worker claims any more; requests under way may end.
    public func beginStopping() { for worker in workers { worker.beginStopping() } }

    /// Lets requests under way end until `deadline`, cancels the others by `stopTransport`, which returns when all have
    /// been answered, gives their messages back, and ends the threads. The store is closed after this.
    public func stop(deadline: MonotonicInstant, stopTransport: () -> Void) {
        beginStopping()
        for worker in workers { worker.waitUntilIdle(deadline: deadline) }
        stopTransport()
        let end = time.instant + Self.recordingTime
        for worker in workers { worker.waitUntilIdle(deadline: end) }
        for worker in workers { worker.join() }
    }

    // MARK: Watching

    /// The threads that hang: names of upstreams, and `writer` for the outbox writer.
    public func stalledWorkers(at instant: MonotonicInstant) -> [String] {
        let workers = workers.filter { $0.sinceLastTurn(at: instant) > Self.stallsAfter }.map(\.name.description)
        return workers + (outbox.sinceWriterTurned(at: instant) > Self.stallsAfter ? ["writer"] : [])
    }
}
