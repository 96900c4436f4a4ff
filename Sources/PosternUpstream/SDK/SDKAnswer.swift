/// The answer to an SDK, in its platform's form. Thrown, it says why a request is refused.
public struct SDKAnswer: Error, Sendable, Equatable {
    /// As the metric `postern_sdk_requests_total` has it.
    public enum Outcome: String, Sendable, CaseIterable {
        case accepted
        /// All of it had been accepted before.
        case repeated
        /// The platform has answered.
        case proxied
        case refused
        case unauthorized
        /// There is no room at the moment.
        case noRoom = "no_room"
    }

    public var status: Int
    /// In the order sent.
    public var headers: [(name: String, value: String)]
    public var body: [UInt8]
    public var outcome: Outcome
    /// The call, if its route has several; nil: the first one.
    public var call: String?
    /// Whether the connection is closed without an answer.
    public var isDropped = false
    /// Whether the caller did not know the credentials. Such failures are counted for each address, and answered later if
    /// there are many.
    public var isOfStranger: Bool

    public init(
        _ status: Int, _ outcome: Outcome, headers: [(name: String, value: String)] = [], body: [UInt8] = []
    ) {
        self.status = status
        self.outcome = outcome
        self.headers = headers
        self.body = body
        isOfStranger = outcome == .unauthorized
    }

    /// A JSON text, as `application/json`.
    public static func json(
        _ status: Int, _ outcome: Outcome, _ text: String, headers: [(name: String, value: String)] = []
    ) -> Self {
        Self(status, outcome, headers: [("Content-Type", "application/json")] + headers, body: Array(text.utf8))
    }

    /// The connection is closed without an answer.
    public static func dropped(_ outcome: Outcome) -> Self {
        var answer = Self(503, outcome)
        answer.isDropped = true
        return answer
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.status == right.status && left.body == right.body && left.outcome == right.outcome
            && left.call == right.call && left.isDropped == right.isDropped && left.isOfStranger == right.isOfStranger
            && left.headers.elementsEqual(right.headers, by: ==)
    }
}

/// Why the gateway refuses a request before, or instead of, the call.
public enum SDKRefusal: Sendable, Equatable {
    /// There is no such path.
    case notFound
    /// The path has other methods: the value of `Allow`.
    case methodNotAllowed(String)
    /// No API key, or a wrong one.
    case unauthorized
    /// The client certificate is missing, or the request comes from a web page of another origin or under a foreign name.
    case forbidden
    /// Not HTTP, or a body that cannot be decoded.
    case malformed
    case tooLarge
    /// The queue, the store or the disk is full or failed, the gateway stops or is overloaded, or the caller sends too much.
    case noRoom

    public var outcome: SDKAnswer.Outcome {
        switch self {
        case .notFound, .methodNotAllowed, .forbidden, .malformed, .tooLarge: .refused
        case .unauthorized: .unauthorized
        case .noRoom: .noRoom
        }
    }
}
