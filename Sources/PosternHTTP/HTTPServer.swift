internal import CMicrohttpd
import Glibc
public import Logging
import Synchronization

/// An HTTP/1.1 server on libmicrohttpd.
///
/// Owns the daemon: after a `start` that succeeded, `stop` must have returned before the last reference goes.
public final class HTTPServer: Sendable {
    // @unchecked: the mutex around it is what protects the pointer.
    private struct Running: @unchecked Sendable {
        /// Owned here; nil before the start and after the stop.
        var daemon: OpaquePointer?
        /// The daemon's, which closes it.
        var listener: Int32 = -1
    }
    private let core: ServerCore
    // Mutex: start and stop may come from different threads; the daemon itself is only touched under it.
    private let state = Mutex(Running())

    public init(_ settings: HTTPServerSettings, handler: any HTTPHandler, logger: Logger) {
        core = ServerCore(settings, handler: handler, logger: logger)
    }

    deinit { precondition(state.withLock { $0.daemon == nil }, "an HTTP server must be stopped") }

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
        guard let daemon = startDaemon(listener.socket, pem) else {
            close(listener.socket)
            throw HTTPServerError(
                errorClass: .failed, detail: "libmicrohttpd did not start on \(core.settings.host):\(listener.port)")
        }
        core.keeper.start()
        state.withLock { state in
            precondition(state.daemon == nil, "an HTTP server starts once")
            state = Running(daemon: daemon, listener: listener.socket)
        }
        return listener.port
    }

    private func startDaemon(_ listener: Int32, _ pem: PEMTexts?) -> OpaquePointer? {
        let settings = core.settings
        let threads = settings.workerThreads > 0 ? settings.workerThreads : max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        var flags =
            MHD_USE_EPOLL_INTERNAL_THREAD.rawValue | MHD_ALLOW_SUSPEND_RESUME.rawValue
            | MHD_USE_ERROR_LOG.rawValue
        if pem != nil { flags |= MHD_USE_TLS.rawValue }
        // The keeper's deadlines come first; this one is left for clients that do not read their answers.
        let longest = max(settings.idleTimeout, settings.headerTimeout).components.seconds + 2
        return withOptionalCString(pem?.certificate) { certificate in
            withOptionalCString(pem?.key) { key in
                withOptionalCString(pem?.clientCA) { clientCA in
                    var start = postern_mhd_settings()
                    start.flags = flags
                    start.listen_socket = listener
                    start.threads = threads > 1 ? UInt32(threads) : 0
                    start.max_connections = UInt32(settings.maxConnections)
                    start.max_connections_per_address = UInt32(settings.maxConnectionsPerAddress)
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
    ///
    /// `MHD_quiesce_daemon` panics when a worker of a pool drops the socket at the same moment. Instead the socket is
    /// replaced, in one step, by a descriptor that is never ready: the kernel closes the listener, and the workers
    /// keep a number that stays valid until the daemon closes it.
    public func stopAccepting() {
        core.isDraining.store(true, ordering: .sequentiallyConsistent)
        state.withLock { state in
            guard state.daemon != nil, state.listener >= 0 else { return }
            let silent = Bell()
            dup2(silent.descriptor, state.listener)
            state.listener = -1
        }
    }

    /// Stops: no new connections, then every running request may be answered until `grace` is over, then what is
    /// left is cut off. Blocks; not to be called by a handler.
    public func stopAndWait(grace: Duration) {
        stopAccepting()
        waitUntilDrained(atMost: grace)
        guard let daemon = state.withLock({ $0.daemon.take() }) else { return }
        core.isAborting.store(true, ordering: .sequentiallyConsistent)
        // Repeated: a handler may be about to put its connection aside without having seen the flag.
        repeat {
            core.keeper.forEach { $0.abort() }
            if runningRequests > 0 { core.drained.wait(.milliseconds(5)) }
        } while runningRequests > 0
        // The last of them may be over before the call that resumed it has returned.
        while core.resuming.load(ordering: .acquiring) > 0 { sched_yield() }
        MHD_stop_daemon(daemon)
        core.keeper.stop()
    }

    /// `stopAndWait` on a thread of its own.
    public func stop(grace: Duration) async {
        await withCheckedContinuation { continuation in
            let work = StopWork { [self] in
                stopAndWait(grace: grace)
                continuation.resume()
            }
            var thread = pthread_t()
            let code = pthread_create(&thread, nil, stopThread, Unmanaged.passRetained(work).toOpaque())
            precondition(code == 0, "no thread left")
            pthread_detach(thread)
        }
    }

    private func waitUntilDrained(atMost grace: Duration) {
        let end = ContinuousClock.now + grace
        while runningRequests > 0, ContinuousClock.now < end { core.drained.wait(end - .now) }
    }
}

private final class StopWork: Sendable {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
}

private let stopThread: @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? = { context in
    Unmanaged<StopWork>.fromOpaque(context!).takeRetainedValue().run()
    return nil
}
