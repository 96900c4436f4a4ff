import Glibc
import Synchronization

/// A thread for work that blocks and therefore must not run on the cooperative pool. It is named, and all signals are
/// blocked. The gateway starts one for each `Loop` (`DedicatedThreads`).
public final class DedicatedThread: RunningLoop {
    private let handle: pthread_t
    private let isJoined = Atomic<Bool>(false)

    /// Starts `body` on a new thread called `name` (at most 15 bytes are shown by the system).
    public init(name: String, _ body: @escaping @Sendable () -> Void) throws(SystemLimitError) {
        let start = Unmanaged.passRetained(Start(name: name, body: body))
        var handle = pthread_t()
        let result = pthread_create(&handle, nil, threadMain, start.toOpaque())
        guard result == 0 else {
            start.release()
            throw .thread(name, result)
        }
        self.handle = handle
    }

    // Only a thread that gives up the last reference to itself has not been joined.
    deinit { if !isJoined.load(ordering: .acquiring) { pthread_detach(handle) } }

    /// Waits until the body has returned. Returns at once on this thread itself, and if it was called before.
    public func join() {
        let isCurrent = pthread_equal(handle, pthread_self()) != 0
        guard !isCurrent, !isJoined.exchange(true, ordering: .acquiringAndReleasing) else { return }
        pthread_join(handle, nil)
    }
}

private final class Start {
    let name: String
    let body: @Sendable () -> Void
    init(name: String, body: @escaping @Sendable () -> Void) {
        self.name = name
        self.body = body
    }
}

private let threadMain: @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? = { context in
    guard let context else { return nil }
    let start = Unmanaged<Start>.fromOpaque(context).takeRetainedValue()
    // Signals are left to the main thread.
    var all = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_BLOCK, &all, nil)
    // Glibc declares `pthread_setname_np` only with _GNU_SOURCE; writing the kernel's file does the same.
    let file = open("/proc/thread-self/comm", O_WRONLY | O_CLOEXEC)
    if file >= 0 {
        var name = String(start.name.prefix(15))
        _ = name.withUTF8 { write(file, $0.baseAddress, $0.count) }
        close(file)
    }
    start.body()
    return nil
}
