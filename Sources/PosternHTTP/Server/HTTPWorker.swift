internal import CMicrohttpd
import Glibc
import PosternCore
import PosternThreads
import Synchronization

/// One libmicrohttpd daemon, without a listener of its own, and the thread that drives it.
///
/// A thread of libmicrohttpd's would be woken through a descriptor for each connection that is resumed. Here, other
/// threads enqueue their connections, and a sleeping thread is woken once for all that arrive until it runs.
/// libmicrohttpd's own pool is not used: it wakes every thread for each connection, and distributes them unevenly.
final class HTTPWorker: Loop, @unchecked Sendable {
    // @unchecked: everything below `MARK: State` belongs to the thread that turns.
    let name: String

    /// A connection that was accepted.
    struct NewConnection {
        let socket: Int32
        var address: sockaddr_storage
        let size: socklen_t
        let peer: PeerAddress
    }

    /// What other threads have enqueued.
    private struct Pending {
        var arrivals: [NewConnection] = []
        /// Suspended connections that have a response now.
        var settled: [Connection] = []
        var isStopped = false
        var isNone: Bool { arrivals.isEmpty && settled.isEmpty && !isStopped }
    }

    private struct State {
        var pending = Pending()
        /// Whether the thread has to be woken before it takes what was enqueued.
        var isAsleep = false
    }

    let core: ServerCore
    private let state = Mutex(State())
    private let wakeup = EventFD()
    private let running = Mutex<(any RunningLoop)?>(nil)
    let receiver = Receiver()

    init(_ core: ServerCore, name: String) {
        self.core = core
        self.name = name
    }

    func start(_ pem: TLSIdentity?) throws(HTTPServerError) {
        let version = String(cString: MHD_get_version())
        guard version == POSTERN_MHD_VERSION else {
            throw HTTPServerError(
                errorClass: .failed,
                detail: "libmicrohttpd is version \(version); the gateway requires \(POSTERN_MHD_VERSION)")
        }
        guard postern_functions_are_ours() else {
            throw HTTPServerError(
                errorClass: .failed, detail: "libmicrohttpd does not use the gateway's functions for sockets")
        }
        do throws(SystemLimitError) { try wakeup.requireOpen() } catch { throw HTTPServerError(error) }
        // Unretained: the server keeps its workers until they have stopped.
        guard let daemon = startDaemon(for: Unmanaged.passUnretained(self).toOpaque(), core.settings, pem) else {
            // It fails if it cannot create an epoll descriptor.
            guard errno != EMFILE, errno != ENFILE else { throw HTTPServerError(.descriptors) }
            throw HTTPServerError(errorClass: .failed, detail: "libmicrohttpd did not start")
        }
        postern_mhd_wake_by(daemon, wakeup.descriptor)
        self.daemon = daemon
        do throws(SystemLimitError) {
            let started = try DedicatedThreads().start(self)
            running.withLock { $0 = started }
        } catch {
            MHD_stop_daemon(daemon)
            throw HTTPServerError(error)
        }
    }

    // MARK: Any thread

    func add(_ arrival: NewConnection) { leave { $0.arrivals.append(arrival) } }

    /// Makes libmicrohttpd continue with a suspended connection.
    func resume(_ connection: Connection) { leave { $0.settled.append(connection) } }

    /// Ends the thread and the daemon. No connection may be suspended, and none may be handed over after this.
    func stop() {
        leave { $0.isStopped = true }
        running.withLock { $0.take() }?.join()
    }

    private func leave(_ change: (inout Pending) -> Void) {
        let wasAsleep = state.withLock { state in
            change(&state.pending)
            defer { state.isAsleep = false }
            return state.isAsleep
        }
        if wasAsleep { wakeup.signal() }
    }

    // MARK: State
    /// Set before the thread starts.
    private var daemon: OpaquePointer?
    /// The socket that libmicrohttpd is being given; nil once it has reported that the connection is closed.
    private var arriving: Int32?

    func begin() { postern_receive_by(socketRead, Unmanaged.passUnretained(self).toOpaque()) }

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        let pending = takePending()
        for arrival in pending.arrivals { add(arrival, to: daemon) }
        for connection in pending.settled { MHD_resume_connection(connection.handle) }
        guard pending.isStopped else { return pending.isNone ? .distantFuture : .distantPast }
        MHD_run_wait(daemon, 0)
        MHD_stop_daemon(daemon)
        return nil
    }

    /// Waits for sockets, a signal, or the next of libmicrohttpd's time limits, and serves the sockets.
    func wait(until deadline: MonotonicInstant) -> Bool {
        MHD_run_wait(daemon, deadline == .distantFuture ? -1 : 0)
        return true
    }

    /// If there is nothing, the next thread that enqueues something wakes this one.
    private func takePending() -> Pending {
        state.withLock { state in
            state.isAsleep = state.pending.isNone
            var taken = Pending()
            swap(&taken, &state.pending)
            return taken
        }
    }

    private func add(_ arrival: NewConnection, to daemon: OpaquePointer?) {
        arriving = arrival.socket
        defer { arriving = nil }
        var address = arrival.address
        let isAdded = withUnsafeBytes(of: &address) {
            MHD_add_connection(
                daemon, arrival.socket, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, arrival.size)
        }
        // If this fails, the library has closed the socket. It may have reported the connection before, and its end.
        if isAdded != .YES, arriving != nil { core.limiter.release(arrival.peer) }
    }

    /// libmicrohttpd has reported that `connection` is closed, and closes its socket next.
    func release(_ connection: Connection) {
        if connection.socket == arriving { arriving = nil }
        core.limiter.release(connection.peer)
    }
}

/// The callbacks get `context`, which must outlive the daemon.
private func startDaemon(
    for context: UnsafeMutableRawPointer, _ settings: HTTPServerSettings, _ pem: TLSIdentity?
) -> OpaquePointer? {
    var flags =
        MHD_USE_EPOLL.rawValue | MHD_USE_NO_LISTEN_SOCKET.rawValue | MHD_ALLOW_SUSPEND_RESUME.rawValue
        | MHD_USE_ERROR_LOG.rawValue
    if pem != nil { flags |= MHD_USE_TLS.rawValue }
    return withOptionalCString(pem?.certificate) { certificate in
        withOptionalCString(pem?.key) { key in
            withOptionalCString(pem?.clientCA) { clientCA in
                var start = postern_mhd_settings()
                start.flags = flags
                start.max_connections = UInt32(settings.maxConnections)
                start.timeout_seconds = settings.libraryTimeoutSeconds
                start.connection_memory = HTTPServerSettings.connectionMemory
                (start.certificate, start.key, start.client_ca) = (certificate, key, clientCA)
                start.context = context
                start.log = messageLogged
                start.request = requestAdvanced
                start.completed = requestCompleted
                start.connection = connectionChanged
                return postern_mhd_start(&start)
            }
        }
    }
}
