internal import CMicrohttpd
import Glibc
import PosternCore
import PosternThreads

/// Wakes a thread that waits in `poll`. A signal while no thread waits is remembered. If no file descriptor was left, it is
/// not open, and must not be waited on.
final class EventFD: Sendable {
    let descriptor: Int32

    init() { descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK)) }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Throws unless it is open.
    func requireOpen() throws(SystemLimitError) {
        guard descriptor >= 0 else { throw .descriptors }
    }

    func signal() {
        var one: UInt64 = 1
        _ = write(descriptor, &one, 8)
    }

    /// Clears the signals so far.
    func clear() {
        var count: UInt64 = 0
        _ = read(descriptor, &count, 8)
    }

    /// Waits for a signal, at most that long.
    func wait(_ span: Duration) { _ = wait(until: SystemTime().instant + span) }

    /// Waits for a signal or for something to read, by the machine's clock. Returns whether there was one.
    func wait(until deadline: MonotonicInstant, or sockets: [Int32] = []) -> Bool {
        var ready = ([descriptor] + sockets).map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        let isIndefinite = deadline == .distantFuture
        let count = poll(
            &ready, nfds_t(ready.count), isIndefinite ? -1 : (deadline - SystemTime().instant).pollMilliseconds)
        clear()
        return count > 0
    }
}
