internal import CMicrohttpd
import Glibc
public import Logging
public import PosternCore
import PosternThreads
import Synchronization

/// An HTTP/1.1 server on libmicrohttpd.
///
/// After a successful `start`, `stop` must have returned before the last reference is released.
public final class HTTPServer: Sendable {
    private struct Running {
        /// None before the start and after the stop.
        var workers: [HTTPWorker] = []
        var acceptor: Acceptor?
    }
    private let core: ServerCore
    /// How long responses that are being sent when the grace period is over may take for their rest.
    private static let endingTime = Duration.milliseconds(100)
    // Mutex: start and stop may come from different threads.
    private let state = Mutex(Running())

    /// - Parameter memory: The budget for bodies and large responses in flight. A request that does not fit is rejected
    ///   with 503.
    public init(
        _ settings: HTTPServerSettings, memory: ByteBudget = ByteBudget(.max), handler: any HTTPHandler,
        logger: Logger
    ) {
        core = ServerCore(settings, memory: memory, handler: handler, logger: logger)
    }

    deinit { precondition(state.withLock { $0.workers.isEmpty }, "an HTTP server must be stopped") }

    /// The number of requests whose headers have arrived and whose response has not been sent.
    public var runningRequests: Int { core.running.load(ordering: .acquiring) }
    /// Accepted and not closed, whether or not a request is running. Any thread.
    public var openConnections: Int { core.limiter.connections }
    /// The numbers of connections that are suspended until their response is ready, and of all connection objects, for
    /// leak checks.
    package var suspendedConnections: Int {
        var count = 0
        core.reaper.forEach { count += $0.isSuspended ? 1 : 0 }
        return count
    }
    package var livingConnections: Int { core.living.load(ordering: .acquiring) }

    /// Throws what would prevent `start` with these settings, except that the port is in use.
    public static func validate(_ settings: HTTPServerSettings) throws(HTTPServerError) {
        if settings.tls.isOn { _ = try TLSIdentity(settings.tls) }
        try Listener.validate(host: settings.host, port: settings.port)
    }

    /// Listens and serves; returns the port.
    ///
    /// - Parameter socket: A socket that listens already, for the host and the port of the settings. It is closed when the
    ///   server stops accepting.
    public func start(on socket: Int32? = nil) throws(HTTPServerError) -> UInt16 {
        let files = core.settings.tls
        let identity = try files.isOn ? TLSIdentity(files) : nil
        core.identity.withLock { $0 = identity }
        core.lookedAt.withLock { $0 = identity?.stamp }
        let listener =
            if let socket { Listener(passed: socket) } else {
                try Listener(host: core.settings.host, port: core.settings.port)
            }
        let workers = try startWorkers(listener, identity)
        let acceptor = Acceptor(listener, for: workers, core.limiter, core.logger)
        do throws(SystemLimitError) {
            try core.drained.requireOpen()
            try core.reaper.start { [core] in core.running.load(ordering: .relaxed) > 0 }
            try acceptor.start()
        } catch {
            core.reaper.stop()
            for worker in workers { worker.stop() }
            close(listener.socket)
            throw HTTPServerError(error)
        }
        state.withLock { state in
            precondition(state.workers.isEmpty, "an HTTP server starts once")
            state = Running(workers: workers, acceptor: acceptor)
        }
        return listener.port
    }

    /// Closes the listener if a worker does not start.
    private func startWorkers(_ listener: Listener, _ identity: TLSIdentity?) throws(HTTPServerError) -> [HTTPWorker] {
        var workers: [HTTPWorker] = []
        do throws(HTTPServerError) {
            for number in 0..<workerCount {
                let worker = HTTPWorker(core, name: "postern-http-\(number)")
                try worker.start(identity)
                workers.append(worker)
            }
        } catch {
            for worker in workers { worker.stop() }
            close(listener.socket)
            throw error
        }
        return workers
    }

    private var workerCount: Int {
        core.settings.workerThreads > 0 ? core.settings.workerThreads : max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    }

    // MARK: Renewing the certificate

    /// When the server's certificate expires; nil without TLS.
    public var certificateExpiry: Timestamp? { core.identity.withLock { $0?.expiresAt } }

    /// Reads the TLS files again if they have changed. New connections then use the new identity; existing ones are not
    /// affected. If the files cannot be used, the previous identity stays in use, and this throws, once for each change
    /// of the files.
    ///
    /// - Returns: Whether they have changed.
    public func renewCertificate() throws(HTTPServerError) -> Bool {
        let files = core.settings.tls
        guard files.isOn else { return false }
        let stamp = FileStamps(files)
        guard core.lookedAt.withLock({ $0 != stamp }) else { return false }
        core.lookedAt.withLock { $0 = stamp }
        let identity = try TLSIdentity(files)
        core.identity.withLock { $0 = identity }
        return true
    }

    /// Refuses new connections. Kept-alive ones are closed after their next response.
    public func stopAccepting() {
        core.isDraining.store(true, ordering: .sequentiallyConsistent)
        state.withLock { $0.acceptor.take() }?.stop()
    }

    /// Stops: accepts no new connections, lets running requests finish until `grace` is over, and then cuts off the
    /// rest. Blocks. Must not be called by a handler.
    public func stopAndWait(grace: Duration) {
        stopAccepting()
        waitUntilDrained(atMost: grace)
        let workers = state.withLock { state in
            defer { state.workers = [] }
            return state.workers
        }
        guard !workers.isEmpty else { return }
        core.isAborting.store(true, ordering: .sequentiallyConsistent)
        let end = ContinuousClock.now + Self.endingTime
        // Repeated: a handler may be about to suspend its connection without having seen the flag.
        repeat {
            let cutsResponses = ContinuousClock.now >= end
            core.reaper.forEach { $0.abort(cutsResponse: cutsResponses) }
            if runningRequests > 0 { core.drained.wait(.milliseconds(5)) }
        } while runningRequests > 0
        for worker in workers { worker.stop() }
        core.reaper.stop()
    }

    private func waitUntilDrained(atMost grace: Duration) {
        let end = ContinuousClock.now + grace
        while runningRequests > 0, ContinuousClock.now < end { core.drained.wait(end - .now) }
    }
}
