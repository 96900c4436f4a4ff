public import PosternCore

/// An event as the SDK of the upstream's service describes it.
public struct NamedEvent: Sendable, Equatable {
    /// An error of the SDK.
    public struct Failure: Sendable, Equatable {
        public let code: Int
        public let name: String

        public init(code: Int, name: String) {
            self.code = code
            self.name = name
        }
    }

    /// The SDK's events; at least one.
    public let names: [String]
    /// The SDK's name for what was requested. Nil for a kind for which it has none.
    public let requestType: String?
    /// Nil for an event that concerns no messages.
    public let kind: Kind?
    /// Nil if the SDK does not say it of this event.
    public let isSuccess: Bool?
    /// Whether the messages are queued after it. Nil as above.
    public let isQueued: Bool?
    public let failure: Failure?

    public init(
        names: [String], requestType: String?, kind: Kind? = nil, isSuccess: Bool? = nil, isQueued: Bool? = nil,
        failure: Failure? = nil
    ) {
        self.names = names
        self.requestType = requestType
        self.kind = kind
        self.isSuccess = isSuccess
        self.isQueued = isQueued
        self.failure = failure
    }
}
