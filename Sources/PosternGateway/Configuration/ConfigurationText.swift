import PosternCore

/// A value of a configuration file.
indirect enum ConfigurationNode: Sendable, Equatable {
    case object([Member])
    case array([ConfigurationNode])
    case string(String)
    /// As it is spelled.
    case number(String)
    case flag(Bool)
    case null

    struct Member: Sendable, Equatable {
        let name: String
        let value: ConfigurationNode
        /// Where its name stands, from 1.
        let line: Int
    }

    subscript(_ name: String) -> ConfigurationNode? {
        guard case .object(let members) = self else { return nil }
        return members.first { $0.name == name }?.value
    }

    /// As JSON, cut where it gets long: for showing it in a problem.
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

/// Reads JSON (RFC 8259) that people write: says line and column of an error, and keeps the order of members.
///
/// Messages use a faster parser, which has no need of lines.
struct ConfigurationText {
    struct SyntaxError: Error, Equatable {
        let line: Int
        /// In characters, from 1.
        let column: Int
        /// E.g. `expected a value`.
        let detail: String
    }

    private static let deepest = 32
    private let bytes: [UInt8]
    private var place = 0
    private var line = 1

    /// The whole of `bytes` as one value. A byte order mark is skipped.
    static func parse(_ bytes: [UInt8]) throws(SyntaxError) -> ConfigurationNode {
        var text = ConfigurationText(bytes: bytes)
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { text.place = 3 }
        for (line, content) in bytes.split(separator: 0x0A, omittingEmptySubsequences: false).enumerated()
        where String(validating: content, as: UTF8.self) == nil {
            throw SyntaxError(line: line + 1, column: 1, detail: "text that is not UTF-8")
        }
        let root = try text.value(depth: 1)
        guard text.next() == nil else { throw text.error("something after the end of the object") }
        return root
    }

    private init(bytes: [UInt8]) { self.bytes = bytes }

    private mutating func value(depth: Int) throws(SyntaxError) -> ConfigurationNode {
        guard depth <= Self.deepest else { throw error("nested more than \(Self.deepest) deep") }
        guard let first = next() else { throw error("expected a value") }
        switch first {
        case UInt8(ascii: "{"): return .object(try members(depth: depth))
        case UInt8(ascii: "["): return .array(try elements(depth: depth))
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return .number(try number())
        case UInt8(ascii: "/"), UInt8(ascii: "#"): throw error("JSON has no comments")
        default: return try word()
        }
    }

    private mutating func members(depth: Int) throws(SyntaxError) -> [ConfigurationNode.Member] {
        var members: [ConfigurationNode.Member] = []
        place += 1
        if take("}") { return [] }
        repeat {
            guard next() == UInt8(ascii: "\"") else { throw error("expected a name in double quotes") }
            let line = line
            let name = try string()
            guard take(":") else { throw error("expected : after the name") }
            members.append(.init(name: name, value: try value(depth: depth + 1), line: line))
        } while take(",")
        guard take("}") else { throw error("expected , or }") }
        return members
    }

    private mutating func elements(depth: Int) throws(SyntaxError) -> [ConfigurationNode] {
        var elements: [ConfigurationNode] = []
        place += 1
        if take("]") { return [] }
        repeat { elements.append(try value(depth: depth + 1)) } while take(",")
        guard take("]") else { throw error("expected , or ]") }
        return elements
    }

    private mutating func string() throws(SyntaxError) -> String {
        let start = place
        place += 1
        while place < bytes.count, bytes[place] != UInt8(ascii: "\"") {
            guard bytes[place] >= 0x20 else { break }
            if bytes[place] == UInt8(ascii: "\\") { try escape() } else { place += 1 }
        }
        guard place < bytes.count, bytes[place] == UInt8(ascii: "\"") else {
            place = start
            throw error("text without a closing quote on its line")
        }
        place += 1
        let resolved = bytes.withUnsafeBufferPointer {
            JSONEscapes.resolve(UnsafeBufferPointer(rebasing: $0[start + 1..<place - 1]))
        }
        return String(decoding: resolved, as: UTF8.self)
    }

    /// Steps over one escape; of a surrogate pair, over both halves.
    private mutating func escape() throws(SyntaxError) {
        switch place + 1 < bytes.count ? bytes[place + 1] : 0 {
        case UInt8(ascii: "u"):
            let unit = codeUnit(at: place)
            if let unit, 0xD800..<0xDC00 ~= unit, let low = codeUnit(at: place + 6), 0xDC00..<0xE000 ~= low {
                place += 12
            } else if let unit, !(0xD800..<0xE000 ~= unit) {
                place += 6
            } else {
                throw error("no such escape")
            }
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
            UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
            place += 2
        default: throw error("no such escape; write \\\\ for a backslash")
        }
    }

    /// The value of `\uXXXX` at `start`.
    private func codeUnit(at start: Int) -> UInt16? {
        guard start + 6 <= bytes.count, bytes[start] == UInt8(ascii: "\\"), bytes[start + 1] == UInt8(ascii: "u"),
            bytes[start + 2] != UInt8(ascii: "+")
        else { return nil }
        return UInt16(String(decoding: bytes[start + 2..<start + 6], as: UTF8.self), radix: 16)
    }

    private mutating func number() throws(SyntaxError) -> String {
        let start = place
        while place < bytes.count, isWordByte(bytes[place]) { place += 1 }
        let spelling = String(decoding: bytes[start..<place], as: UTF8.self)
        guard spelling.wholeMatch(of: #/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?/#) != nil else {
            place = start
            throw error("no number")
        }
        return spelling
    }

    private mutating func word() throws(SyntaxError) -> ConfigurationNode {
        let end = bytes[place...].firstIndex { !isWordByte($0) } ?? bytes.count
        defer { place = end }
        switch String(decoding: bytes[place..<end], as: UTF8.self) {
        case "true": return .flag(true)
        case "false": return .flag(false)
        case "null": return .null
        default: throw error("expected a value")
        }
    }

    private func isWordByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."):
            true
        default: false
        }
    }

    /// The next byte that is no white space; nil at the end.
    private mutating func next() -> UInt8? {
        while place < bytes.count {
            switch bytes[place] {
            case 0x0A: line += 1
            case 0x20, 0x0D, 0x09: break
            default: return bytes[place]
            }
            place += 1
        }
        return nil
    }

    private mutating func take(_ mark: Unicode.Scalar) -> Bool {
        guard next() == UInt8(ascii: mark) else { return false }
        place += 1
        return true
    }

    /// Lines only end between tokens, so `line` is that of `place`.
    private func error(_ detail: String) -> SyntaxError {
        let before = bytes[..<place]
        let lineStart = (before.lastIndex(of: 0x0A) ?? -1) + 1
        // Bytes 10xxxxxx continue a character.
        let column = before[lineStart...].count { $0 & 0xC0 != 0x80 } + 1
        return SyntaxError(line: line, column: column, detail: detail)
    }
}
