public import PosternCore
public import PosternStore
public import PosternThreads
import Synchronization

/// All workers of a gateway: started together, stopped in order, watched. Any thread may call, but only one at a time may
/// add and retire workers.
public final class WorkerGroup: Sendable {
    private let members: Mutex<Members>
    private let outbox: Outbox
    private let time: any TimeSource

    /// A thread that has not turned for this long is considered stalled.
    static let stallsAfter = Duration.seconds(15)
    /// After the transport has stopped, results only have to be written to the disk, which does not take long.
    private static let recordingTime = Duration.seconds(5)

    private struct Members {
        var workers: [UpstreamWorker]
        /// Workers whose upstream was removed, while their requests end.
        var retired: [UpstreamWorker] = []
    }

    public init(_ workers: [UpstreamWorker], outbox: Outbox, time: any TimeSource) {
        members = Mutex(Members(workers: workers))
        self.outbox = outbox
        self.time = time
    }

    /// In the order in which they were given.
    public var workers: [UpstreamWorker] { members.withLock(\.workers) }

    /// Starts one thread per worker. Call once.
    public func start() throws(SystemLimitError) { for worker in workers { try worker.start() } }

    /// Nil if the upstream is disabled or not configured, or if its queue is not adopted.
    func worker(named name: UpstreamName) -> UpstreamWorker? { workers.first { $0.name == name } }

    // MARK: Changing while the gateway runs

    /// Starts the thread of the worker. From then on, the group stops it with the others.
    public func add(_ worker: UpstreamWorker) throws(SystemLimitError) {
        try worker.start()
        members.withLock { $0.workers.append(worker) }
    }

    /// Stops claiming for an upstream that was removed. Its requests in flight may finish.
    public func retire(_ name: UpstreamName) {
        let worker = members.withLock { members -> UpstreamWorker? in
            guard let index = members.workers.firstIndex(where: { $0.name == name }) else { return nil }
            let worker = members.workers.remove(at: index)
            members.retired.append(worker)
            return worker
        }
        worker?.beginStopping()
    }

    /// Ends the threads of retired workers whose requests have ended, and drops their queues. Unless its upstream is still
    /// `configured`, a queue is then kept as that of an upstream that is not. Call it again if it throws: a worker whose
    /// queue could not be stored as such is still retired, and the others have ended.
    public func endRetired(configured: [UpstreamName] = []) throws(StoreError) {
        var failure: StoreError?
        for worker in members.withLock({ $0.retired.filter(\.isIdle) }) {
            // Both do nothing in a second call.
            worker.join()
            outbox.drop(worker.queue)
            do throws(StoreError) {
                if !configured.contains(worker.name) { try outbox.disable(worker.queue.target) }
                members.withLock { members in members.retired.removeAll { $0 === worker } }
            } catch {
                failure = failure ?? error
            }
        }
        if let failure { throw failure }
    }

    /// Ends the thread of a retired worker although its requests may be in flight, and drops its queue: what they carried
    /// is in doubt for the next owner. The caller aborts them before the queue is adopted again.
    public func abandon(_ name: UpstreamName) {
        let worker = members.withLock { members in
            members.retired.firstIndex { $0.name == name }.map { members.retired.remove(at: $0) }
        }
        guard let worker else { return }
        worker.join()
        outbox.drop(worker.queue)
    }

    /// Whether the worker of an upstream that was removed has not ended yet.
    public func isRetiring(_ name: UpstreamName) -> Bool {
        members.withLock { $0.retired.contains { $0.name == name } }
    }

    // MARK: Stopping

    /// Stops claiming in all workers. Requests in flight may finish.
    public func beginStopping() { for worker in all { worker.beginStopping() } }

    /// The number of messages that are in flight.
    public var inFlight: Int { all.reduce(0) { $0 + $1.snapshot.inFlight } }

    private var all: [UpstreamWorker] { members.withLock { $0.workers + $0.retired } }

    /// Lets requests in flight finish until `deadline`, and cancels the others by `stopTransport`, which returns when
    /// all have completed. Then returns their messages to the queue and ends the threads. The store is closed after
    /// this.
    public func stop(deadline: MonotonicInstant, stopTransport: () -> Void) {
        beginStopping()
        for worker in all { worker.waitUntilIdle(deadline: deadline) }
        stopTransport()
        let end = time.instant + Self.recordingTime
        for worker in all { worker.waitUntilIdle(deadline: end) }
        for worker in all { worker.join() }
    }

    // MARK: Watching

    /// The threads that are stalled: names of upstreams, and `writer` for the outbox writer.
    public func stalledWorkers(at instant: MonotonicInstant) -> [String] {
        let workers = workers.filter { $0.sinceLastTurn(at: instant) > Self.stallsAfter }.map(\.name.description)
        return workers + (outbox.sinceWriterTurned(at: instant) > Self.stallsAfter ? ["writer"] : [])
    }
}
