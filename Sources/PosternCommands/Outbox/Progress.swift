import Glibc
public import PosternCore
import Synchronization

/// Shows on a terminal how far long work is, and how fast: one line, which appears after a second, changes once a second at
/// most, and is erased at the end.
public final class Progress: Sendable {
    /// Receives text for the terminal as it is, with its control characters.
    public typealias Output = @Sendable (String) -> Void

    private let what: String
    private let output: Output?
    private let time: any TimeSource
    private let start: MonotonicInstant
    private let state: Mutex<(count: Int, shownAt: MonotonicInstant)>

    /// Standard error; nil if it is not a terminal.
    public static var terminal: Output? {
        guard isatty(STDERR_FILENO) == 1 else { return nil }
        return { text in
            var text = text
            text.withUTF8 { _ = write(STDERR_FILENO, $0.baseAddress, $0.count) }
        }
    }

    /// Nothing is shown if `output` is nil.
    public init(_ what: String, on output: Output? = terminal, time: any TimeSource = SystemTime()) {
        (self.what, self.output, self.time) = (what, output, time)
        start = time.instant
        state = Mutex((0, start))
    }

    public func advance() { show { $0 + 1 } }

    /// Sets the count, and how far it will get.
    public func advance(to done: Int, of all: Int) { show(of: all) { _ in done } }

    private func show(of total: Int? = nil, _ change: (Int) -> Int) {
        guard let output else { return }
        let now = time.instant
        state.withLock { state in
            state.count = change(state.count)
            guard now - state.shownAt >= .seconds(1) else { return }
            state.shownAt = now
            let rate = Int((Double(state.count) / (now - start).inSeconds).rounded())
            output("\(Self.erasing)\(what): \(state.count)\(total.map { " of \($0)" } ?? ""), \(rate)/s")
        }
    }

    /// Call once, at the end.
    public func erase() {
        if state.withLock({ $0.shownAt != start }) { output?(Self.erasing) }
    }

    /// Returns to the first column and clears the line.
    static let erasing = "\r\u{1b}[K"
}
