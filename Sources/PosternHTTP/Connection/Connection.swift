internal import CMicrohttpd
import Glibc
import PosternCore
import Synchronization

/// A client's connection and its current request.
///
/// libmicrohttpd serves one request of a connection after the other on one worker thread; `+Request` and `+Reply` run
/// there. Other threads access it in two places only: `stage`, under its lock, and `deadline`.
final class Connection: @unchecked Sendable {
    /// The state of the current request: whether the worker or the handler has to act next.
    enum Stage {
        /// The request is being received, or there is none.
        case receiving
        /// The handler is processing the request, on the worker thread.
        case answering
        /// The handler has the request; the connection is suspended until the response is ready.
        case suspended
        /// The connection is suspended, and its socket belongs to a `DetachedConnection`.
        case detached
        /// A response action is ready for the worker.
        case settled(ResponseAction)
        /// The response is being sent.
        case sending
        /// A stream is being sent; `isSuspended` while it has nothing to send.
        case streaming(isSuspended: Bool)
        case closed
    }

    let worker: HTTPWorker
    let core: ServerCore
    let peer: PeerAddress
    let socket: Int32
    let handle: OpaquePointer
    let connectedAt = SystemTime().instant
    /// What the handler remembers of this connection.
    let memory = ConnectionMemory()
    /// Retained as long as the session that uses it.
    let identity: TLSIdentity?

    /// When the connection is cut off, in monotonic nanoseconds; 0 means never.
    private let deadline = Atomic<Int64>(0)
    let stage = Mutex(Stage.receiving)
    /// Numbers the requests; written by the worker under the lock of `stage`.
    private(set) var requestNumber: UInt64 = 0
    /// Called if the client hangs up before its response is there; used under the lock of `stage`.
    var hangUpAction: (@Sendable () -> Void)?
    /// The state of the stream that is being sent; used under the lock of `stage`.
    var streamState = StreamState()

    // @unchecked: what follows belongs to the worker thread.
    /// Verified once, with the first request.
    lazy var clientCertificate = core.clientCertificate(of: handle)
    var progress = Progress.receiving
    var reader = RequestReader()
    /// Bytes that were read from the socket and belong to the next request.
    var unread: [UInt8] = []
    var head: RequestHead?
    /// The id of a request that the server itself rejects.
    var requestID: String?
    /// The request that the handler has admitted, until it is complete.
    var admitted: (any AdmittedRequest)?
    /// A response that is sent instead of calling the handler.
    var refusal: HTTPResponse?
    /// Why the server itself rejects the request; nil unless it does.
    var rejectedFor: ProblemSlug?
    /// Whether the client closes the connection after this request, or expects that.
    var closes = false
    var expectsContinue = false
    var bodyStartedAt: MonotonicInstant?
    /// When libmicrohttpd was last notified of a body that is still arriving.
    var timeoutRestartedAt = MonotonicInstant(nanoseconds: 0)
    /// The bytes taken from the memory budget: for the body while it arrives, then for a large response until it is
    /// sent.
    var reservedBytes = 0
    /// Whether it counts in `core.running`.
    var isCounted = false
    /// Whether the client may still be sending bytes that are not going to be read.
    var drainsInput = false
    /// Whether libmicrohttpd will read the socket again after the response.
    var readsAfterResponse = false
    /// Nil on plain connections.
    var tlsSession: UnsafeMutableRawPointer? {
        core.settings.tls.isOn ? postern_mhd_tls_session(handle).map { UnsafeMutableRawPointer($0) } : nil
    }

    enum Progress {
        /// The request is being received, or there is none.
        case receiving
        /// The request is complete, or was rejected before that.
        case received
        /// libmicrohttpd has received its part of the request, and has not called back yet.
        case announced
        /// libmicrohttpd has called back with the headers.
        case complete
        case delivered
    }

    init(_ handle: OpaquePointer, of worker: HTTPWorker) {
        self.handle = handle
        self.worker = worker
        core = worker.core
        identity = core.identity.withLock { $0 }
        socket = postern_mhd_socket(handle)
        peer = PeerAddress(postern_mhd_address(handle))
        setDeadline(connectedAt + core.settings.headerTimeout)
        core.living.wrappingAdd(1, ordering: .relaxed)
    }

    deinit { core.living.wrappingSubtract(1, ordering: .relaxed) }

    // MARK: Any thread

    /// Sets the action of request `requestNumber` and wakes the connection if it waits for it. Does nothing if that
    /// request has ended.
    func settle(_ action: ResponseAction, requestNumber: UInt64) {
        _ = resumeIfSuspended { stage in requestNumber == self.requestNumber && settle(&stage, action) }
    }

    /// Ends the request that waits here. Called under the lock of the reaper's entries, so that the socket is open.
    ///
    /// - Parameter cutsResponse: Whether a response that is being sent is cut off, too. Its client may not be reading.
    func abort(cutsResponse: Bool) {
        cut(requestNumber: nil)
        let action = resumeIfSuspended { stage in
            if case .receiving = stage { shutdown(socket, Int32(SHUT_RDWR)) }
            if cutsResponse, case .sending = stage { shutdown(socket, Int32(SHUT_RDWR)) }
            // A running handler is not interrupted: its thread checks `core.isAborting` when it returns.
            if case .answering = stage { return false }
            return settle(&stage, .hangUp)
        }
        action?()
    }

    /// Resumes the connection if `change` returns that it was suspended. Returns the hang-up action of a request that
    /// is settled now. It must be released without the lock, because it may hold the last reference to the responder.
    func resumeIfSuspended(_ change: (inout Stage) -> Bool) -> (@Sendable () -> Void)? {
        let (wasSuspended, action) = stage.withLock { stage in
            let wasSuspended = change(&stage)
            return (wasSuspended, isWaitedFor(stage) ? nil : hangUpAction.take())
        }
        if wasSuspended { worker.resume(self) }
        return action
    }

    func isWaitedFor(_ stage: Stage) -> Bool {
        switch stage {
        case .answering, .suspended: true
        case .receiving, .detached, .settled, .sending, .streaming, .closed: false
        }
    }

    /// Whether the connection has to be resumed; only one caller gets true.
    func settle(_ stage: inout Stage, _ action: ResponseAction) -> Bool {
        switch stage {
        case .answering:
            stage = .settled(action)
            return false
        case .suspended, .detached:
            stage = .settled(action)
            return true
        case .receiving, .settled, .sending, .streaming, .closed: return false
        }
    }

    var isSuspended: Bool {
        stage.withLock { stage in
            switch stage {
            case .suspended, .detached: true
            case .streaming(let isSuspended): isSuspended
            case .receiving, .answering, .settled, .sending, .closed: false
            }
        }
    }

    /// Shuts the socket down if its deadline has passed; the worker sees that as a hang-up.
    func cutIfOverdue(_ now: MonotonicInstant) {
        let mark = deadline.load(ordering: .relaxed)
        if mark != 0, now.nanoseconds >= mark { shutdown(socket, Int32(SHUT_RDWR)) }
    }

    // MARK: The worker thread

    func setDeadline(_ instant: MonotonicInstant) { deadline.store(instant.nanoseconds, ordering: .relaxed) }
    func clearDeadline() { deadline.store(0, ordering: .relaxed) }
    func waitForNextRequest() { setDeadline(SystemTime().instant + core.settings.idleTimeout) }

    /// Hands the request over: from now on its responder may settle it.
    func beginAnswering() {
        stage.withLock { stage in
            requestNumber &+= 1
            stage = .answering
        }
    }

    /// The action if there is one; otherwise the connection is suspended until there is.
    ///
    /// libmicrohttpd got less than it asked for, so it waits for an event of the socket before it reads again. The
    /// event for data that has already arrived, the next request or the end of the stream, may have passed. From a
    /// connection that was suspended it reads at once, so one that has its action at once is suspended for a moment.
    func takeResponseAction() -> ResponseAction? {
        stage.withLock { stage in
            switch stage {
            case .settled where !readsAfterResponse:
                MHD_suspend_connection(handle)
                MHD_resume_connection(handle)
                readsAfterResponse = true
                return nil
            case .settled(let action):
                stage = .sending
                return action
            case .answering:
                if core.isAborting.load(ordering: .acquiring) {
                    stage = .sending
                    return .hangUp
                }
                MHD_suspend_connection(handle)
                readsAfterResponse = true
                stage = .suspended
                return nil
            case .receiving, .suspended, .detached, .sending, .streaming, .closed: return nil
            }
        }
    }

    /// Suspends the connection once more, for the owner of its detached form.
    func suspendDetached() {
        stage.withLock { stage in
            MHD_suspend_connection(handle)
            stage = .detached
        }
    }

    func endRequest(_ next: Stage) {
        // Released without the lock: it may hold the last reference to the responder.
        _ = stage.withLock { stage in
            requestNumber &+= 1
            stage = next
            return hangUpAction.take()
        }
    }
}
