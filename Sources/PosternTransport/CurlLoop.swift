internal import CCurl
internal import Glibc
public import PosternCore
public import PosternThreads
public import PosternUpstream
internal import Synchronization

/// Sends requests with libcurl: one multi handle and the one thread that drives it.
///
/// Requests use HTTP/1.1. Connections are kept and reused, as `ConnectionPools` decides. The thread sleeps in
/// `curl_multi_poll` while there is nothing to do. It lives until `stop()`, and so does the loop.
public final class CurlLoop: Transport, Loop, @unchecked Sendable {
    public let name = "postern-curl"
    // @unchecked: `multi`, `active`, `idle` and `pools` belong to the loop's thread. The exception is `curl_multi_wakeup`,
    // which libcurl allows from any thread: it is called while holding `inbox`, and never once that says `isStopped`.
    private let multi: UnsafeMutableRawPointer
    private var active: [UnsafeMutableRawPointer: Transfer] = [:]
    private var idle: [EasyHandle] = []
    private var pools = ConnectionPools<ConnectionPool>()

    private let inbox = Mutex(Inbox())
    private let running = Mutex<(any RunningLoop)?>(nil)
    private let settings: Settings

    /// What all requests have in common.
    public struct Settings: Sendable {
        /// Sent with requests that have no `User-Agent` of their own.
        var userAgent: String
        /// The number of idle connections that are kept for each group.
        var maxIdleConnections: Int
        /// Whether requests may be sent now. Asked on the loop's thread; nil means always.
        var mayStillSend: (@Sendable () -> Bool)?

        public init(
            version: String, maxIdleConnections: Int = 128, mayStillSend: (@Sendable () -> Bool)? = nil
        ) {
            userAgent = "Postern/\(version)"
            self.maxIdleConnections = maxIdleConnections
            self.mayStillSend = mayStillSend
        }
    }

    private struct Inbox {
        var transfers: [Transfer] = []
        var cancelled: [Transfer] = []
        var isStopped = false
    }

    /// libcurl or the system does not have enough memory, descriptors, or threads.
    public struct StartFailure: Error, CustomStringConvertible {
        /// Without a full stop.
        public let description: String
    }

    /// Starts the thread.
    public init(_ settings: Settings) throws(StartFailure) {
        guard Self.isLibraryReady, let multi = curl_multi_init() else {
            throw StartFailure(description: "libcurl could not be initialized")
        }
        self.multi = multi
        self.settings = settings
        _ = postern_curl_multi_set_long(multi, CURLMOPT_MAXCONNECTS, settings.maxIdleConnections)
        // The thread retains the loop until it ends, which `stop()` causes.
        do throws(SystemLimitError) {
            let started = try DedicatedThreads().start(self)
            running.withLock { $0 = started }
        } catch {
            curl_multi_cleanup(multi)
            throw StartFailure(description: "\(error)")
        }
    }

    private static let isLibraryReady = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

    /// `completion` is called on the loop's thread. If the loop has been stopped, it is called on the caller's thread,
    /// with `.cancelled`.
    @discardableResult public func submit(
        _ request: UpstreamRequest, options: TransferOptions,
        completion: @escaping @Sendable (TransferResult) -> Void
    ) -> SubmittedTransfer {
        let transfer = Transfer(request, options, completion)
        if !leave({ $0.transfers.append(transfer) }) {
            transfer.complete(.failure(.cancelled(mayHaveArrived: false, because: Self.stopping)))
        }
        // If the loop has stopped, it has cancelled the transfer already.
        return SubmittedTransfer { [self] in _ = leave { $0.cancelled.append(transfer) } }
    }

    /// Returns false if the loop has stopped.
    private func leave(_ change: (inout Inbox) -> Void) -> Bool {
        inbox.withLock { inbox in
            guard !inbox.isStopped else { return false }
            // The caller that finds the inbox empty wakes the thread, which then takes everything.
            if inbox.transfers.isEmpty && inbox.cancelled.isEmpty { curl_multi_wakeup(multi) }
            change(&inbox)
            return true
        }
    }

    private static let stopping = "the gateway is stopping"

    /// Cancels what is in flight, closes all connections, and ends the thread. Returns when that is done. Must not be
    /// called from a completion. A second call only waits for the first.
    public func stop() {
        inbox.withLock { inbox in
            guard !inbox.isStopped else { return }
            inbox.isStopped = true
            curl_multi_wakeup(multi)
        }
        running.withLock { running in
            running?.join()
            running = nil
        }
    }

    // MARK: On the loop's thread

    public func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        guard takeInbox(at: now) else {
            cancelActive()
            idle.removeAll()
            pools.removeAll()
            curl_multi_cleanup(multi)
            return nil
        }
        // The process may have been stopped since the last turn, and libcurl would go on.
        if settings.mayStillSend?() == false { cancelUnsent() }
        var running: Int32 = 0
        curl_multi_perform(multi, &running)
        finishDone()
        return pools.retireExpired(at: now) ?? .distantFuture
    }

    /// Waits until a socket is ready, libcurl's next timer is due, something is submitted, or `deadline`.
    public func wait(until deadline: MonotonicInstant) -> Bool {
        let left = min(max(.zero, deadline - SystemTime().instant), .seconds(3600))
        curl_multi_poll(multi, nil, 0, left.pollMilliseconds, nil)
        return true
    }

    /// Returns false if the loop has to end. What was submitted before that is cancelled with the rest.
    private func takeInbox(at now: MonotonicInstant) -> Bool {
        let (transfers, cancelled, isStopped) = inbox.withLock { inbox in
            defer {
                inbox.transfers.removeAll(keepingCapacity: true)
                inbox.cancelled.removeAll()
            }
            return (inbox.transfers, inbox.cancelled, inbox.isStopped)
        }
        for transfer in transfers {
            if isStopped {
                transfer.complete(.failure(.cancelled(mayHaveArrived: false, because: Self.stopping)))
            } else {
                start(transfer, at: now)
            }
        }
        for transfer in cancelled {
            // Not found if it has ended meanwhile.
            guard let curl = transfer.curl, active.removeValue(forKey: curl) != nil else { continue }
            cancel(transfer, on: curl, because: "the caller has hung up")
        }
        return !isStopped
    }

    private func start(_ transfer: Transfer, at now: MonotonicInstant) {
        // One of its own has the address of no name, and closes its connection with it.
        let pool =
            transfer.onlyConnects
            ? ConnectionPool() : pools.pool(for: transfer.options, at: now, open: { ConnectionPool() })
        guard let pool, let handle = idle.popLast() ?? EasyHandle() else {
            let failure = TransferFailure(.lackedResources, mayHaveArrived: false, detail: "libcurl is out of memory")
            return transfer.complete(.failure(failure))
        }
        if let problem = transfer.prepare(handle, on: pool, settings) {
            transfer.release()
            idle.append(handle)
            return transfer.complete(
                .failure(TransferFailure(.unreachable, mayHaveArrived: false, detail: problem)))
        }
        active[handle.curl] = transfer
        curl_multi_add_handle(multi, handle.curl)
    }

    private func finishDone() {
        var left: Int32 = 0
        while let message = curl_multi_info_read(multi, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let curl = message.pointee.easy_handle,
                let transfer = active.removeValue(forKey: curl)
            else { continue }
            let code = postern_curl_message_result(message)
            curl_multi_remove_handle(multi, curl)  // `message` is gone with it
            let result = transfer.result(of: code)
            if let pool = transfer.pool, transfer.discreditsConnections(code) { pools.retire(pool) }
            if let handle = transfer.release() { idle.append(handle) }
            transfer.complete(result)
        }
    }

    private func cancelActive() {
        for (curl, transfer) in active { cancel(transfer, on: curl, because: Self.stopping) }
        active.removeAll()
    }

    /// Cancels requests of which something has not been sent yet. The others wait for their responses.
    private func cancelUnsent() {
        for (curl, transfer) in active where !transfer.isSent {
            active[curl] = nil
            cancel(transfer, on: curl, because: Transfer.mayNotBeSent)
        }
    }

    private func cancel(_ transfer: Transfer, on curl: UnsafeMutableRawPointer, because reason: String) {
        let mayHaveArrived = transfer.bytesSent > 0
        let response = transfer.decidedResponse
        curl_multi_remove_handle(multi, curl)
        if let handle = transfer.release() { idle.append(handle) }
        transfer.complete(
            response.map { .success($0) } ?? .failure(.cancelled(mayHaveArrived: mayHaveArrived, because: reason)))
    }
}
