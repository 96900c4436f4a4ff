import Glibc
import Logging
import PosternCore
import PosternThreads
import Synchronization

/// Accepts connections and distributes them to the workers in turn.
final class Acceptor: Loop, @unchecked Sendable {
    // @unchecked: everything below `MARK: State` belongs to the thread that turns.
    let name = "postern-accept"
    private let workers: [HTTPWorker]
    private let listener: Listener
    private let limiter: ConnectionLimiter
    private let logger: Logger
    private let wakeup = EventFD()
    /// The first number of the descriptors that clients leave to deliveries and the store.
    private let firstReserved: Int32
    private let isStopped = Atomic<Bool>(false)
    private let running = Mutex<(any RunningLoop)?>(nil)

    init(_ listener: Listener, for workers: [HTTPWorker], _ limiter: ConnectionLimiter, _ logger: Logger) {
        self.listener = listener
        self.workers = workers
        self.limiter = limiter
        self.logger = logger
        firstReserved = Self.firstReserved(from: Self.lowestFree(listener.socket))
    }

    func start() throws(SystemLimitError) {
        try wakeup.requireOpen()
        let started = try DedicatedThreads().start(self)
        running.withLock { $0 = started }
    }

    /// Waits until the thread has ended, then closes the listener.
    func stop() {
        isStopped.store(true, ordering: .releasing)
        wakeup.signal()
        running.withLock { $0.take() }?.join()
        close(listener.socket)
    }

    // MARK: State
    private var next = 0
    /// Nothing is accepted until this time, because the system failed to accept.
    private var pausedUntil = MonotonicInstant.distantPast
    private var nextReport = MonotonicInstant.distantPast
    /// The descriptor of the latest connection.
    private var latest: Int32 = 0

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        while now >= pausedUntil, !isStopped.load(ordering: .acquiring), leavesReserve(at: now), accept(at: now) {}
        if isStopped.load(ordering: .acquiring) { return nil }
        return now < pausedUntil ? pausedUntil : .distantFuture
    }

    func wait(until deadline: MonotonicInstant) -> Bool {
        wakeup.wait(until: deadline, or: deadline == .distantFuture ? [listener.socket] : [])
    }

    /// False when no connection is waiting, or none can be accepted now.
    private func accept(at now: MonotonicInstant) -> Bool {
        var address = sockaddr_storage()
        var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let (socket, peer) = withUnsafeMutableBytes(of: &address) {
            let pointer = $0.assumingMemoryBound(to: sockaddr.self).baseAddress!
            let socket = Glibc.accept(listener.socket, pointer, &size)
            return (socket, PeerAddress(pointer))
        }
        guard socket >= 0 else { return isWorthRetrying(errno, at: now) }
        _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
        latest = socket
        if limiter.admit(peer) {
            workers[next].add(.init(socket: socket, address: address, size: size, peer: peer))
            next = (next + 1) % workers.count
        } else {
            close(socket)
        }
        return true
    }

    private func isWorthRetrying(_ code: Int32, at now: MonotonicInstant) -> Bool {
        switch code {
        case EAGAIN: return false
        case ECONNABORTED, EINTR, EPROTO: return true
        default:
            pause(code, at: now)
            return false
        }
    }

    /// Whether one more connection leaves enough descriptors for the gateway's own work. If not, clients wait.
    private func leavesReserve(at now: MonotonicInstant) -> Bool {
        guard latest >= firstReserved else { return true }
        latest = Self.lowestFree(listener.socket) ?? firstReserved
        guard latest >= firstReserved else { return true }
        pause(EMFILE, at: now)
        return false
    }

    private func pause(_ code: Int32, at now: MonotonicInstant) {
        report(code, at: now)
        pausedUntil = now + .milliseconds(100)
    }

    /// At most one line a minute: without a free descriptor, ten attempts a second fail.
    private func report(_ code: Int32, at now: MonotonicInstant) {
        guard now >= nextReport else { return }
        nextReport = now + .seconds(60)
        logger.error(
            "cannot accept connections; retrying", metadata: ["error": "\(String(cString: strerror(code)))"])
    }

    // MARK: Descriptors

    /// The system assigns the lowest free number, so it tells how many are in use. Nil if none is free.
    private static func lowestFree(_ descriptor: Int32) -> Int32? {
        let duplicate = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard duplicate >= 0 else { return nil }
        close(duplicate)
        return duplicate
    }

    /// A quarter of those that are free at the start is reserved, at most 256.
    private static func firstReserved(from free: Int32?) -> Int32 {
        var limit = rlimit()
        guard let free, getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return .max }
        let end = Int32(clamping: limit.rlim_cur)
        return end - min((end - free) / 4, 256)
    }
}
