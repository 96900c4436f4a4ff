public import PosternCore

/// An upstream that has messages queued although this process does not deliver to it: it is disabled, or no longer
/// configured.
public struct DisabledUpstream: Sendable, Equatable {
    public let name: UpstreamName
    public let number: UpstreamNumber
    public let type: String
}

extension Outbox {
    /// The name of an upstream in `disabledUpstreams`, without reading the store.
    public func disabledUpstream(named name: String) -> UpstreamName? {
        let found = names.first { $0.value.description == name }
        return found.flatMap { ledger(of: $0.key).queued > 0 && queue($0.key)?.isDisabled == true ? $0.value : nil }
    }

    /// The upstreams whose messages wait until they are configured and enabled again, by name. Reads the store only if
    /// there are any.
    public func disabledUpstreams() throws(StoreError) -> [DisabledUpstream] {
        let waiting = ledgers.filter { $0.value.queued > 0 && queue($0.key)?.isDisabled == true }
        guard !waiting.isEmpty else { return [] }
        let names = names
        return try read { sql in
            try sql.all("SELECT number, type FROM upstreams ORDER BY name") { (number: $0[0], type: $0[1] as String) }
        }.compactMap { number, type in
            guard waiting[number] != nil, let name = names[number] else { return nil }
            return DisabledUpstream(name: name, number: number, type: type)
        }
    }
}
