import PosternCore
import PosternHTTP
import PosternThreads
import Synchronization

/// Work for callers who have not proven who they are: checking a signature over a large body, inflating it.
///
/// No key is needed to cause it, so it must not hold up anything else. One job runs at a time, on a thread that does
/// nothing else. Addresses take turns, so that one that sends much waits only for itself. The bytes of the jobs that wait
/// or run are bounded for each route and each address. Any thread.
final class UnprovenWork: Sendable {
    /// Less is done at once: it costs little more than the request itself.
    static let smallBytes = 8 << 10

    struct Limits {
        let bytesPerRoute: Int
        let bytesPerAddress: Int

        /// Permits at least one body of the largest size, and at most an eighth of the memory for all bodies.
        init(maxBodyBytes: Int, memory: Int) {
            bytesPerRoute = max(maxBodyBytes, min(8 * maxBodyBytes, memory / 8))
            bytesPerAddress = max(maxBodyBytes, bytesPerRoute / 4)
        }
    }

    /// The route and the address that cause a job.
    struct Origin: Sendable {
        let route: String
        let address: PeerAddress
    }

    final class Job: Sendable {
        fileprivate let bytes: Int
        fileprivate let origin: Origin
        fileprivate let work: @Sendable (Job) -> Void
        private let wasCancelled = Atomic<Bool>(false)

        /// - Parameter work: Is called once if the job is started. If the job is cancelled, it has nothing to do.
        init(_ bytes: Int, for origin: Origin, _ work: @escaping @Sendable (Job) -> Void) {
            self.bytes = bytes
            self.origin = origin
            self.work = work
        }

        /// Whether its caller has hung up.
        var isCancelled: Bool { wasCancelled.load(ordering: .relaxed) }
        fileprivate func setCancelled() { wasCancelled.store(true, ordering: .relaxed) }
    }

    fileprivate struct State {
        /// The jobs of each address, in the order in which they are started.
        var waiting: [PeerAddress: [Job]] = [:]
        /// The addresses that have jobs waiting. The first one is next.
        var turns: [PeerAddress] = []
        var bytesOfRoutes: [String: Int] = [:]
        var bytesOfAddresses: [PeerAddress: Int] = [:]
    }

    private let limits: Limits
    private let executor: BlockingExecutor
    private let state = Mutex(State())

    init(_ limits: Limits, on threads: any Threads) throws(SystemLimitError) {
        self.limits = limits
        executor = try BlockingExecutor(name: "postern-proofs", atATime: 1, on: threads)
    }

    /// Returns whether there is room for the job. If so, it waits for its turn.
    func start(_ job: Job) -> Bool {
        guard state.withLock({ $0.add(job, limits) }) else { return false }
        executor.run { [self] in
            // One for each job. Those that were cancelled have ended already.
            guard let next = state.withLock({ $0.next() }) else { return }
            run(next)
        }
        return true
    }

    /// Ends a job that waits. One that runs notices it.
    func cancel(_ job: Job) {
        job.setCancelled()
        if state.withLock({ $0.take(job) }) { run(job) }
    }

    private func run(_ job: Job) {
        job.work(job)
        state.withLock { $0.end(job) }
    }

    /// Ends the thread once all jobs are done.
    func stop() { executor.stop() }

    /// The number of jobs that wait.
    var waiting: Int { state.withLock { $0.waiting.values.reduce(0) { $0 + $1.count } } }
}

extension UnprovenWork.State {
    fileprivate mutating func add(_ job: UnprovenWork.Job, _ limits: UnprovenWork.Limits) -> Bool {
        let (route, address) = (job.origin.route, job.origin.address)
        let (ofRoute, ofAddress) = (bytesOfRoutes[route, default: 0], bytesOfAddresses[address, default: 0])
        // One is taken in any case: the largest body of the route may be larger than that of others.
        guard ofRoute == 0 || ofRoute + job.bytes <= limits.bytesPerRoute,
            ofAddress == 0 || ofAddress + job.bytes <= limits.bytesPerAddress
        else { return false }
        bytesOfRoutes[route] = ofRoute + job.bytes
        bytesOfAddresses[address] = ofAddress + job.bytes
        if waiting[address] == nil { turns.append(address) }
        waiting[address, default: []].append(job)
        return true
    }

    /// The first job of the next address, which is the last one after that.
    fileprivate mutating func next() -> UnprovenWork.Job? {
        guard let address = turns.first, let job = waiting[address]?.first, take(job) else { return nil }
        if waiting[address] != nil { turns.append(turns.removeFirst()) }
        return job
    }

    /// Removes a job that waits. Returns false if it does not wait.
    fileprivate mutating func take(_ job: UnprovenWork.Job) -> Bool {
        let address = job.origin.address
        guard let index = waiting[address]?.firstIndex(where: { $0 === job }) else { return false }
        waiting[address]?.remove(at: index)
        if waiting[address]?.isEmpty ?? false {
            waiting[address] = nil
            turns.removeAll { $0 == address }
        }
        return true
    }

    fileprivate mutating func end(_ job: UnprovenWork.Job) {
        let (route, address) = (job.origin.route, job.origin.address)
        let (ofRoute, ofAddress) = (bytesOfRoutes[route] ?? 0, bytesOfAddresses[address] ?? 0)
        bytesOfRoutes[route] = ofRoute > job.bytes ? ofRoute - job.bytes : nil
        bytesOfAddresses[address] = ofAddress > job.bytes ? ofAddress - job.bytes : nil
    }
}
