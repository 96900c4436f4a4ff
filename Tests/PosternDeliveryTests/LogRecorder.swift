import Logging
import Synchronization

/// Keeps what is logged.
struct LogRecorder: LogHandler {
    struct Line: Sendable {
        let level: Logger.Level
        let message: String
        let metadata: [String: String]
    }
    private final class Lines: Sendable {
        let all = Mutex<[Line]>([])
    }
    private let kept = Lines()
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let line = Line(
            level: event.level, message: "\(event.message)",
            metadata: (event.metadata ?? [:]).mapValues { "\($0)" })
        kept.all.withLock { $0.append(line) }
    }

    func lines(_ message: String) -> [Line] { kept.all.withLock { $0.filter { $0.message == message } } }
    var lines: [Line] { kept.all.withLock { $0 } }
}
