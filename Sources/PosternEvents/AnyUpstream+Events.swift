public import PosternCore
public import PosternUpstream

extension AnyUpstream {
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
        case .batchSent, .messageDropped, .messageExpired, .messageCancelled, .upstreamDown, .upstreamUp,
            .upstreamPaused, .upstreamResumed, .operationFinished, .configurationReloaded:
            nil
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
