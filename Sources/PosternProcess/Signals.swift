import Glibc
public import PosternCore
public import PosternThreads

/// The signals that the process gets, for a thread that waits for them.
///
/// The handlers write the signal's number into a pipe, whichever thread they run on: the runtime starts threads before
/// our first line, so signals cannot be blocked everywhere and waited for.
public struct Signals: Sendable {
    public enum Signal: Sendable { case stop, reload }

    private let readingEnd: Int32
    private let writingEnd: Int32

    /// Without the process's signals: returns only those that `put` adds.
    public init() throws(SystemLimitError) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw .descriptors }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        (readingEnd, writingEnd) = (ends[0], ends[1])
    }

    /// From now on SIGTERM and SIGINT (`stop`) and SIGHUP (`reload`) are stored until they are taken. Call once.
    public static func receive() throws(SystemLimitError) -> Signals {
        let signals = try Signals()
        forwardingEnd = signals.writingEnd
        for number in [SIGTERM, SIGINT, SIGHUP] { signal(number, forward) }
        // A client that hangs up, and a file-size limit that is reached, are errors of the call and must not end the
        // process.
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)
        return signals
    }

    /// Adds a signal as if the system had sent it. Any thread.
    public func put(_ signal: Signal) {
        var byte = UInt8(signal == .reload ? SIGHUP : SIGTERM)
        _ = write(writingEnd, &byte, 1)
    }

    /// Takes the oldest signal. Nil if there is none.
    public func take() -> Signal? {
        guard wait(until: .distantPast) else { return nil }
        var number: UInt8 = 0
        return read(readingEnd, &number, 1) == 1 ? (Int32(number) == SIGHUP ? .reload : .stop) : nil
    }

    /// Waits until there is a signal to take, `input` can be read or has ended, or the machine's monotonic clock reaches
    /// `deadline`. Returns whether there is a signal.
    public func wait(until deadline: MonotonicInstant, orFor input: Int32? = nil) -> Bool {
        while true {
            var ready = ([readingEnd] + (input.map { [$0] } ?? [])).map {
                pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
            }
            let left = deadline == .distantFuture ? -1 : (deadline - SystemTime().instant).pollMilliseconds
            if poll(&ready, nfds_t(ready.count), left) >= 0 || errno != EINTR { return ready[0].revents != 0 }
        }
    }
}

/// Written once, before the handlers that read it are installed.
private nonisolated(unsafe) var forwardingEnd: Int32 = -1

/// Only calls what POSIX allows in a handler.
private let forward: @convention(c) (Int32) -> Void = { number in
    let saved = errno
    var byte = UInt8(truncatingIfNeeded: number)
    _ = write(forwardingEnd, &byte, 1)
    errno = saved
}
