import PosternCore
import PosternUpstream

/// A value of a configuration file.
indirect enum ConfigurationNode: Sendable, Equatable {
    /// In the order of the file.
    case object([Member])
    case array([ConfigurationNode])
    case string(String)
    /// The number as it is spelled.
    case number(String)
    case flag(Bool)
    case null

    struct Member: Sendable, Equatable {
        let name: String
        let value: ConfigurationNode
    }

    subscript(_ name: String) -> ConfigurationNode? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.name == name }?.value
    }

    /// The value as JSON, shortened for problem texts.
    var shown: String {
        switch self {
        case .object: "an object"
        case .array: "an array"
        case .string(let text): JSONEscapes.quoted(text.count > 60 ? text.prefix(60) + "…" : text)
        case .number(let spelling): String(spelling.prefix(60))
        case .flag(let flag): flag ? "true" : "false"
        case .null: "null"
        }
    }
}

extension ConfigurationNode {
    /// Parses all of `text` as one value. A byte order mark is skipped.
    static func parse(_ text: [UInt8]) throws(SyntaxError) -> Self {
        let text = withoutMark(text)
        return try parse(json: text, writtenAs: text)
    }

    /// The same for a text that may have comments and trailing commas.
    static func parse(commented text: [UInt8]) throws(SyntaxError) -> Self {
        let text = withoutMark(text)
        let json: [UInt8]
        do throws(JSONComments.Unterminated) { json = try JSONComments.blanked(text) } catch {
            throw SyntaxError("unterminated comment", at: JSONError(.unterminated, at: error.offset).position(in: text))
        }
        return try parse(json: json, writtenAs: text)
    }

    private static func parse(json: [UInt8], writtenAs text: [UInt8]) throws(SyntaxError) -> Self {
        try JSONParser.ofThisThread.parse(json) { Self($0) }.mapError { SyntaxError($0, in: json, writtenAs: text) }
            .get()
    }

    private static func withoutMark(_ text: [UInt8]) -> [UInt8] {
        let mark: [UInt8] = [0xEF, 0xBB, 0xBF]
        return text.starts(with: mark) ? Array(text[mark.count...]) : text
    }

    private init(_ value: JSONValue) {
        switch value.kind {
        case .object:
            self = .object(value.members.map { Member(name: $0.key.string ?? "", value: Self($0.value)) })
        case .array: self = .array(value.elements.map { Self($0) })
        case .string: self = .string(value.string ?? "")
        case .number: self = .number(String(decoding: value.bytes, as: UTF8.self))
        case .true, .false: self = .flag(value.kind == .true)
        case .null: self = .null
        }
    }

    /// The fault of a text, by line and column.
    struct SyntaxError: Error, CustomStringConvertible {
        let description: String

        init(_ sentence: String, at position: (line: Int, column: Int)) {
            description = "is not JSON at line \(position.line), column \(position.column): \(sentence)"
        }

        /// - Parameter text: What `json` was before its comments became blanks, each as long as its bytes; their characters
        ///   count for the column.
        init(_ fault: JSONError, in json: [UInt8], writtenAs text: [UInt8]) {
            let isComment = json.dropFirst(fault.offset).first.map("#/".utf8.contains) ?? false
            let sentence =
                isComment && [.syntax, .trailing].contains(fault.reason)
                ? "a comment begins with // or /*" : fault.sentence(in: json)
            let place = Self(sentence, at: fault.position(in: text)).description
            description =
                Self.otherFormat(of: json).map { "\(place); it looks like \($0), and has to be JSON" } ?? place
        }

        /// The format of a text that is not JSON, by its first line that is neither blank nor a comment.
        private static func otherFormat(of text: [UInt8]) -> String? {
            let lines = String(decoding: text.prefix(4096), as: UTF8.self).split(whereSeparator: \.isNewline).map(
                trimmed)
            guard let first = lines.first(where: { !$0.isEmpty && !$0.hasPrefix("#") }) else { return nil }
            if first.hasPrefix("---") || first.firstMatch(of: #/^["']?[A-Za-z_][\w.-]*["']?:(\s|$)/#) != nil {
                return "YAML"
            }
            let isTOML =
                first.wholeMatch(of: #/\[{1,2}[A-Za-z_][\w."-]*\]{1,2}(\s*#.*)?/#) != nil
                || first.firstMatch(of: #/^[A-Za-z_][\w."-]*\s*=/#) != nil
            return isTOML ? "TOML" : nil
        }
    }
}
