internal import CMicrohttpd
import Glibc
import PosternCore
import PosternThreads
import Synchronization

/// Ends connections, on a thread next to the workers: it cuts off those that are past their deadline, which
/// libmicrohttpd cannot do for clients that drip; notices clients that hang up while they wait for a response; and
/// discards what rejected clients still send, so that the response reaches them before the reset that unread bytes
/// would cause.
final class ConnectionReaper: Loop, @unchecked Sendable {
    // @unchecked: everything below `MARK: State` belongs to the thread that turns.
    let name = "postern-reaper"

    private struct Entries {
        var connections: [ObjectIdentifier: Connection] = [:]
        var lingering: [Lingering] = []
        var isStopped = false
    }
    private struct Lingering {
        let socket: Int32
        /// Postponed as long as data arrives. Nil until the first turn.
        var patience: MonotonicInstant?
        var until = MonotonicInstant.distantFuture
    }

    private let entries = Mutex(Entries())
    private let wakeup = EventFD()
    private let running = Mutex<(any RunningLoop)?>(nil)
    /// How often deadlines are checked, and so how late a connection may be cut off.
    private let tick: Duration
    /// How long a rejected client that sends nothing is read, and how long one that sends.
    private static let (lingerSilence, lingerTime) = (Duration.seconds(2), Duration.seconds(20))

    init(headerTimeout: Duration, idleTimeout: Duration) {
        tick = min(max(min(headerTimeout, idleTimeout) / 8, .milliseconds(10)), .seconds(1))
    }

    // MARK: Called by the workers

    func add(_ connection: Connection) {
        let isFirst = entries.withLock { entries in
            entries.connections[ObjectIdentifier(connection)] = connection
            return entries.connections.count == 1
        }
        if isFirst { wakeup.signal() }
    }

    /// The connection's socket is about to be closed; with `lingering`, a duplicate is read to its end first.
    func remove(_ connection: Connection, lingering: Bool) {
        entries.withLock { _ = $0.connections.removeValue(forKey: ObjectIdentifier(connection)) }
        if lingering { readOut(connection.socket) }
    }

    /// Discards what still arrives there, on a duplicate.
    func readOut(_ socket: Int32) {
        entries.withLock { entries in
            guard !entries.isStopped, entries.lingering.count < 256 else { return }
            let duplicate = fcntl(socket, F_DUPFD_CLOEXEC, 0)
            if duplicate >= 0 { entries.lingering.append(Lingering(socket: duplicate)) }
        }
        wakeup.signal()
    }

    /// Calls `body` under the lock of the entries. A connection is removed before its socket is closed, so no socket is
    /// closed meanwhile.
    func forEach(_ body: (Connection) -> Void) { entries.withLock { $0.connections.values.forEach(body) } }

    // MARK: The thread

    /// - Parameter isAnswering: Whether any request was handed over and has no response yet.
    func start(isAnswering: @escaping @Sendable () -> Bool) throws(SystemLimitError) {
        try wakeup.requireOpen()
        self.isAnswering = isAnswering
        let started = try DedicatedThreads().start(self)
        running.withLock { $0 = started }
    }

    /// Ends the thread and waits for it.
    func stop() {
        guard let running = running.withLock({ $0.take() }) else { return }
        entries.withLock { $0.isStopped = true }
        wakeup.signal()
        running.join()
        isAnswering = { false }
    }

    // MARK: State
    /// Set before the thread starts.
    private var isAnswering: () -> Bool = { false }
    private var watch = HangUpWatch()
    private var nextLook = MonotonicInstant.distantPast
    private var nextWatch = MonotonicInstant.distantPast

    func turn(at now: MonotonicInstant) -> MonotonicInstant? {
        drainLingering(at: now)
        if now >= nextLook {
            cutOverdue(at: now)
            nextLook = now + tick
        }
        if now >= nextWatch { nextWatch = now + watch.look(at: isAnswering() ? suspended : []) }
        let (isStopped, isIdle) = entries.withLock { entries in
            (entries.isStopped, entries.connections.isEmpty && entries.lingering.isEmpty)
        }
        guard isStopped else { return isIdle ? .distantFuture : min(nextLook, nextWatch) }
        watch = HangUpWatch()
        entries.withLock { entries in
            for lingering in entries.lingering { close(lingering.socket) }
            entries.lingering = []
        }
        return nil
    }

    func wait(until deadline: MonotonicInstant) -> Bool {
        wakeup.wait(until: deadline, or: entries.withLock { $0.lingering.map(\.socket) })
    }

    private var suspended: [(connection: Connection, requestNumber: UInt64)] {
        entries.withLock { entries in
            entries.connections.values.compactMap { connection in
                connection.suspendedRequestNumber.map { (connection, $0) }
            }
        }
    }

    private func cutOverdue(at now: MonotonicInstant) {
        // No socket can be closed while the lock is held, so none can be cut off in place of another.
        entries.withLock { entries in
            for connection in entries.connections.values { connection.cutIfOverdue(now) }
        }
    }

    private func drainLingering(at now: MonotonicInstant) {
        entries.withLock { entries in
            for index in entries.lingering.indices.reversed() where !discardInput(&entries.lingering[index], at: now) {
                close(entries.lingering.remove(at: index).socket)
            }
        }
    }

    /// Returns false once listening is no longer useful.
    private func discardInput(_ lingering: inout Lingering, at now: MonotonicInstant) -> Bool {
        if lingering.patience == nil { lingering.until = now + Self.lingerTime }
        let heard = read(lingering.socket)
        guard heard != .end else { return false }
        let patience = heard == .something ? nil : lingering.patience
        lingering.patience = patience ?? now + Self.lingerSilence
        return now < min(patience ?? .distantFuture, lingering.until)
    }
}

private enum ReadResult {
    case something, nothing
    /// Whether the connection is closed or broken.
    case end
}

/// Reads what has arrived, up to one mebibyte.
private func read(_ socket: Int32) -> ReadResult {
    withUnsafeTemporaryAllocation(byteCount: 64 << 10, alignment: 16) { buffer in
        var heard = ReadResult.nothing
        for _ in 0..<16 {
            let count = recv(socket, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT))
            if count == 0 { return .end }
            if count < 0 { return errno == EAGAIN || errno == EINTR ? heard : .end }
            heard = .something
        }
        return heard
    }
}
