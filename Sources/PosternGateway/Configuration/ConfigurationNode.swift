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
        let mark: [UInt8] = [0xEF, 0xBB, 0xBF]
        let json = text.starts(with: mark) ? Array(text[mark.count...]) : text
        return try JSONParser.ofThisThread.parse(json) { Self($0) }.mapError { SyntaxError($0, in: json) }.get()
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

        init(_ fault: JSONError, in text: [UInt8]) {
            let (line, column) = fault.position(in: text)
            let place = "is not JSON at line \(line), column \(column): \(fault.sentence(in: text))"
            description =
                Self.otherFormat(of: text).map { "\(place); it looks like \($0), and has to be JSON" } ?? place
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
