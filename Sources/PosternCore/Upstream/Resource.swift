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
        case read(@Sendable (ResourceRequest, any UpstreamState) throws -> ResourceAnswer)
        /// Looks at the state and says what to change in it, on the writer's thread: quick, and no I/O but the state.
        /// The answer leaves once that is on disk.
        case change(@Sendable (ResourceRequest, any UpstreamState) throws -> ResourceChange)
        /// Waits for other systems. Starts on the thread that serves the connection and goes on wherever it is resumed,
        /// so it must not block. If the caller hangs up, the task is cancelled and the answer is dropped.
        case perform(@Sendable (ResourceRequest, any ResourceTools) async throws(ResourceRefusal) -> ResourceAnswer)
    }

    public let method: Method
    /// Without a slash at the start; a segment in braces is a parameter, e.g. `sessions/{sessionCode}`.
    public let template: String
    /// The accepted query parameters. Nil if the resource validates `ResourceRequest.queryText` itself.
    public let query: [String]?
    public let access: RouteAccess
    public let body: Body
    public let response: Response
    private let path: PathTemplate

    /// `access` is by default the scope `read` for GET and `write` for any other method.
    public init(
        _ method: Method, _ template: String, query: [String]? = [], access: RouteAccess? = nil, body: Body = .json,
        _ response: Response
    ) {
        self.method = method
        self.template = template
        self.query = query
        self.access = access ?? .scope(method == .get ? .read : .write)
        self.body = body
        self.response = response
        path = PathTemplate(template)
    }

    /// The values of the template's parameters if `path` fits it, segment by segment; its segments are percent-decoded.
    /// No value is empty.
    public func parameters(matching path: some Collection<Substring>) -> [String: String]? {
        self.path.parameters(matching: path).flatMap { $0.values.contains("") ? nil : $0 }
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

    /// The seconds of `Prefer: wait=N`, 1 to 60.
    public var wait: Int? {
        PreferHeader(headers.lazy.filter { $0.name.lowercased() == "prefer" }.map(\.value)).wait
    }
}

public enum ResourceAnswer: Sendable, Equatable {
    /// A JSON text.
    case json(String, status: Int = 200, headers: [String: String] = [:])
    /// No body.
    case empty(status: Int = 204)
    /// A problem document.
    case problem(slug: ProblemSlug, status: Int, detail: String, faults: PayloadFaults = [])
    /// The same, with a `Retry-After`.
    indirect case later(ResourceAnswer, after: Duration)

    public static func notFound(_ detail: String) -> Self { .problem(slug: .notFound, status: 404, detail: detail) }
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

/// Why a request is answered without doing what it asks for.
public struct ResourceRefusal: Error, Sendable {
    public let answer: ResourceAnswer

    public init(_ answer: ResourceAnswer) { self.answer = answer }

    public init(_ slug: ProblemSlug, _ status: Int, _ detail: String, faults: PayloadFaults = []) {
        self.init(.problem(slug: slug, status: status, detail: detail, faults: faults))
    }

    public init(_ error: StateError) { self.init(.internal, 500, "\(error)") }
}

/// Why the state of an upstream could not be used. The log has the cause.
public enum StateError: Error, Sendable, Equatable, CustomStringConvertible {
    case unreadable
    /// Nothing of the changes is stored.
    case unwritable

    public var description: String {
        switch self {
        case .unreadable: "The store cannot be read; the log says why."
        case .unwritable: "The store cannot be written; nothing was changed."
        }
    }
}

/// What a resource that waits for other systems may use; for one upstream, from any thread.
public protocol ResourceTools: Sendable {
    var time: any TimeSource { get }

    /// For work that keeps a core busy for long, such as hashing a password. One piece runs at a time, over all
    /// upstreams.
    var computations: BlockingExecutor { get }

    /// Sends a request outside the queue; `timeout` bounds the whole exchange.
    ///
    /// - Parameter isAbortable: Whether the request is aborted, and fails with `.cancelled`, when the task is cancelled.
    ///   If not, it runs to its end, so that what follows from the response is not lost.
    func send(_ request: UpstreamRequest, timeout: Duration, isAbortable: Bool) async -> TransferResult

    /// Reads the state on one snapshot; `body` runs on a reader's thread.
    func read<T: Sendable>(
        _ body: @escaping @Sendable (any UpstreamState) throws -> T
    ) async throws(StateError) -> T

    /// Returns once the changes are on disk.
    func change(_ changes: [StateChange]) async throws(StateError)

    /// Hands the changes to the writer, behind all that were handed over before, without waiting for the disk. If the
    /// process stops before the next commit they are lost.
    func enqueue(_ changes: [StateChange])
}
