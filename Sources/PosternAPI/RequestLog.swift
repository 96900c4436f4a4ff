import Glibc
import Logging
import PosternCore
import PosternHTTP
import Synchronization

/// One line for each request: rejected ones at `info`, all others at `debug`. Nothing is built for a line that the
/// level leaves out.
final class RequestLog: Sendable {
    private let logger: Logger
    /// More lines in a second add no information and would slow down a gateway that is overloaded already.
    private static let rejectionsPerSecond = 50
    private struct Second {
        var number = 0
        var lines = 0
    }
    private let current = Mutex(Second())

    init(_ logger: Logger) { self.logger = logger }

    func answered(
        _ head: RequestHead, route: String, status: Int, slug: ProblemSlug?, took duration: Duration
    ) {
        guard status < 400 else { return rejected(head, route: route, status: status, slug: slug) }
        guard logger.logLevel <= .debug else { return }
        var metadata = Self.metadata(head, route, status)
        metadata["durationMs"] = "\(duration.wholeMilliseconds)"
        logger.debug("request answered", metadata: metadata)
    }

    func rejected(_ head: RequestHead, route: String, status: Int, slug: ProblemSlug?) {
        guard logger.logLevel <= .info else { return }
        let number = time(nil)
        let (lines, before) = current.withLock { current in
            let before = current.number == number ? nil : current
            if before != nil { current = Second(number: number) }
            current.lines += 1
            return (current.lines, before)
        }
        if let before, before.lines > Self.rejectionsPerSecond {
            let omitted = before.lines - Self.rejectionsPerSecond
            logger.info("requests rejected; lines omitted", metadata: ["requests": "\(omitted)"])
        }
        guard lines <= Self.rejectionsPerSecond else { return }
        var metadata = Self.metadata(head, route, status)
        if let slug { metadata["problem"] = "\(slug.rawValue)" }
        logger.info("request rejected", metadata: metadata)
    }

    private static func metadata(_ head: RequestHead, _ route: String, _ status: Int) -> Logger.Metadata {
        [
            "request.id": "\(head.requestID)", "http.method": "\(head.method)", "route": "\(route)",
            "http.status": "\(status)", "client": "\(head.peer)",
        ]
    }
}
