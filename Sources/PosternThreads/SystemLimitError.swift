import Glibc

/// The system does not give the process a thread or a file descriptor that it requires.
public struct SystemLimitError: Error, Sendable, Equatable, CustomStringConvertible {
    /// What happened and what to do, without a full stop.
    public let description: String

    /// `EX_OSERR` of sysexits.h, for a process that cannot start or work because of it.
    public static let exitCode: Int32 = 71

    /// - Parameter code: Returned by `pthread_create`.
    public static func thread(_ name: String, _ code: Int32) -> Self {
        Self(
            description: "cannot start the thread \(name): \(String(cString: strerror(code))); raise the limit of "
                + "processes and threads (ulimit -u, TasksMax=, pids.max)")
    }

    /// No file descriptor is left.
    public static let descriptors = Self(
        description: "no file descriptors are left; raise the limit of open files (ulimit -n, LimitNOFILE=)")
}
