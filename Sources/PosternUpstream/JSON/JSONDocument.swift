import PosternCore

/// A value inside a checked JSON text.
///
/// It points into memory of the parser that made it: valid only inside the closure that was given it, on that thread.
/// The parser writes one or two words for each value (`postern_json_word`); where a value starts and of which kind it
/// is, the text shows.
@frozen public struct JSONValue {
    @usableFromInline let text: UnsafePointer<UInt8>
    @usableFromInline let words: UnsafePointer<UInt32>
    /// The index of the value's first word.
    @usableFromInline let index: Int
    @usableFromInline let start: Int

    /// - Parameters:
    ///   - index: The value's first word: where the value ends, and whether a string holds an escape or a number is an
    ///     integer literal. An object or array has a second one: the first word after it and all it contains.
    ///   - start: Where the value starts in `text`; -1 for lines, which are preceded by a `[`.
    @inlinable public init(text: UnsafePointer<UInt8>, words: UnsafePointer<UInt32>, index: Int, start: Int) {
        self.text = text
        self.words = words
        self.index = index
        self.start = start
    }

    @inlinable var end: Int { Int(words[index] & 0x7FFF_FFFF) }
    @inlinable var isFlagged: Bool { words[index] >> 31 == 1 }
    /// The first word of what follows this value and all it contains.
    @inlinable var next: Int {
        switch text[start] {
        case UInt8(ascii: "{"), UInt8(ascii: "["): Int(words[index + 1])
        default: index + 1
        }
    }

    /// Where the next value or member name starts, from `position` on.
    @inlinable func nextStart(from position: Int) -> Int {
        var start = position
        while text[start] <= 0x20 || text[start] == UInt8(ascii: ",") || text[start] == UInt8(ascii: ":") { start += 1 }
        return start
    }

    /// Read from the value's first byte, without a look at the rest.
    @inlinable public var kind: Kind { Kind(startingWith: text[start]) }

    /// The range of the value in the text.
    @inlinable public var range: Range<Int> { start..<end }

    /// The value's own text, as it was received.
    @inlinable public var bytes: UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: text + start, count: end - start)
    }

    /// A number without fraction and exponent; `-0` is one, `1.0` and `1e3` are not.
    @inlinable public var isIntegerLiteral: Bool { kind == .number && isFlagged }

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

    /// A string or member name whose text is not its value.
    @inlinable public var hasEscapes: Bool { kind == .string && isFlagged }

    /// The raw text between the quotes of a string or member name; not to be asked of anything else.
    @inlinable public var rawString: UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: text + start + 1, count: end - start - 2)
    }

    /// A string with at least one character.
    @inlinable public var isFilledString: Bool { kind == .string && end - start > 2 }

    /// An object with at least one member.
    @inlinable public var isFilledObject: Bool { kind == .object && next > index + 2 }

    /// The string's value with its escapes resolved; nil for anything but a string or member name.
    public var string: String? {
        guard kind == .string else { return nil }
        return hasEscapes
            ? String(decoding: JSONEscapes.resolve(rawString), as: UTF8.self)
            : String(decoding: rawString, as: UTF8.self)
    }

    /// The string's value as UTF-8.
    public var stringBytes: [UInt8]? {
        guard kind == .string else { return nil }
        return hasEscapes ? JSONEscapes.resolve(rawString) : Array(rawString)
    }

    /// Whether the string contains the character, which may be escaped. Allocates no memory.
    public func holds(_ character: UInt8) -> Bool {
        hasEscapes ? JSONEscapes.Resolved(rawString).contains(character) : rawString.contains(character)
    }

    /// A string of white space alone (Unicode's `White_Space`), or an empty one.
    public var isBlankString: Bool {
        guard kind == .string else { return false }
        for byte in JSONEscapes.Resolved(rawString) where !(byte == 0x20 || 0x09...0x0D ~= byte) {
            return byte >= 0x80 && string?.unicodeScalars.allSatisfy(\.properties.isWhitespace) ?? false
        }
        return true
    }

    /// Whether this is a string or member name that equals `name`. Where an object is searched for several names, most
    /// comparisons end with the length.
    @inlinable @inline(__always) public func equals(_ name: StaticString) -> Bool {
        let (length, count) = (end - start - 2, name.utf8CodeUnitCount)
        // An escape has up to six times as many bytes as its character, and two at least (RFC 8259, section 7).
        guard length == count || length > count && length <= 6 * count && hasEscapes else { return false }
        return equals(UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
    }

    @inlinable func equals(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
        guard kind == .string else { return false }
        if hasEscapes { return equalsEscaped(name) }
        let raw = rawString
        guard raw.count == name.count else { return false }
        for offset in 0..<raw.count where raw[offset] != name[offset] { return false }
        return true
    }

    /// Allocates no memory for the resolved text: a body may be full of names with escapes, and each lookup passes
    /// them.
    @usableFromInline func equalsEscaped(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
        // An escape is longer than the character that it represents.
        rawString.count > name.count && JSONEscapes.Resolved(rawString).elementsEqual(name)
    }

    /// The member of an object. Nil if there is none, or if this is not an object.
    @inlinable public subscript(_ name: StaticString) -> JSONValue? {
        for member in members where member.key.equals(name) { return member.value }
        return nil
    }

    /// As above, for names known only at run time.
    public subscript(named name: String) -> JSONValue? {
        var name = name
        return name.withUTF8 { name in
            for member in members where member.key.equals(name) { return member.value }
            return nil
        }
    }

    /// The members of an object in their order; empty for anything else.
    @inlinable public var members: Members { Members(of: self) }

    /// The elements of an array in their order; empty for anything else.
    @inlinable public var elements: Elements { Elements(of: self) }
}

extension JSONValue {
    /// What a JSON value is.
    public enum Kind: UInt8, Sendable {
        case object, array, string, number, `true`, `false`, null

        /// The kind of a checked value, by its first byte.
        @inlinable init(startingWith byte: UInt8) {
            switch byte {
            case UInt8(ascii: "\""): self = .string
            case UInt8(ascii: "{"): self = .object
            case UInt8(ascii: "["): self = .array
            case UInt8(ascii: "t"): self = .true
            case UInt8(ascii: "f"): self = .false
            case UInt8(ascii: "n"): self = .null
            default: self = .number
            }
        }
    }

    /// The members of an object, in the order of the text.
    @frozen public struct Members: Sequence, IteratorProtocol {
        @usableFromInline let owner: JSONValue
        @usableFromInline var index: Int
        @usableFromInline let end: Int
        /// The end of the previous value.
        @usableFromInline var position: Int

        @inlinable init(of owner: JSONValue) {
            self.owner = owner
            index = owner.index + 2
            end = owner.kind == .object ? owner.next : index
            position = owner.start + 1
        }

        @inlinable public mutating func next() -> (key: JSONValue, value: JSONValue)? {
            guard index < end else { return nil }
            let key = JSONValue(
                text: owner.text, words: owner.words, index: index, start: owner.nextStart(from: position))
            let value = JSONValue(
                text: owner.text, words: owner.words, index: index + 1, start: owner.nextStart(from: key.end))
            index = value.next
            position = value.end
            return (key, value)
        }
    }

    /// The elements of an array, in the order of the text.
    @frozen public struct Elements: Sequence, IteratorProtocol {
        @usableFromInline let owner: JSONValue
        @usableFromInline var index: Int
        @usableFromInline let end: Int
        /// The end of the previous value.
        @usableFromInline var position: Int

        @inlinable init(of owner: JSONValue) {
            self.owner = owner
            index = owner.index + 2
            end = owner.kind == .array ? owner.next : index
            position = owner.start + 1
        }

        @inlinable public mutating func next() -> JSONValue? {
            guard index < end else { return nil }
            let element = JSONValue(
                text: owner.text, words: owner.words, index: index, start: owner.nextStart(from: position))
            index = element.next
            position = element.end
            return element
        }
    }
}
