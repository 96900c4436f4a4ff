import Glibc
import Synchronization

/// Where log lines go. A reader that takes none, such as a collector that hangs behind a pipe, must not stop the program:
/// lines that it does not take are dropped, and a line that counts them comes before the next one.
final class LogOutput: Sendable {
    static let standardError = LogOutput(to: STDERR_FILENO)

    private struct State {
        var lost = 0
        /// Whether the last line was cut off.
        var isInsideLine = false
    }
    private let state = Mutex(State())
    private let descriptor: Int32
    /// How long, in milliseconds, the log waits for a reader that has read everything so far.
    private static let patience: Int32 = 20
    /// A pipe that is ready takes that much without blocking.
    private static let pipeBuffer = 4096

    init(to descriptor: Int32) { self.descriptor = descriptor }

    /// Lines of several threads are not mixed. `report` makes the line that says how many were lost.
    func write(_ line: String, report: (_ lost: Int) -> String) {
        state.withLock { state in
            if state.lost > 0 {
                guard send(report(state.lost), &state, milliseconds: 0) else { return state.lost += 1 }
                state.lost = 0
            }
            if !send(line, &state, milliseconds: Self.patience) { state.lost += 1 }
        }
    }

    /// Returns false if not all of it was taken.
    private func send(_ line: String, _ state: inout State, milliseconds: Int32) -> Bool {
        let bytes = Array((state.isInsideLine ? "\n\(line)" : line).utf8)
        return bytes.withUnsafeBytes { bytes in
            var sent = 0
            while sent < bytes.count {
                var ready = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                let isReady = poll(&ready, 1, milliseconds)
                if isReady < 0, errno == EINTR { continue }
                guard isReady > 0 else { return false }
                let count = Glibc.write(
                    descriptor, bytes.baseAddress! + sent, min(bytes.count - sent, Self.pipeBuffer))
                if count < 0, errno == EINTR { continue }
                guard count > 0 else { return false }
                sent += count
                state.isInsideLine = sent < bytes.count
            }
            return true
        }
    }
}
