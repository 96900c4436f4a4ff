/// Identifies a request to an upstream, in logs and in the attempts of its messages; counts up inside one store.
public struct BatchID: Hashable, Sendable, CustomStringConvertible {
    /// At least 1.
    public let rawValue: Int64
    public init(rawValue: Int64) { self.rawValue = rawValue }
    public var description: String { String(rawValue) }
}
