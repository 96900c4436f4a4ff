public import PosternCore

/// A route of an upstream's type in addition to ingest: a method and a path below `/v1/{upstream}/`.
public struct UpstreamRoute: Sendable {
    public typealias Method = UpstreamRequest.Method

    /// The accepted form of a body. A request without a body is always accepted.
    public enum Body: Sendable {
        /// A body of the media type `application/json`, or without one.
        case json
        /// The resource validates the body itself.
        case any
    }

    /// How the response is produced.
    public enum Response: Sendable {
        /// Only reads the state. Called on a reader's thread.
        case read(@Sendable (UpstreamRouteRequest, any UpstreamState) -> UpstreamRouteResponse)
        /// Reads the state and returns its changes, on the writer's thread: it must be quick and do no I/O except
        /// reading the state. The response is sent once the changes are on disk.
        case change(@Sendable (UpstreamRouteRequest, any UpstreamState) -> UpstreamRouteChange)
        /// Waits for other systems. Starts on the thread that serves the connection and continues wherever it is
        /// resumed, so it must not block. If the caller hangs up, the task is cancelled and the response is discarded.
        case perform(
            @Sendable (UpstreamRouteRequest, any UpstreamRouteContext) async throws(UpstreamRouteResponse) ->
                UpstreamRouteResponse)
    }

    public let method: Method
    /// Without a slash at the start; a segment in braces is a parameter, e.g. `sessions/{sessionCode}`.
    public let template: String
    /// The accepted query parameters. Nil if the resource validates `UpstreamRouteRequest.queryText` itself.
    public let query: [String]?
    /// What the caller needs; checked before the request reaches the upstream.
    public let access: RouteAccess
    public let body: Body
    /// The status of its successful responses.
    public let status: Int
    public let response: Response
    private let path: PathTemplate

    /// `access` is by default the scope `read` for GET and `write` for any other method.
    public init(
        _ method: Method, _ template: String, query: [String]? = [], access: RouteAccess? = nil, body: Body = .json,
        status: Int = 200, _ response: Response
    ) {
        self.method = method
        self.template = template
        self.query = query
        self.access = access ?? .scope(method == .get ? .read : .write)
        self.body = body
        self.status = status
        self.response = response
        path = PathTemplate(template)
    }

    /// The values of the template's parameters if `path` matches it, segment by segment; its segments are
    /// percent-decoded. No value is empty.
    public func parameters(matching path: some Collection<Substring>) -> [String: String]? {
        self.path.parameters(matching: path).flatMap { $0.values.contains("") ? nil : $0 }
    }
}

/// A request for such a route, after routing and authentication.
public struct UpstreamRouteRequest: Sendable {
    /// The path parameters, by the names in the template.
    public let parameters: [String: String]
    /// The query parameters, percent-decoded. If a name occurs several times, the last one counts.
    public let query: [String: String]
    /// The query as it was sent, without the `?`, for resources to which order, duplicates, or spelling matter.
    public let queryText: String
    /// In the order received, with duplicates. May contain credentials.
    public let headers: [(name: String, value: String)]
    /// Decompressed; empty if there was none.
    public let body: [UInt8]
    /// The time for everything that the response depends on.
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

/// The response to such a request; thrown, it says why the request is rejected.
public enum UpstreamRouteResponse: Error, Equatable {
    /// A JSON text.
    case json(String, status: Int = 200, headers: [String: String] = [:])
    /// A JSON text that the upstream sent, which is passed on byte for byte.
    case forwarded([UInt8], headers: [String: String] = [:])
    /// No body.
    case empty(status: Int = 204)
    /// A problem document.
    case problem(slug: ProblemSlug, status: Int, detail: String, faults: PayloadErrors = [])
    /// The problem of a body that is not valid JSON. The text says what is wrong, and at which byte: `offset`.
    case invalidJSON(String, offset: Int)
    /// A problem document with a `Retry-After`.
    indirect case later(UpstreamRouteResponse, after: Duration)

    /// The problem for a session, item, or other object that does not exist; `detail` names it.
    public static func notFound(_ detail: String) -> Self { .problem(slug: .notFound, status: 404, detail: detail) }
}

/// A response together with the state changes on which it depends.
public struct UpstreamRouteChange: Sendable {
    /// Stored before the response is sent; may be empty.
    public let changes: [StateChange]
    /// The response, which is sent once `changes` are on disk.
    public let answer: UpstreamRouteResponse

    public init(_ changes: [StateChange] = [], answer: UpstreamRouteResponse) {
        self.changes = changes
        self.answer = answer
    }
}

/// Too many large requests are in progress.
public struct OverloadError: Error, Sendable, Equatable {
    public init() {}
}

/// Why the state of an upstream could not be used. The log has the cause.
public enum StateError: Error, Sendable, Equatable, CustomStringConvertible {
    case unreadable
    /// The state could not be written. None of the changes is stored.
    case unwritable

    public var description: String {
        switch self {
        case .unreadable: "The store cannot be read; see the log."
        case .unwritable: "The store cannot be written; nothing was changed."
        }
    }
}

/// The services of a resource that waits for other systems; for one upstream, from any thread.
public protocol UpstreamRouteContext: Sendable {
    var time: any TimeSource { get }

    /// Does work that keeps a core busy for long, such as hashing a password, on a thread of its own. One piece runs at a
    /// time, over all upstreams.
    func compute(_ work: @escaping @Sendable () -> Void)

    /// The number of such pieces of work that have not begun.
    var waitingComputations: Int { get }

    /// Does work for a caller who has not proven who it is, such as checking a signature over `bytes` of a body.
    ///
    /// Such a caller needs no key, so its work must not hold up others. Little of it is done at once, on the calling
    /// thread. Of the rest, one piece is done at a time, on a thread of its own: addresses take turns, and what may wait is
    /// bounded for each route and each address. Throws if there is too much.
    ///
    /// - Parameter work: Returns soon after its parameter returns true, because the caller has hung up.
    func check<T: Sendable>(
        _ bytes: Int, _ work: @escaping @Sendable (_ isCancelled: () -> Bool) -> T
    ) async throws(OverloadError) -> T

    /// Counts a caller that has not proven who it is like one with a wrong key, and returns when it may be answered: at
    /// once after the first few failures of an address, later after more of them.
    func delayRefusal() async

    /// Reserves the memory that it takes to parse a body of so many bytes, until the end of the request. On a route
    /// that is open, nothing is reserved before, so it is called when the caller has proven who it is.
    func reserveToParse(_ bytes: Int) throws(OverloadError)

    /// Sends a request outside the queue; `timeout` bounds the whole exchange.
    ///
    /// - Parameter isAbortable: Whether the request is aborted, and fails with `.cancelled`, when the task is
    ///   cancelled. If not, it runs to its end, so that the changes that follow from the response are not lost.
    func send(_ request: UpstreamRequest, timeout: Duration, isAbortable: Bool) async -> TransferResult

    /// Reads the state on one snapshot; `body` runs on a reader's thread.
    func read<T: Sendable>(
        _ body: @escaping @Sendable (any UpstreamState) -> T
    ) async throws(StateError) -> T

    /// Returns once the changes are on disk.
    func change(_ changes: [StateChange]) async throws(StateError)

    /// Passes the changes to the writer, after all earlier ones, without waiting for the disk. If the process stops
    /// before the next commit they are lost.
    func enqueue(_ changes: [StateChange])

    /// Reports something that an operator should read once, as `Judgement.notice` does for a message.
    func report(_ notice: UpstreamNotice)

    /// Nil unless the upstream serves the SDKs of its platform (`SDKServingUpstream`).
    var sdk: (any SDKContext)? { get }
}

extension UpstreamRouteContext {
    /// Nil by default.
    public var sdk: (any SDKContext)? { nil }
}
