import PosternCore

/// The query of a request's target.
public struct RequestQuery: Sendable {
    /// The query as it was sent, without the `?`.
    public let text: String
    /// The parameters in their order, percent-decoded. `+` stays `+`; an invalid escape is kept as it was sent.
    public let pairs: [(name: String, value: String)]
    /// Whether every `%` begins an escape and the decoded text is UTF-8.
    public let isWellFormed: Bool

    init(_ text: String) {
        var isWellFormed = true
        func decoded(_ side: Substring.UTF8View) -> String {
            let (bytes, isWhole) = percentUnescaped(Array(side))
            let text = isWhole ? String(validating: bytes, as: UTF8.self) : nil
            if text == nil { isWellFormed = false }
            return text ?? String(decoding: bytes, as: UTF8.self)
        }
        pairs = text.utf8.split(separator: UInt8(ascii: "&")).map { pair in
            let sides = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            return (decoded(sides[0]), sides.count > 1 ? decoded(sides[1]) : "")
        }
        self.text = text
        self.isWellFormed = isWellFormed
    }

    /// The value of the last parameter called `name`; nil if there is none.
    public subscript(_ name: String) -> String? { pairs.last { $0.name == name }?.value }
}
