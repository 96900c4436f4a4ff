import Glibc

/// A thread of our own, for work that blocks and so must not sit on the cooperative pool.
public final class OwnThread: @unchecked Sendable {
    // @unchecked: `handle` is written once in `init` and read by `join`, which one caller calls.
    private var handle = pthread_t()

    /// Starts `body` on a new thread called `name` (at most 15 bytes are shown by the system).
    public init(name: String, _ body: @escaping @Sendable () -> Void) {
        let start = Unmanaged.passRetained(Start(name: name, body: body))
        let result = pthread_create(&handle, nil, threadMain, start.toOpaque())
        precondition(result == 0, "cannot start a thread: \(String(cString: strerror(result)))")
    }

    /// Whether the calling thread is this one.
    public var isCurrent: Bool { pthread_equal(handle, pthread_self()) != 0 }

    /// Waits until the body has returned. Call once.
    public func join() { pthread_join(handle, nil) }
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
    // Signals are left to the threads that expect them.
    var all = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_BLOCK, &all, nil)
    // Glibc shows `pthread_setname_np` only with _GNU_SOURCE; the kernel's file does the same.
    let file = open("/proc/thread-self/comm", O_WRONLY | O_CLOEXEC)
    if file >= 0 {
        var name = String(start.name.prefix(15))
        _ = name.withUTF8 { write(file, $0.baseAddress, $0.count) }
        close(file)
    }
    start.body()
    return nil
}
