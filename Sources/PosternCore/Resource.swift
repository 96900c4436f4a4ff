/// Something an upstream can be asked besides taking messages: a method and a path below `/v1/{upstream}/`.
public struct Resource: Sendable {
    public enum Method: String, Sendable, CaseIterable {
        case delete = "DELETE"
        case get = "GET"
        case post = "POST"
        case put = "PUT"
    }

    /// What a body may be. None at all always may.
    public enum Body: Sendable {
        /// Of the media type `application/json`, or of none.
        case json
        /// The resource judges by itself.
        case any
    }

    /// How the answer comes about.
    public enum Response: Sendable {
        /// Reads the state and nothing else; called on a reader's thread.
        case read(@Sendable (ResourceRequest, any UpstreamState) -> ResourceAnswer)
        /// Looks at the state and says what to change in it, on the writer's thread: quick, and no I/O but the state.
        /// The answer leaves once that is on disk.
        case change(@Sendable (ResourceRequest, any UpstreamState) -> ResourceChange)
        /// Takes its time: calls the last argument exactly once, on any thread. Called on the thread that serves the
        /// connection, so it must not block.
        case perform(
            @Sendable (ResourceRequest, any ResourceTools, @escaping @Sendable (ResourceAnswer) -> Void) -> Void)
    }

    public let method: Method
    /// Without a slash at the start; a segment in braces is a parameter, e.g. `sessions/{sessionCode}`.
    public let template: String
    /// Query parameters it understands; any other is refused. Nil: it judges `ResourceRequest.queryText` itself.
    public let query: [String]?
    public let body: Body
    public let response: Response
    private let segments: [Substring]

    public init(
        _ method: Method, _ template: String, query: [String]? = [], body: Body = .json, _ response: Response
    ) {
        self.method = method
        self.template = template
        self.query = query
        self.body = body
        self.response = response
        segments = template.split(separator: "/")
    }

    /// The values of the template's parameters if `path` fits it, segment by segment; its segments are percent-decoded.
    public func parameters(matching path: some Collection<Substring>) -> [String: String]? {
        guard path.count == segments.count else { return nil }
        var values: [String: String] = [:]
        for (segment, given) in zip(segments, path) {
            if segment.hasPrefix("{"), segment.hasSuffix("}") {
                guard !given.isEmpty else { return nil }
                values[String(segment.dropFirst().dropLast())] = String(given)
            } else if segment != given {
                return nil
            }
        }
        return values
    }
}

public struct ResourceRequest: Sendable {
    /// By the names of the template.
    public let parameters: [String: String]
    /// Percent-decoded; of several of one name the last.
    public let query: [String: String]
    /// As sent, without the `?`, for those to whom order, duplicates or spelling matter.
    public let queryText: String
    public let headers: [(name: String, value: String)]
    public let body: [UInt8]
    public let receivedAt: Timestamp

    public init(
        parameters: [String: String] = [:], query: [String: String] = [:], queryText: String = "",
        headers: [(name: String, value: String)] = [], body: [UInt8] = [], receivedAt: Timestamp
    ) {
        self.parameters = parameters
        self.query = query
        self.queryText = queryText
        self.headers = headers
        self.body = body
        self.receivedAt = receivedAt
    }

    /// The first header of that name, whatever its case.
    public func header(_ name: String) -> String? {
        headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }
}

public enum ResourceAnswer: Sendable, Equatable {
    /// A JSON text.
    case json(String, status: Int = 200, headers: [String: String] = [:])
    /// No body.
    case empty(status: Int = 204)
    /// A problem document; `slug` is one of the API's (design, section 3).
    case problem(slug: String, status: Int, detail: String, faults: [PayloadFault] = [])
    /// The same, with a `Retry-After`.
    indirect case later(ResourceAnswer, after: Duration)

    public static func notFound(_ detail: String) -> Self { .problem(slug: "not-found", status: 404, detail: detail) }
}

public struct ResourceChange: Sendable {
    public let changes: [StateChange]
    /// Sent once `changes` are on disk.
    public let answer: ResourceAnswer

    public init(_ changes: [StateChange] = [], answer: ResourceAnswer) {
        self.changes = changes
        self.answer = answer
    }
}

/// What a resource that takes its time may use; for one upstream, from any thread.
public protocol ResourceTools: Sendable {
    var time: any TimeSource { get }
    /// Sends a request beside the queue; `timeout` bounds the whole exchange.
    func send(_ request: UpstreamRequest, timeout: Duration, completion: @escaping @Sendable (TransferResult) -> Void)
    /// Reads the state on one snapshot, both on a reader's thread; `completion` gets nil when the store cannot be read.
    func read<T: Sendable>(
        _ body: @escaping @Sendable (any UpstreamState) -> T, completion: @escaping @Sendable (T?) -> Void)
    /// `completion` is told, on the writer's thread, whether the changes are on disk.
    func change(_ changes: [StateChange], completion: @escaping @Sendable (Bool) -> Void)
}
