import PosternCore

/// Walks over JSON text byte by byte, as Jackson does for a Clojure server: checks syntax, copies nothing.
///
/// More lenient than RFC 8259 in one point: raw control characters inside strings are accepted, and recorded.
package struct JSONScanner {
    package enum Kind: Equatable { case object, array, string, integer, decimal, `true`, `false`, null }

    package struct Value: Equatable {
        package let kind: Kind
        /// The range of the value, including quotes and brackets.
        package let range: Range<Int>
    }

    package let text: UnsafeBufferPointer<UInt8>
    package var position = 0
    /// Whether a string with a raw control character was passed.
    package private(set) var sawControlCharacter = false
    /// Whether the last string contained an escape.
    private var stringHadEscape = false
    private var depth = 0

    /// The maximum depth, as in Jackson.
    static let maxDepth = 1000

    package init(_ text: UnsafeBufferPointer<UInt8>) { self.text = text }

    /// The next byte that is not white space; nil at the end.
    package mutating func peek() -> UInt8? {
        while position < text.count {
            switch text[position] {
            case 0x20, 0x0a, 0x0d, 0x09: position += 1
            default: return text[position]
            }
        }
        return nil
    }

    package mutating func take(_ byte: UInt8) -> Bool {
        guard peek() == byte else { return false }
        position += 1
        return true
    }

    /// Skips the next value; nil if it is not valid.
    package mutating func value() -> Value? {
        guard let first = peek() else { return nil }
        let start = position
        let kind: Kind?
        switch first {
        case UInt8(ascii: "{"): kind = members { _, _ in } ? .object : nil
        case UInt8(ascii: "["): kind = elements { _ in } ? .array : nil
        case UInt8(ascii: "\""): kind = string() ? .string : nil
        case UInt8(ascii: "-"), 0x30...0x39: kind = number()
        case UInt8(ascii: "t"): kind = literal("true") ? .true : nil
        case UInt8(ascii: "f"): kind = literal("false") ? .false : nil
        case UInt8(ascii: "n"): kind = literal("null") ? .null : nil
        default: kind = nil
        }
        return kind.map { Value(kind: $0, range: start..<position) }
    }

    /// Walks over an object, from its brace on, and passes each member to the closure. Returns false if it is not
    /// valid.
    @inline(__always) package mutating func members(_ body: (Key, Value) -> Void) -> Bool {
        guard enter() else { return false }
        if take(UInt8(ascii: "}")) { return leave() }
        repeat {
            guard peek() == UInt8(ascii: "\"") else { return false }
            let start = position
            guard string() else { return false }
            let key = Key(raw: .init(rebasing: text[(start + 1)..<(position - 1)]), hasEscapes: stringHadEscape)
            guard take(UInt8(ascii: ":")), let value = value() else { return false }
            body(key, value)
        } while take(UInt8(ascii: ","))
        return take(UInt8(ascii: "}")) && leave()
    }

    /// Walks over an array, from its bracket on, and passes each element to the closure. Returns false if it is not
    /// valid.
    @inline(__always) package mutating func elements(_ body: (Value) -> Void) -> Bool {
        guard enter() else { return false }
        if take(UInt8(ascii: "]")) { return leave() }
        repeat {
            guard let value = value() else { return false }
            body(value)
        } while take(UInt8(ascii: ","))
        return take(UInt8(ascii: "]")) && leave()
    }

    private mutating func enter() -> Bool {
        position += 1
        depth += 1
        return depth <= Self.maxDepth
    }

    private mutating func leave() -> Bool {
        depth -= 1
        return true
    }

    private mutating func string() -> Bool {
        position += 1
        stringHadEscape = false
        while position < text.count {
            let byte = text[position]
            position += 1
            if byte > UInt8(ascii: "\\") { continue }
            if byte == UInt8(ascii: "\"") { return true }
            if byte == UInt8(ascii: "\\") {
                stringHadEscape = true
                guard escape() else { return false }
            } else if byte < 0x20 {
                sawControlCharacter = true
            }
        }
        return false
    }

    /// The character after a backslash.
    private mutating func escape() -> Bool {
        guard position < text.count else { return false }
        position += 1
        switch text[position - 1] {
        case UInt8(ascii: "u"):
            guard position + 4 <= text.count else { return false }
            position += 4
            return text[(position - 4)..<position].allSatisfy { $0.hexadecimalValue != nil }
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
            UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
            return true
        default: return false
        }
    }

    private mutating func number() -> Kind? {
        if text[position] == UInt8(ascii: "-") { position += 1 }
        let start = position
        guard digits() else { return nil }
        if text[start] == UInt8(ascii: "0"), position > start + 1 { return nil }
        var kind = Kind.integer
        if position < text.count, text[position] == UInt8(ascii: ".") {
            position += 1
            kind = .decimal
            guard digits() else { return nil }
        }
        if position < text.count, text[position] | 0x20 == UInt8(ascii: "e") {
            position += 1
            kind = .decimal
            if position < text.count, text[position] == UInt8(ascii: "+") || text[position] == UInt8(ascii: "-") {
                position += 1
            }
            guard digits() else { return nil }
        }
        return kind
    }

    private mutating func digits() -> Bool {
        let start = position
        while position < text.count, text[position].isDigit { position += 1 }
        return position > start
    }

    private mutating func literal(_ word: StaticString) -> Bool {
        guard text.count - position >= word.utf8CodeUnitCount else { return false }
        for index in 0..<word.utf8CodeUnitCount where text[position + index] != word.utf8Start[index] { return false }
        position += word.utf8CodeUnitCount
        // `nullx` is not `null`.
        return position == text.count || !isWordByte(text[position])
    }

    /// The name of a member.
    package struct Key {
        /// Between the quotes.
        let raw: UnsafeBufferPointer<UInt8>
        let hasEscapes: Bool

        package func equals(_ name: StaticString) -> Bool {
            if hasEscapes { return unescaped(raw) == name.description }
            guard raw.count == name.utf8CodeUnitCount else { return false }
            for position in 0..<raw.count where raw[position] != name.utf8Start[position] { return false }
            return true
        }

        package var name: String { unescaped(raw) }
    }
}

private func isWordByte(_ byte: UInt8) -> Bool {
    byte.isAlphanumeric || byte == UInt8(ascii: "_") || byte >= 0x80
}

/// The text of a string that passed the scanner, given what is between its quotation marks. A surrogate without
/// its partner becomes U+FFFD.
package func unescaped(_ raw: some Collection<UInt8>) -> String {
    var units: [UInt16] = []
    for unit in String(decoding: raw, as: UTF8.self).utf16 { units.append(unit) }
    guard units.contains(UInt16(UInt8(ascii: "\\"))) else { return String(decoding: raw, as: UTF8.self) }
    var result: [UInt16] = []
    var rest = units[...]
    while let unit = rest.popFirst() {
        guard unit == UInt16(UInt8(ascii: "\\")), let mark = rest.popFirst() else {
            result.append(unit)
            continue
        }
        switch UInt8(truncatingIfNeeded: mark) {
        case UInt8(ascii: "u"):
            result.append(UInt16(String(decoding: rest.prefix(4), as: UTF16.self), radix: 16) ?? 0xfffd)
            rest = rest.dropFirst(4)
        case UInt8(ascii: "b"): result.append(0x08)
        case UInt8(ascii: "f"): result.append(0x0c)
        case UInt8(ascii: "n"): result.append(0x0a)
        case UInt8(ascii: "r"): result.append(0x0d)
        case UInt8(ascii: "t"): result.append(0x09)
        default: result.append(mark)
        }
    }
    return String(decoding: result, as: UTF16.self)
}

/// `text` as a JSON string, quotes included.
package func quoted(_ text: some StringProtocol) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\"": result += "\\\""
        case "\\": result += "\\\\"
        case "\n": result += "\\n"
        case "\r": result += "\\r"
        case "\t": result += "\\t"
        case "\u{8}": result += "\\b"
        case "\u{c}": result += "\\f"
        case _ where scalar.value < 0x20:
            let hex = String(scalar.value, radix: 16)
            result += "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
        default: result.unicodeScalars.append(scalar)
        }
    }
    return result + "\""
}

/// The value of a top-level member of an object, the last one if it is repeated; nil if there is none.
package func member(_ name: String, of object: UnsafeBufferPointer<UInt8>) -> (kind: JSONScanner.Kind, text: String)? {
    child(name, of: object).map { plain($0, in: object) }
}

/// The value that `field` names: a top-level member, or the target of a non-empty JSON Pointer (RFC 6901).
func found(
    _ field: String, in item: UnsafeBufferPointer<UInt8>
) -> (kind: JSONScanner.Kind, text: String)? {
    guard field.hasPrefix("/") else { return member(field, of: item) }
    var slice = item
    var found: JSONScanner.Value?
    for step in field.dropFirst().split(separator: "/", omittingEmptySubsequences: false) {
        if let found { slice = .init(rebasing: slice[found.range]) }
        found = child(String(step).replacing("~1", with: "/").replacing("~0", with: "~"), of: slice)
        if found == nil { return nil }
    }
    return found.map { plain($0, in: slice) }
}

/// A member of an object or an element of an array.
private func child(_ name: String, of container: UnsafeBufferPointer<UInt8>) -> JSONScanner.Value? {
    var scanner = JSONScanner(container)
    var found: JSONScanner.Value?
    switch scanner.peek() {
    case UInt8(ascii: "{"):
        guard scanner.members({ key, value in if key.name == name { found = value } }) else { return nil }
    case UInt8(ascii: "["):
        var left = Int(name) ?? -1
        guard String(left) == name else { return nil }
        let isWhole = scanner.elements { value in
            if left == 0 { found = value }
            left -= 1
        }
        guard isWhole else { return nil }
    default: break
    }
    return found
}

/// A string without quotes and escapes; any other value as its text.
private func plain(
    _ value: JSONScanner.Value, in text: UnsafeBufferPointer<UInt8>
) -> (kind: JSONScanner.Kind, text: String) {
    let raw = text[value.range]
    let isString = value.kind == .string
    return (value.kind, isString ? unescaped(raw.dropFirst().dropLast()) : String(decoding: raw, as: UTF8.self))
}
