/// What a payload is, e.g. `event`; each type of upstream defines its kinds.
public struct Kind: Hashable, Sendable, CustomStringConvertible, ExpressibleByStringLiteral {
    /// The path segment in the API, and the metrics label.
    public let description: String
    public init(_ text: String) { description = text }
    public init(stringLiteral text: String) { description = text }
}
