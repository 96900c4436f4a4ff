import Glibc

/// Starts a thread, to be joined or detached. For work that blocks, which the cooperative pool's threads must not.
func startThread(_ body: @escaping @Sendable () -> Void) -> pthread_t {
    var thread = pthread_t()
    let code = pthread_create(&thread, nil, threadMain, Unmanaged.passRetained(ThreadBody(body)).toOpaque())
    precondition(code == 0, "no thread left")
    return thread
}

private final class ThreadBody: Sendable {
    let run: @Sendable () -> Void
    init(_ run: @escaping @Sendable () -> Void) { self.run = run }
}

private let threadMain: @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? = { context in
    Unmanaged<ThreadBody>.fromOpaque(context!).takeRetainedValue().run()
    return nil
}
