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

    /// What a line says.
    struct Entry {
        let head: RequestHead
        let route: String
        let status: Int
        /// Nil unless a problem was sent.
        var slug: ProblemSlug?
        /// The name of the API key.
        var key: String?
        /// The size of the body as it arrived.
        var bytes = 0
        /// From the headers to the response.
        var duration = Duration.zero
        /// The messages that were stored.
        var ids: [MessageID] = []
    }

    func answered(status: Int, _ entry: @autoclosure () -> Entry) {
        guard status < 400 else { return rejected(entry()) }
        guard logger.logLevel <= .debug else { return }
        logger.debug("request answered", metadata: Self.metadata(entry()))
    }

    func rejected(_ entry: @autoclosure () -> Entry) { logRejection(Self.metadata(entry())) }

    /// The same for a request whose headers were not complete.
    func rejected(_ request: UnreadRequest, route: String) { logRejection(Self.metadata(request, route)) }

    private func logRejection(_ metadata: @autoclosure () -> Logger.Metadata) {
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
            logger.info("requests rejected; lines omitted", metadata: ["requests": .stringConvertible(omitted)])
        }
        guard lines <= Self.rejectionsPerSecond else { return }
        logger.info("request rejected", metadata: metadata())
    }

    private static func metadata(_ request: UnreadRequest, _ route: String) -> Logger.Metadata {
        var metadata: Logger.Metadata = [
            "request.id": "\(request.id)", "route": "\(route)", "http.status": .stringConvertible(request.status),
            "client": "\(request.peer)", "problem": "\(request.slug.rawValue)",
        ]
        metadata["http.method"] = request.method.map { "\($0)" }
        return metadata
    }

    private static func metadata(_ entry: Entry) -> Logger.Metadata {
        var metadata: Logger.Metadata = [
            "request.id": "\(entry.head.requestID)", "http.method": "\(entry.head.method)", "route": "\(entry.route)",
            "http.status": .stringConvertible(entry.status), "client": "\(entry.head.peer)",
            "bytes": .stringConvertible(entry.bytes),
            "durationMs": .stringConvertible(entry.duration.inMilliseconds),
        ]
        metadata["key"] = entry.key.map { "\($0)" }
        metadata["problem"] = entry.slug.map { "\($0.rawValue)" }
        metadata["traceparent"] = TraceParent(entry.head).map { "\($0.text)" }
        if let first = entry.ids.first {
            metadata["message.id"] = "\(first)"
            metadata["messages"] = .stringConvertible(entry.ids.count)
        }
        return metadata
    }
}
