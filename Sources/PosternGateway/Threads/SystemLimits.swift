import Glibc
import PosternCore
import PosternHTTP
import PosternThreads

/// What the gateway requires of the system, checked before anything is opened: a library that is refused a thread later
/// may wait for it without end (libdispatch does).
enum SystemLimits {
    /// The gateway requires about 50 descriptors of its own, and 3 more for each thread that serves connections. Each
    /// connection takes one.
    private static let leastDescriptors: UInt = 64

    /// Raises the soft limit, which is often 1024, as far as the system permits.
    static func raiseDescriptors() throws(AppError) {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(resource, &limit)
        guard limit.rlim_max >= leastDescriptors else {
            throw .system(
                "The limit of open files is \(limit.rlim_max), and the gateway requires at least \(leastDescriptors). "
                    + "Raise it (ulimit -n, LimitNOFILE=).")
        }
    }

    /// Throws unless the system gives as many threads as the start requires.
    static func checkThreads(for configuration: GatewayConfiguration) throws(AppError) {
        // Each has an inbox of its own, which only one thread takes from.
        var threads: [(thread: DedicatedThread, end: Inbox<Void>)] = []
        defer {
            for (thread, end) in threads {
                end.nudge()
                thread.join()
            }
        }
        do throws(SystemLimitError) {
            for number in 0..<threadCount(of: configuration) {
                let end = Inbox<Void>()
                let thread = try DedicatedThread(name: "postern-limit-\(number)") {
                    _ = end.takeAll(waitingUntil: nil)
                }
                threads.append((thread, end))
            }
        } catch {
            throw .system("\(error).")
        }
    }

    private static func threadCount(of configuration: GatewayConfiguration) -> Int {
        let http = configuration.server.http.workerThreads
        let workers = http > 0 ? http : max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        // The store has 2, the API 5, the transport and the resolver of names 2, a listener 2, and libdispatch 2.
        return 13 + workers + (configuration.server.admin.isOn ? 3 : 0)
            + configuration.upstreams.count(where: \.isEnabled)
    }
}
