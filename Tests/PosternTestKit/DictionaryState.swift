public import PosternCore

/// The state of an upstream, as a test wants it.
public struct DictionaryState: UpstreamState, Sendable {
    public var values: [String: [UInt8]]
    /// By lane, for whoever asks how many are queued there.
    public var queued: [String: Int] = [:]

    public init(_ values: [String: [UInt8]] = [:]) { self.values = values }

    public func value(of key: String) -> [UInt8]? { values[key] }

    public func values(below key: String, atMost most: Int) -> [(key: String, value: [UInt8])] {
        values.filter { $0.key.hasPrefix(key + "/") }.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }
            .prefix(most).map { ($0.key, $0.value) }
    }

    public func queued(inLane name: String, atMost most: Int) -> Int { min(most, queued[name] ?? 0) }

    /// Makes the changes as the store would; what they mean for lanes is left out.
    public mutating func apply(_ changes: [StateChange]) {
        for change in changes {
            switch change {
            case .set(let key, let value, _): values[key] = value
            case .remove(let key): values[key] = nil
            case .release, .wake: break
            }
        }
    }
}
