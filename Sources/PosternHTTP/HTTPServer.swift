internal import CMicrohttpd
import Glibc
public import Logging
import Synchronization

/// An HTTP/1.1 server on libmicrohttpd.
///
/// Owns the daemon: after a `start` that succeeded, `stop` must have returned before the last reference goes.
public final class HTTPServer: Sendable {
    // @unchecked: the mutex around it is what protects the pointers.
    private struct Running: @unchecked Sendable {
        /// Owned here; empty before the start and after the stop.
        var daemons: [OpaquePointer] = []
        var acceptor: Acceptor?
    }
    private let core: ServerCore
    // Mutex: start and stop may come from different threads; the daemon itself is only touched under it.
    private let state = Mutex(Running())

    public init(_ settings: HTTPServerSettings, handler: any HTTPHandler, logger: Logger) {
        core = ServerCore(settings, handler: handler, logger: logger)
    }

    deinit { precondition(state.withLock { $0.daemons.isEmpty }, "an HTTP server must be stopped") }

    /// Requests whose headers are in and whose answer is not out.
    public var runningRequests: Int { core.running.load(ordering: .acquiring) }
    public var openConnections: Int { core.keeper.connectionCount }
    /// For leak checks: connections put aside for an answer, and connection objects that exist at all.
    var suspendedConnections: Int {
        var count = 0
        core.keeper.forEach { count += $0.isSuspended ? 1 : 0 }
        return count
    }
    var livingConnections: Int { core.living.load(ordering: .acquiring) }

    /// Listens and serves; returns the port.
    public func start() throws(HTTPServerError) -> UInt16 {
        let pem = try core.settings.tls.map { files throws(HTTPServerError) in try PEMTexts(files) }
        let listener = try Listener(host: core.settings.host, port: core.settings.port)
        let daemons = (0..<workerCount).map { _ in startDaemon(pem) }
        let started = daemons.compactMap { $0 }
        guard started.count == daemons.count else {
            for daemon in started { MHD_stop_daemon(daemon) }
            close(listener.socket)
            throw HTTPServerError(
                errorClass: .failed, detail: "libmicrohttpd did not start on \(core.settings.host):\(listener.port)")
        }
        core.keeper.start()
        let acceptor = Acceptor(listener, core.admissions, core.logger)
        acceptor.start(for: started)
        state.withLock { state in
            precondition(state.daemons.isEmpty, "an HTTP server starts once")
            state = Running(daemons: started, acceptor: acceptor)
        }
        return listener.port
    }

    private var workerCount: Int {
        core.settings.workerThreads > 0 ? core.settings.workerThreads : max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
    }

    /// One worker: a daemon with one thread and no listener of its own.
    ///
    /// Not libmicrohttpd's thread pool, in which all threads wake for each new connection, the connections are spread
    /// by chance, and `MHD_quiesce_daemon` aborts the process when a worker drops the listener at the same moment.
    private func startDaemon(_ pem: PEMTexts?) -> OpaquePointer? {
        let settings = core.settings
        var flags =
            MHD_USE_EPOLL_INTERNAL_THREAD.rawValue | MHD_USE_NO_LISTEN_SOCKET.rawValue
            | MHD_ALLOW_SUSPEND_RESUME.rawValue | MHD_USE_ERROR_LOG.rawValue
        if pem != nil { flags |= MHD_USE_TLS.rawValue }
        // The keeper's deadlines come first; this one is left for clients that do not read their answers.
        let longest = max(settings.idleTimeout, settings.headerTimeout).components.seconds + 2
        return withOptionalCString(pem?.certificate) { certificate in
            withOptionalCString(pem?.key) { key in
                withOptionalCString(pem?.clientCA) { clientCA in
                    var start = postern_mhd_settings()
                    start.flags = flags
                    start.max_connections = UInt32(settings.maxConnections)
                    start.timeout_seconds = UInt32(clamping: longest)
                    start.connection_memory = HTTPServerSettings.connectionMemory
                    (start.certificate, start.key, start.client_ca) = (certificate, key, clientCA)
                    // Unretained: `core` lives as long as this server, and the server is stopped before it goes.
                    start.context = Unmanaged.passUnretained(core).toOpaque()
                    start.log = messageLogged
                    start.request_line = requestLineReceived
                    start.request = requestAdvanced
                    start.completed = requestCompleted
                    start.connection = connectionChanged
                    return postern_mhd_start(&start)
                }
            }
        }
    }

    /// Refuses new connections; kept-alive ones are closed by their next answer.
    public func stopAccepting() {
        core.isDraining.store(true, ordering: .sequentiallyConsistent)
        state.withLock { $0.acceptor.take() }?.stop()
    }

    /// Stops: no new connections, then every running request may be answered until `grace` is over, then what is
    /// left is cut off. Blocks; not to be called by a handler.
    public func stopAndWait(grace: Duration) {
        stopAccepting()
        waitUntilDrained(atMost: grace)
        let daemons = state.withLock { state in
            defer { state.daemons = [] }
            return Running(daemons: state.daemons)
        }.daemons
        guard !daemons.isEmpty else { return }
        core.isAborting.store(true, ordering: .sequentiallyConsistent)
        // Repeated: a handler may be about to put its connection aside without having seen the flag.
        repeat {
            core.keeper.forEach { $0.abort() }
            if runningRequests > 0 { core.drained.wait(.milliseconds(5)) }
        } while runningRequests > 0
        // The last of them may be over before the call that resumed it has returned.
        while core.resuming.load(ordering: .acquiring) > 0 { sched_yield() }
        for daemon in daemons { MHD_stop_daemon(daemon) }
        core.keeper.stop()
    }

    /// `stopAndWait` on a thread of its own.
    public func stop(grace: Duration) async {
        await withCheckedContinuation { continuation in
            pthread_detach(
                startThread { [self] in
                    stopAndWait(grace: grace)
                    continuation.resume()
                })
        }
    }

    private func waitUntilDrained(atMost grace: Duration) {
        let end = ContinuousClock.now + grace
        while runningRequests > 0, ContinuousClock.now < end { core.drained.wait(end - .now) }
    }
}
