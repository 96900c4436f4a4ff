public import PosternCore

/// The state of an upstream, as a test wants it.
public struct DictionaryState: UpstreamState, Sendable {
    public var values: [String: [UInt8]]
    public init(_ values: [String: [UInt8]] = [:]) { self.values = values }
    public func value(of key: String) -> [UInt8]? { values[key] }
}
