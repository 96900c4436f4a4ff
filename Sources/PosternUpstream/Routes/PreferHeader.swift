import PosternCore

/// The preferences of a request: its `Prefer` header lines (RFC 7240, section 2).
///
/// If a preference is given twice, the first one counts. A preference that breaks the grammar is ignored up to the
/// next comma. Worked values: `foo="a, wait=1"` has no `wait`; `wait=5; x="1,2", wait=9` has `wait` 5.
public struct PreferHeader: Sendable {
    /// The longest wait that is granted, in seconds.
    public static let longestWait = 60

    private var values: [String: String] = [:]

    /// - Parameter lines: the values of all `Prefer` lines, in the order received.
    public init(_ lines: some Sequence<String>) {
        for line in lines {
            var scanner = Scanner(rest: line.utf8[...])
            while !scanner.rest.isEmpty {
                if let (name, value) = scanner.preference(), values[name] == nil { values[name] = value }
                scanner.skipToNext()
            }
        }
    }

    /// The value of a preference, whose name is given in lower case; empty if it has none.
    public subscript(name: String) -> String? { values[name] }

    /// The seconds of `wait=N`, from 1 to `longestWait`; a longer wait is shortened.
    public var wait: Int? {
        guard let digits = values["wait"], digits.utf8.allSatisfy(\.isDigit) else { return nil }
        // More digits than an Int holds are a long wait too.
        let seconds = digits.isEmpty ? 0 : Int(digits) ?? Self.longestWait
        return seconds > 0 ? min(seconds, Self.longestWait) : nil
    }
}

private struct Scanner {
    var rest: Substring.UTF8View

    /// `token [BWS "=" BWS word] *(OWS ";" OWS [parameter])`, up to the comma or the end. The name is in lower case.
    mutating func preference() -> (name: String, value: String)? {
        guard let preference = parameter() else { return nil }
        while take(";") {
            // A parameter may be missing: `wait=5;` is allowed.
            _ = parameter()
        }
        return rest.isEmpty || rest.first == UInt8(ascii: ",") ? preference : nil
    }

    private mutating func parameter() -> (name: String, value: String)? {
        skipBlanks()
        guard let name = token() else { return nil }
        guard take("=") else { return (name.lowercased(), "") }
        skipBlanks()
        guard let value = rest.first == UInt8(ascii: "\"") ? quoted() : token() else { return nil }
        skipBlanks()
        return (name.lowercased(), value)
    }

    /// Skips what is left of this preference, and the comma behind it. A comma inside quotes does not end it.
    mutating func skipToNext() {
        while let byte = rest.first, byte != UInt8(ascii: ",") {
            if byte == UInt8(ascii: "\"") {
                if quoted() == nil { rest = rest[rest.endIndex...] }
            } else {
                rest = rest.dropFirst()
            }
        }
        rest = rest.dropFirst()
    }

    private mutating func take(_ character: Unicode.Scalar) -> Bool {
        skipBlanks()
        guard rest.first == UInt8(ascii: character) else { return false }
        rest = rest.dropFirst()
        return true
    }

    private mutating func skipBlanks() { rest = rest.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") } }

    private mutating func token() -> String? {
        let end = rest.firstIndex { !$0.isTokenCharacter } ?? rest.endIndex
        defer { rest = rest[end...] }
        return rest.startIndex == end ? nil : String(Substring(rest[..<end]))
    }

    /// The content of a quoted string, unescaped; nil if its closing quote is missing.
    private mutating func quoted() -> String? {
        var content: [UInt8] = []
        var bytes = rest.dropFirst()
        while let byte = bytes.popFirst() {
            switch byte {
            case UInt8(ascii: "\""):
                rest = bytes
                return String(decoding: content, as: UTF8.self)
            case UInt8(ascii: "\\"):
                guard let escaped = bytes.popFirst() else { return nil }
                content.append(escaped)
            default: content.append(byte)
            }
        }
        return nil
    }
}
