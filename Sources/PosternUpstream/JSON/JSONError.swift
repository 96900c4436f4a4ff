/// Why a text is not JSON that Postern accepts (RFC 8259, with the limits of the design): the first fault of the text.
/// Repeated names are checked only if the text is otherwise valid.
public struct JSONError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The cases are in the order of the C parser's codes.
    public enum Reason: Int32, Sendable, CaseIterable {
        /// The text is empty or white space.
        case empty = 1
        /// An unexpected byte.
        case syntax
        case truncated
        case trailing
        case depth
        /// A repeated name. Names are compared with their escapes resolved.
        case duplicate
        case encoding
        case surrogate
        case escape
        case number
        case control
        case unterminated
        /// The text has 2 GiB or more.
        case tooLarge
        /// There is not enough memory to parse the text.
        case memory

        /// The fault in words, without the byte where it is.
        var sentence: String {
            switch self {
            case .empty: "no JSON text"
            case .syntax: "unexpected character"
            case .truncated: "unexpected end of the text"
            case .trailing: "more text after the JSON value"
            case .depth: "more than 64 nested objects and arrays"
            case .duplicate: "duplicate member name"
            case .encoding: "invalid UTF-8"
            case .surrogate: "lone surrogate"
            case .escape: "invalid escape"
            case .number: "malformed number"
            case .control: "unescaped control character"
            case .unterminated: "unterminated string"
            case .tooLarge: "JSON text of 2 GiB or more"
            case .memory: "no memory to parse the text"
            }
        }
    }

    public let reason: Reason
    /// Bytes from the start of the text to: the unexpected byte, the ill-formed UTF-8 sequence, the backslash of an
    /// escape, the first digit or sign of a number, the opening quote of an unterminated string or a repeated name.
    public let offset: Int

    public init(_ reason: Reason, at offset: Int) {
        self.reason = reason
        self.offset = offset
    }

    public var description: String { "\(reason.sentence) at byte \(offset)" }

    /// The fault in words, with what `text` shows about it: which name is repeated, or that a comma or a comment is not
    /// JSON.
    public func sentence(in text: [UInt8]) -> String {
        let (before, rest) = (text[..<min(offset, text.count)], text[min(offset, text.count)...])
        switch (reason, rest.first) {
        case (.duplicate, _): return "\(reason.sentence) \(Self.quotedName(rest))"
        case (.syntax, UInt8(ascii: "/")), (.syntax, UInt8(ascii: "#")), (.trailing, UInt8(ascii: "/")),
            (.trailing, UInt8(ascii: "#")):
            return "JSON has no comments"
        case (.syntax, UInt8(ascii: "}")), (.syntax, UInt8(ascii: "]")):
            let last = before.last { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
            return last == UInt8(ascii: ",") ? "a comma after the last element" : reason.sentence
        default: return reason.sentence
        }
    }

    /// The same with the byte where it is.
    public func description(in text: [UInt8]) -> String { "\(sentence(in: text)) at byte \(offset)" }

    /// The string at the beginning of `text` with its quotes, shortened.
    private static func quotedName(_ text: ArraySlice<UInt8>) -> String {
        var isEscaped = false
        let end = text.dropFirst().firstIndex { byte in
            defer { isEscaped = !isEscaped && byte == UInt8(ascii: "\\") }
            return byte == UInt8(ascii: "\"") && !isEscaped
        }
        let name = String(decoding: text[..<(end ?? text.endIndex)].dropFirst(), as: UTF8.self)
        return "\"\(name.count > 60 ? name.prefix(60) + "…" : name[...])\""
    }

    /// The line and column of `offset` in `text`, from 1; the column in characters.
    public func position(in text: [UInt8]) -> (line: Int, column: Int) {
        let before = text[..<min(offset, text.count)]
        let lineStart = before.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
        // Bytes 10xxxxxx continue a character.
        return (before.count { $0 == 0x0A } + 1, before[lineStart...].count { $0 & 0xC0 != 0x80 } + 1)
    }
}
