public import PosternCore

/// What the gateway answers to the SDKs of a platform: values that turn a request into messages, and an outcome into an
/// answer.
public struct SDKEndpoints: Sendable {
    public let settings: SDKSettings
    /// The path below which they are: `/sdk/<name>`, unless the settings name another one.
    public let prefix: String
    public let routes: [SDKRoute]
    /// How the platform refuses a request. Everything that the gateway refuses below the prefix is answered so.
    public let refusal: @Sendable (SDKRefusal) -> SDKAnswer
    /// The same for a request that no route fits, for a platform that checks its callers before the path.
    public let unrouted: @Sendable (SDKRequest, SDKRefusal) -> SDKAnswer
    /// How long a request for which there is no room is held, in case there is some meanwhile; zero for SDKs that survive a
    /// refusal.
    public let patience: Duration
    /// What is likely to be a mistake, by the name of the setting below `sdk`.
    public let warnings: [(setting: String, detail: String)]

    public init(
        _ settings: SDKSettings, of name: UpstreamName, _ routes: [SDKRoute], patience: Duration = .zero,
        warnings: [(setting: String, detail: String)] = [],
        unrouted: (@Sendable (SDKRequest, SDKRefusal) -> SDKAnswer)? = nil,
        refusal: @escaping @Sendable (SDKRefusal) -> SDKAnswer
    ) {
        self.settings = settings
        self.routes = routes
        self.patience = patience
        self.warnings = warnings
        self.refusal = refusal
        self.unrouted = unrouted ?? { refusal($1) }
        prefix = settings.prefix(of: name)
    }
}

/// A call of an SDK: a method and a path below the prefix.
public struct SDKRoute: Sendable {
    public typealias Method = UpstreamRoute.Method

    /// Who is let in.
    public enum Access: Sendable {
        /// Who presents an API key with the scope `write` for the upstream, as a Bearer token or as the password of Basic
        /// (RFC 7617).
        case key
        /// Anyone.
        case open
        /// Who passes a check of the request without its body. It returns the answer to a stranger. For what is stored, it may
        /// depend on `Authorization`, the query, and the time alone: a connection that repeats the call with both is not
        /// checked again for five seconds.
        case head(@Sendable (SDKRequest) -> SDKAnswer?)
        /// Who passes the check that the call itself makes, since the body proves who sends it.
        case body
    }

    /// How the answer is produced.
    public enum Response: Sendable {
        /// Stores nothing. Runs on the thread that serves the connection; it must not block.
        case answer(@Sendable (SDKRequest) throws(SDKAnswer) -> SDKAnswer)
        /// Reads the request. What it brings is stored in one transaction, and the answer leaves once that is on disk. Runs on
        /// the thread that serves the connection; it must not block.
        case store(@Sendable (SDKRequest) throws(SDKAnswer) -> SDKSubmission)
        /// Waits for other systems. Starts on that thread and continues wherever it is resumed, so it must not block. If the
        /// caller hangs up, the task is cancelled, and the answer is discarded.
        case perform(@Sendable (SDKRequest, any SDKContext) async throws(SDKAnswer) -> SDKAnswer)
    }

    /// Unique among the routes of an upstream; for metrics and logs, which never have the path.
    public let call: String
    /// The names of further calls that have the same method and path: the answer says which one it is (`SDKAnswer.call`).
    public let furtherCalls: [String]
    public let method: Method
    /// Without a slash at the start; a segment in braces is a parameter, e.g. `groups/{group}`.
    public let template: String
    /// Another path of it, which is not documented.
    public let alias: String?
    /// Whether it is served at the root, too, for clients that drop the path of their URL.
    public let isAtRoot: Bool
    public let access: Access
    /// The answer if there is no room, or the gateway is not ready, for a call for which the platform's refusal does not do.
    public let withoutRoom: SDKAnswer?
    public let response: Response

    public init(
        _ call: String, or furtherCalls: [String] = [], _ method: Method, _ template: String, alias: String? = nil,
        isAtRoot: Bool = false, withoutRoom: SDKAnswer? = nil, _ access: Access, _ response: Response
    ) {
        self.call = call
        self.furtherCalls = furtherCalls
        self.method = method
        self.template = template
        self.alias = alias
        self.withoutRoom = withoutRoom
        self.isAtRoot = isAtRoot
        self.access = access
        self.response = response
    }
}

/// A request of an SDK.
public struct SDKRequest: Sendable {
    public let method: String
    /// As it was sent, with the prefix, without the query.
    public let path: String
    /// Whether it came by TLS.
    public let isEncrypted: Bool
    /// The path parameters, percent-decoded, by the names in the template.
    public let parameters: [String: String]
    /// As it was sent, without the `?`; empty without a query.
    public let queryText: String
    /// Decompressed. Empty if there is none, and in a check without the body.
    public let body: [UInt8]
    /// The time for everything that the answer depends on.
    public let receivedAt: Timestamp
    /// 128 fresh random bits.
    public let random: @Sendable () -> (UInt64, UInt64)
    private let headers: @Sendable (String) -> String?

    public init(
        method: String = "POST", path: String = "", isEncrypted: Bool = false, parameters: [String: String] = [:],
        queryText: String = "", headers: @escaping @Sendable (String) -> String? = { _ in nil }, body: [UInt8] = [],
        receivedAt: Timestamp, random: @escaping @Sendable () -> (UInt64, UInt64) = ValidationContext.systemRandom
    ) {
        self.method = method
        self.path = path
        self.isEncrypted = isEncrypted
        self.parameters = parameters
        self.queryText = queryText
        self.headers = headers
        self.body = body
        self.receivedAt = receivedAt
        self.random = random
    }

    /// The value of the header, whatever the case of its name. Several lines of it are joined by commas.
    public func header(_ name: String) -> String? { headers(name) }

    /// The media type of the body, in lower case and without parameters.
    public var mediaType: String? {
        guard let value = header("Content-Type") else { return nil }
        // What nearly all requests have.
        if value == "application/json" { return value }
        let type = value.utf8.prefix { $0 != UInt8(ascii: ";") }
        let trimmed = type.filter { $0 != UInt8(ascii: " ") && $0 != UInt8(ascii: "\t") }
        return String(decoding: trimmed, as: UTF8.self).lowercased()
    }

    public var validationContext: ValidationContext { ValidationContext(acceptedAt: receivedAt, random: random) }
}

/// The services of a call that waits for other systems; for one upstream, from any thread.
public protocol SDKContext: UpstreamRouteContext {
    /// Whether the gateway accepts messages.
    var isReady: Bool { get }
    /// Whether the queue sends nothing at the moment: an operator has paused the upstream, or its circuit is not closed.
    var isAway: Bool { get }
    /// Stores what a request brings, in one transaction, and returns once that is on disk.
    func store(_ submission: SDKSubmission) async -> SDKAnswer
    /// Calls `start`, and returns what the closure that it gets is called with; nil if that does not happen within `seconds`,
    /// the gateway begins to stop, or the caller hangs up.
    func wait<T: Sendable>(seconds: Int, for start: (@escaping @Sendable (T) -> Void) -> Void) async -> T?
}
