import Glibc
import PosternCore

/// Turns signals into calls on a thread of their own.
///
/// `block` has to run before any other thread starts: threads inherit the mask, and a signal that some thread does not
/// block would end the process instead of reaching `listen`.
public enum Signals {
    public enum Signal: Sendable { case stop, reload }

    private static let numbers = [SIGTERM, SIGINT, SIGHUP]

    private static var set: sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for number in numbers { sigaddset(&set, number) }
        return set
    }

    public static func block() {
        var mask = set
        pthread_sigmask(SIG_BLOCK, &mask, nil)
        // A client that hangs up, and a file-size limit that is reached, are errors of the call, not our end.
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)
    }

    /// Calls `handle` for each signal until the process ends.
    public static func listen(_ handle: @escaping @Sendable (Signal) -> Void) {
        _ = OwnThread(name: "postern-signals") {
            var mask = set
            while true {
                var number: Int32 = 0
                guard sigwait(&mask, &number) == 0 else { continue }
                handle(number == SIGHUP ? .reload : .stop)
            }
        }
    }
}
