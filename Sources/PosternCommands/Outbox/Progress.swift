import Glibc
import PosternCore
import Synchronization

/// Shows on a terminal that long work continues: what it is, how far it is, and how fast. The line appears after one
/// `interval` and is erased at the end.
public final class Progress: Sendable {
    /// Receives text for the terminal as it is, with its control characters.
    public typealias Output = @Sendable (String) -> Void

    private let count = Atomic<Int>(0)
    /// 0 if it is not known.
    private let total = Atomic<Int>(0)

    /// Standard error; nil if it is not a terminal.
    public static var terminal: Output? {
        guard isatty(STDERR_FILENO) == 1 else { return nil }
        return { text in
            var text = text
            text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
        }
    }

    /// Advances the count that the line shows.
    public func advance(by amount: Int = 1) { count.wrappingAdd(amount, ordering: .relaxed) }

    /// Sets the count, and how far it will get.
    public func advance(to done: Int, of all: Int) {
        count.store(done, ordering: .relaxed)
        total.store(all, ordering: .relaxed)
    }

    /// Sets how far the count will get.
    public func expect(_ all: Int) { total.store(all, ordering: .relaxed) }

    /// Runs `work`, which may call `advance`. Nothing is shown if `output` is nil.
    public static func showing<T, E: Error>(
        _ what: String, on output: Output? = terminal, every interval: Duration = .seconds(1),
        _ work: (Progress) throws(E) -> T
    ) throws(E) -> T {
        let progress = Progress()
        let line = output.map { Line(what, of: progress, on: $0, every: interval) }
        defer { line?.erase() }
        return try work(progress)
    }

    /// The same for work that is asynchronous.
    public static func showingAsync<T, E: Error>(
        _ what: String, on output: Output? = terminal, every interval: Duration = .seconds(1),
        _ work: (Progress) async throws(E) -> T
    ) async throws(E) -> T {
        let progress = Progress()
        let line = output.map { Line(what, of: progress, on: $0, every: interval) }
        defer { line?.erase() }
        return try await work(progress)
    }

    /// `copying pages: 1200 of 5000, 300/s`, or as far as the numbers are known (not 0); without any, for how long it has
    /// run.
    static func line(_ what: String, _ count: Int, of total: Int, after elapsed: Duration) -> String {
        guard count > 0 else { return "\(what): \(elapsed.components.seconds) s" }
        let rate = Double(count) / max(elapsed.inSeconds, 0.001)
        return "\(what): \(count)\(total >= count ? " of \(total)" : ""), \(Int(rate.rounded()))/s"
    }

    /// Returns to the first column and clears the line.
    static let erasing = "\r\u{1b}[K"

    /// Writes the line on a thread of its own.
    private final class Line: Loop, @unchecked Sendable {
        // @unchecked: `isShown` and `next` belong to the thread that turns.
        let name = "postern-line"
        private let what: String
        private let progress: Progress
        private let output: Output
        private let interval: Duration
        private let start = SystemTime().instant
        private let end = Inbox<Void>()
        private var isShown = false
        private var next: MonotonicInstant
        private let running = Mutex<(any RunningLoop)?>(nil)

        init(_ what: String, of progress: Progress, on output: @escaping Output, every interval: Duration) {
            self.what = what
            self.progress = progress
            self.output = output
            self.interval = interval
            next = start + interval
            // The work is done without the line if there is no thread for it.
            let started = try? DedicatedThreads().start(self)
            running.withLock { $0 = started }
        }

        func erase() {
            end.put(())
            running.withLock { $0.take() }?.join()
        }

        func turn(at now: MonotonicInstant) -> MonotonicInstant? {
            guard end.isEmpty else {
                if isShown { output(Progress.erasing) }
                return nil
            }
            guard now >= next else { return next }
            output(
                Progress.erasing
                    + Progress.line(
                        what, progress.count.load(ordering: .relaxed), of: progress.total.load(ordering: .relaxed),
                        after: now - start))
            isShown = true
            next = now + interval
            return next
        }

        func wait(until deadline: MonotonicInstant) -> Bool { end.wait(until: deadline) }
    }
}
