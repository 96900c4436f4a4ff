/// Something in a response that an operator should read once, e.g. a warning inside a success.
public struct UpstreamNotice: Sendable, Equatable {
    /// In the words of the upstream's type. It is logged, so it contains nothing of a response or a payload.
    public var text: String
    /// What the response says. It may repeat a payload, so it is logged only if `log.upstreamAnswers` is true. Nil if
    /// nothing is quoted.
    public var quote: String?

    public init(_ text: String, quote: String? = nil) {
        self.text = text
        self.quote = quote
    }
}

extension UpstreamNotice: ExpressibleByStringInterpolation {
    public init(stringLiteral text: String) { self.init(text) }
}
