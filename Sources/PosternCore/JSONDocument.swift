/// What a JSON value is; `key` marks the member names of an object.
public enum JSONKind: UInt8, Sendable { case object, array, string, number, `true`, `false`, null, key }

/// One value of a checked JSON text: where it starts and ends, and which token follows it.
///
/// The layout is the C parser's (`postern_json_token`): 16 bytes, written once, never copied into Swift objects.
@frozen public struct JSONToken: Sendable {
    /// Byte offsets into the text, quotes and brackets included.
    public var start: UInt32
    public var end: UInt32
    /// Index of the first token after this value and all it contains.
    public var next: UInt32
    public var kind: UInt8
    /// Bit 0: the string holds an escape. Bit 1: the number is an integer literal (no fraction, no exponent).
    public var flags: UInt8
    /// Members of an object or elements of an array, at most 65535; more count as 65535.
    public var count: UInt16
}

/// A value inside a checked JSON text.
///
/// It points into memory of the parser that made it: valid only inside the closure that was given it, on that thread.
@frozen public struct JSONValue {
    @usableFromInline let text: UnsafePointer<UInt8>
    @usableFromInline let tokens: UnsafePointer<JSONToken>
    @usableFromInline let index: Int

    @inlinable public init(text: UnsafePointer<UInt8>, tokens: UnsafePointer<JSONToken>, index: Int) {
        self.text = text
        self.tokens = tokens
        self.index = index
    }

    @inlinable var token: JSONToken { tokens[index] }

    @inlinable public var kind: JSONKind { JSONKind(rawValue: token.kind) ?? .null }

    /// Where the value stands in the text.
    @inlinable public var range: Range<Int> { Int(token.start)..<Int(token.end) }

    /// The value's own text, as it came.
    @inlinable public var bytes: UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: text + Int(token.start), count: Int(token.end - token.start))
    }

    /// A number without fraction and exponent; `-0` is one, `1.0` and `1e3` are not.
    @inlinable public var isIntegerLiteral: Bool { kind == .number && token.flags & 2 != 0 }

    /// The number, when it is an integer literal that fits in 64 bits.
    public var integer: Int64? {
        guard isIntegerLiteral else { return nil }
        let isNegative = bytes[0] == UInt8(ascii: "-")
        var number: Int64 = 0  // built on its own side of zero: -2^63 has no opposite
        for digit in bytes.dropFirst(isNegative ? 1 : 0) {
            let (tens, tooManyTens) = number.multipliedReportingOverflow(by: 10)
            let step = Int64(digit - UInt8(ascii: "0"))
            let (sum, tooMuch) =
                isNegative ? tens.subtractingReportingOverflow(step) : tens.addingReportingOverflow(step)
            if tooManyTens || tooMuch { return nil }
            number = sum
        }
        return number
    }

    /// A string or key whose text is not its value.
    @inlinable public var hasEscapes: Bool { token.flags & 1 != 0 }

    /// The raw text between the quotes of a string or key; not to be asked of anything else.
    @inlinable public var rawString: UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: text + Int(token.start) + 1, count: Int(token.end - token.start) - 2)
    }

    /// A string with at least one character.
    @inlinable public var isFilledString: Bool { kind == .string && token.end - token.start > 2 }

    /// The string's value with its escapes resolved; nil for anything but a string or key.
    public var string: String? {
        guard kind == .string || kind == .key else { return nil }
        return hasEscapes
            ? String(decoding: JSONEscapes.resolve(rawString), as: UTF8.self)
            : String(decoding: rawString, as: UTF8.self)
    }

    /// The string's value as UTF-8.
    public var stringBytes: [UInt8]? {
        guard kind == .string || kind == .key else { return nil }
        return hasEscapes ? JSONEscapes.resolve(rawString) : Array(rawString)
    }

    /// A string of white space alone, or an empty one: `Character.isWhitespace` decides.
    public var isBlankString: Bool {
        guard kind == .string else { return false }
        guard let first = rawString.first else { return true }
        if first > 0x20, first < 0x80, first != UInt8(ascii: "\\") { return false }
        return string?.allSatisfy(\.isWhitespace) ?? false
    }

    /// Does the key or string say `name`? Nothing else does.
    @inlinable public func equals(_ name: StaticString) -> Bool {
        guard kind == .key || kind == .string else { return false }
        if hasEscapes { return equalsEscaped(name) }
        let raw = rawString
        guard raw.count == name.utf8CodeUnitCount else { return false }
        for place in 0..<raw.count where raw[place] != name.utf8Start[place] { return false }
        return true
    }

    @usableFromInline func equalsEscaped(_ name: StaticString) -> Bool { string == name.description }

    /// The member of an object; nil when there is none, or this is no object.
    @inlinable public subscript(_ name: StaticString) -> JSONValue? {
        for member in members where member.key.equals(name) { return member.value }
        return nil
    }

    /// As above, for names known only at run time.
    public subscript(named name: String) -> JSONValue? {
        for member in members where member.key.string == name { return member.value }
        return nil
    }

    /// Number of members or elements, up to 65535.
    @inlinable public var count: Int { Int(token.count) }

    /// The members of an object in their order; empty for anything else.
    @inlinable public var members: JSONMembers { JSONMembers(of: self) }

    /// The elements of an array in their order; empty for anything else.
    @inlinable public var elements: JSONElements { JSONElements(of: self) }
}

/// The members of an object, in the order of the text.
@frozen public struct JSONMembers: Sequence, IteratorProtocol {
    @usableFromInline let owner: JSONValue
    @usableFromInline var index: Int
    @usableFromInline let end: Int

    @inlinable init(of owner: JSONValue) {
        self.owner = owner
        index = owner.index + 1
        end = owner.kind == .object ? Int(owner.token.next) : index
    }

    @inlinable public mutating func next() -> (key: JSONValue, value: JSONValue)? {
        guard index < end else { return nil }
        let key = JSONValue(text: owner.text, tokens: owner.tokens, index: index)
        let value = JSONValue(text: owner.text, tokens: owner.tokens, index: index + 1)
        index = Int(value.token.next)
        return (key, value)
    }
}

/// The elements of an array, in the order of the text.
@frozen public struct JSONElements: Sequence, IteratorProtocol {
    @usableFromInline let owner: JSONValue
    @usableFromInline var index: Int
    @usableFromInline let end: Int

    @inlinable init(of owner: JSONValue) {
        self.owner = owner
        index = owner.index + 1
        end = owner.kind == .array ? Int(owner.token.next) : index
    }

    @inlinable public mutating func next() -> JSONValue? {
        guard index < end else { return nil }
        let element = JSONValue(text: owner.text, tokens: owner.tokens, index: index)
        index = Int(element.token.next)
        return element
    }
}
