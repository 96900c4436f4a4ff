import Glibc
import Logging
internal import PosternCore
import Synchronization

/// A thread that accepts connections and deals them out to the workers in turn.
final class Acceptor: Sendable {
    private let listener: Listener
    private let admissions: Admissions
    private let logger: Logger
    private let bell = Bell()
    private let isStopped = Atomic<Bool>(false)
    private let thread = Mutex<DedicatedThread?>(nil)

    init(_ listener: Listener, _ admissions: Admissions, _ logger: Logger) {
        self.listener = listener
        self.admissions = admissions
        self.logger = logger
    }

    func start(for workers: [Worker]) {
        let started = DedicatedThread(name: "postern-accept") { [self] in loop(workers) }
        thread.withLock { $0 = started }
    }

    /// Closes the listener, when its thread has let go of it.
    func stop() {
        isStopped.store(true, ordering: .releasing)
        bell.ring()
        thread.withLock { $0.take() }?.join()
        close(listener.socket)
    }

    private func loop(_ workers: [Worker]) {
        var turn = 0
        while !isStopped.load(ordering: .acquiring) {
            var ready = [listener.socket, bell.descriptor].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            poll(&ready, 2, -1)
            while !isStopped.load(ordering: .acquiring), accept(for: workers[turn]) {
                turn = (turn + 1) % workers.count
            }
        }
    }

    /// False when nobody waits any more, or nothing can be done for those who do.
    private func accept(for worker: Worker) -> Bool {
        var address = sockaddr_storage()
        var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let (socket, peer) = withUnsafeMutableBytes(of: &address) {
            let pointer = $0.assumingMemoryBound(to: sockaddr.self).baseAddress!
            let socket = Glibc.accept(listener.socket, pointer, &size)
            return (socket, PeerAddress(pointer))
        }
        guard socket >= 0 else { return isWorthRetrying(errno) }
        _ = fcntl(socket, F_SETFD, FD_CLOEXEC)
        if admissions.admit(peer) {
            worker.add(.init(socket: socket, address: address, size: size, peer: peer))
        } else {
            close(socket)
        }
        return true
    }

    private func isWorthRetrying(_ code: Int32) -> Bool {
        switch code {
        case EAGAIN: return false
        case ECONNABORTED, EINTR, EPROTO: return true
        default:
            logger.error(
                "cannot accept connections; trying again", metadata: ["error": "\(String(cString: strerror(code)))"])
            bell.wait(.milliseconds(100))
            return false
        }
    }
}
