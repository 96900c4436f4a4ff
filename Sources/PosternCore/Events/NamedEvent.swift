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

extension RegisteredUpstream {
    /// An event of the event stream; nil if the SDK has none for it, or if the upstream's service has no SDK with events.
    ///
    /// - Parameter isFirst: Whether a refreshed token is the first one since there was none.
    public func named(_ type: EventType, kind: Kind? = nil, isFirst: Bool = false) -> NamedEvent? {
        switch type {
        case .messageQueued: named(kind.map { [.settled($0)] } ?? [], kind, isSuccess: true, isQueued: true)
        case .messageRetrying: named([.batchEnded], kind, isSuccess: false, isQueued: true)
        case .messageDelivered:
            named([.batchEnded] + (kind.map { [.settled($0)] } ?? []), kind, isSuccess: true, isQueued: false)
        case .messageFailed:
            named([.batchEnded] + (kind.map { [.settled($0)] } ?? []), kind, isSuccess: false, isQueued: false)
        case .tokenRefreshed: named(isFirst ? [.tokenFetched, .ready] : [.tokenFetched], isSuccess: true)
        case .tokenFailed: named([.tokenFetched], isSuccess: false)
        case .flushFinished: named([.flushFinished])
        case .batchSent, .messageDropped, .messageExpired, .upstreamDown, .upstreamUp: nil
        }
    }

    /// The end of a request that carried messages of that kind.
    public func namedBatch(of kind: Kind?, isSuccess: Bool, isQueued: Bool) -> NamedEvent? {
        named([.batchEnded], kind, isSuccess: isSuccess, isQueued: isQueued)
    }

    private func named(
        _ events: [UpstreamEvent], _ kind: Kind? = nil, isSuccess: Bool? = nil, isQueued: Bool? = nil
    ) -> NamedEvent? {
        let names = events.compactMap { name(of: $0) }
        guard !names.isEmpty else { return nil }
        return NamedEvent(
            names: names, requestType: kind.map { name(of: .settled($0)) } ?? names.last, kind: kind,
            isSuccess: isSuccess, isQueued: isQueued,
            failure: isSuccess == false ? events.first.flatMap { failure(of: $0) } : nil)
    }
}
