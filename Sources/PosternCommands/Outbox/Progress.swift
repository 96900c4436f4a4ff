import Glibc
import PosternCore
import Synchronization

/// Shows on a terminal that long work continues: what it is, how far it is, and for how long it has run. The line
/// appears after one `interval` and is erased at the end.
public final class Progress: Sendable {
    public typealias Output = @Sendable (String) -> Void

    private let stop = Inbox<Void>()
    private let count = Atomic<Int>(0)

    /// Standard error; nil if it is not a terminal.
    public static var terminal: Output? {
        guard isatty(STDERR_FILENO) == 1 else { return nil }
        return { text in
            var text = text
            text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
        }
    }

    /// Advances the count that the line shows.
    public func advance() { count.wrappingAdd(1, ordering: .relaxed) }

    /// Runs `work`, which may call `advance`. Nothing is shown if `output` is nil.
    public static func showing<T, E: Error>(
        _ what: String, on output: Output? = terminal, every interval: Duration = .seconds(1),
        _ work: (Progress) throws(E) -> T
    ) throws(E) -> T {
        let progress = Progress()
        let thread = progress.start(what, output, interval)
        defer { progress.finish(thread) }
        return try work(progress)
    }

    public static func showingAsync<T, E: Error>(
        _ what: String, on output: Output? = terminal, every interval: Duration = .seconds(1),
        _ work: () async throws(E) -> T
    ) async throws(E) -> T {
        let progress = Progress()
        let thread = progress.start(what, output, interval)
        defer { progress.finish(thread) }
        return try await work()
    }

    private func start(_ what: String, _ output: Output?, _ interval: Duration) -> DedicatedThread? {
        output.map { output in DedicatedThread(name: "progress") { [self] in show(what, output, interval) } }
    }

    private func finish(_ thread: DedicatedThread?) {
        stop.put(())
        thread?.join()
    }

    private func show(_ what: String, _ output: Output, _ interval: Duration) {
        let start = SystemTime().instant
        var isShown = false
        var next = start + interval
        while stop.takeAll(waitingUntil: next).isEmpty {
            let seconds = (SystemTime().instant - start).components.seconds
            let number = count.load(ordering: .relaxed)
            output(Self.erasing + "\(what): \(number > 0 ? "\(number), " : "")\(seconds) s")
            isShown = true
            next = SystemTime().instant + interval
        }
        if isShown { output(Self.erasing) }
    }

    /// Returns to the first column and clears the line.
    static let erasing = "\r\u{1b}[K"
}
