import Glibc
import PosternCore

/// Turns signals into calls on a thread of their own.
///
/// The handlers write the signal's number into a pipe, whichever thread they run on: the runtime starts threads before
/// our first line, so blocking signals everywhere and waiting for them is not to be had.
public enum Signals {
    public enum Signal: Sendable { case stop, reload }

    /// Calls `handle` for SIGTERM and SIGINT (`stop`) and SIGHUP (`reload`), until the process ends. Call once.
    public static func listen(_ handle: @escaping @Sendable (Signal) -> Void) {
        var ends: [Int32] = [-1, -1]
        precondition(pipe(&ends) == 0, "no descriptors left")
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        let readingEnd = ends[0]
        writingEnd = ends[1]
        for number in [SIGTERM, SIGINT, SIGHUP] { signal(number, forward) }
        // A client that hangs up, and a file-size limit that is reached, are errors of the call, not our end.
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)
        _ = DedicatedThread(name: "postern-signals") {
            var number: UInt8 = 0
            while true {
                let count = read(readingEnd, &number, 1)
                if count == 1 { handle(Int32(number) == SIGHUP ? .reload : .stop) }
                if count == 0 { return }
            }
        }
    }
}

/// Written once, before the handlers that read it are installed.
private nonisolated(unsafe) var writingEnd: Int32 = -1

/// Only calls what POSIX allows in a handler.
private let forward: @convention(c) (Int32) -> Void = { number in
    let saved = errno
    var byte = UInt8(truncatingIfNeeded: number)
    _ = write(writingEnd, &byte, 1)
    errno = saved
}
