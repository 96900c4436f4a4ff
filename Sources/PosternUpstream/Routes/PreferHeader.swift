import PosternCore

/// The preferences of a request: its `Prefer` header lines (RFC 7240, section 2).
///
/// If a preference is given twice, the first one counts. A preference that breaks the grammar, also in its parameters,
/// is ignored up to the next comma. Worked values: `foo="a, wait=1"` has no `wait`; `wait=5; x="1,2", wait=9` has
/// `wait` 5; `wait=5; =x` has none.
package struct PreferHeader: Sendable {
    /// The longest wait that is granted, in seconds.
    static let longestWait = 60

    private var values: [String: String] = [:]

    private typealias Text = Substring.UTF8View

    /// - Parameter lines: the values of all `Prefer` lines, in the order received.
    package init(_ lines: some Sequence<String>) {
        for preference in lines.flatMap({ Self.parts(of: $0.utf8[...], between: ",") }) {
            // Its parameters follow, of which none is known. A parameter may be missing: `wait=5;` is allowed.
            let parts = Self.parts(of: preference, between: ";")
            guard let (name, value) = parts.first.flatMap(Self.pair),
                parts.dropFirst().allSatisfy({ Self.trimmed($0).isEmpty || Self.pair($0) != nil })
            else { continue }
            values[name] = values[name] ?? value
        }
    }

    /// The value of a preference, whose name is given in lower case; empty if it has none.
    package subscript(name: String) -> String? { values[name] }

    /// The seconds of `wait=N`, from 1 to `longestWait`; a longer wait is shortened.
    package var wait: Int? {
        guard let digits = values["wait"], digits.utf8.allSatisfy(\.isDigit) else { return nil }
        // More digits than an Int holds are a long wait too.
        let seconds = digits.isEmpty ? 0 : Int(digits) ?? Self.longestWait
        return seconds > 0 ? min(seconds, Self.longestWait) : nil
    }

    // MARK: The grammar

    /// The parts of a list. A separator between quotation marks is not one.
    private static func parts(of text: Text, between separator: Unicode.Scalar) -> [Text] {
        var (isQuoted, isEscaped) = (false, false)
        return text.split(omittingEmptySubsequences: false) { byte in
            if byte == UInt8(ascii: "\""), !isEscaped { isQuoted.toggle() }
            isEscaped = isQuoted && !isEscaped && byte == UInt8(ascii: "\\")
            return byte == UInt8(ascii: separator) && !isQuoted
        }
    }

    private static func trimmed(_ text: Text) -> Text {
        func isBlank(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        let end = text.lastIndex { !isBlank($0) }.map(text.index(after:)) ?? text.startIndex
        return text[..<end].drop(while: isBlank)
    }

    /// A name in lower case and its value: `token [BWS "=" BWS word]`. Without a value it is empty.
    private static func pair(_ text: Text) -> (name: String, value: String)? {
        let sides = text.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
        guard let name = token(sides[0]), let value = sides.count == 1 ? "" : word(sides[1]) else { return nil }
        return (name.lowercased(), value)
    }

    private static func token(_ text: Text) -> String? {
        let text = trimmed(text)
        return !text.isEmpty && text.allSatisfy(\.isTokenCharacter) ? String(Substring(text)) : nil
    }

    /// A token, or the content of a quoted string, unescaped; nil if it is neither.
    private static func word(_ text: Text) -> String? {
        let quote = UInt8(ascii: "\"")
        var rest = trimmed(text)
        guard rest.popFirst() == quote else { return token(text) }
        var content: [UInt8] = []
        while let byte = rest.popFirst() {
            if byte == quote { return rest.isEmpty ? String(decoding: content, as: UTF8.self) : nil }
            guard let character = byte == UInt8(ascii: "\\") ? rest.popFirst() : byte else { return nil }
            content.append(character)
        }
        return nil
    }
}
