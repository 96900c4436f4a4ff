import PosternJSON

/// What the parser must say, found the slow way: one byte after the other, with arrays and sets of names. Written from
/// RFC 8259 and the rules of `JSONError` alone; shares nothing with the parser.
struct ReferenceValidator {
    private let text: [UInt8]
    private var position: Int
    private let end: Int
    private var duplicates: [Int] = []

    static func fault(of text: [UInt8]) -> JSONError? {
        var validator = Self(text, text.startIndex..<text.endIndex)
        do { try validator.document() } catch { return error }
        return validator.duplicates.min().map { JSONError(.duplicate, at: $0) }
    }

    static func faultOfLines(of text: [UInt8]) -> JSONError? {
        var duplicates: [Int] = []
        var isEmpty = true
        var start = 0
        for end in text.indices.filter({ text[$0] == 0x0A }) + [text.endIndex] {
            var validator = Self(text, start..<end)
            start = end + 1
            do { try validator.document() } catch {
                if error.reason == .empty { continue }
                return error
            }
            isEmpty = false
            duplicates += validator.duplicates
        }
        return isEmpty ? JSONError(.empty, at: text.count) : duplicates.min().map { JSONError(.duplicate, at: $0) }
    }

    private init(_ text: [UInt8], _ range: Range<Int>) {
        self.text = text
        position = range.lowerBound
        end = range.upperBound
    }

    private var next: UInt8? { position < end ? text[position] : nil }
    private static func byte(_ character: Unicode.Scalar) -> UInt8 { UInt8(ascii: character) }

    private mutating func skipBlanks() {
        while let byte = next, [0x20, 0x09, 0x0A, 0x0D].contains(byte) { position += 1 }
    }

    private func unexpected(_ reason: JSONError.Reason = .syntax) -> JSONError {
        guard next != nil else { return JSONError(.truncated, at: position) }
        return JSONError(sequenceLength(at: position) == nil ? .encoding : reason, at: position)
    }

    /// Bytes of the well-formed sequence at `start`, by asking the standard library to repair it.
    private func sequenceLength(at start: Int) -> Int? {
        for length in 1...4 where start + length <= end {
            let candidate = Array(text[start..<start + length])
            let scalars = String(decoding: candidate, as: UTF8.self).unicodeScalars
            if scalars.count == 1, Array(String(scalars).utf8) == candidate { return length }
        }
        return nil
    }

    private mutating func document() throws(JSONError) {
        skipBlanks()
        guard next != nil else { throw JSONError(.empty, at: position) }
        try value(depth: 0)
        skipBlanks()
        if next != nil { throw unexpected(.trailing) }
    }

    private mutating func value(depth: Int) throws(JSONError) {
        skipBlanks()
        guard let first = next else { throw unexpected() }
        switch first {
        case Self.byte("["), Self.byte("{"):
            guard depth < 64 else { throw JSONError(.depth, at: position) }
            position += 1
            try first == Self.byte("[") ? elements(depth: depth + 1) : members(depth: depth + 1)
        case Self.byte("\""): _ = try string()
        case Self.byte("-"), Self.byte("0")...Self.byte("9"): try number()
        default:
            for word in ["true", "false", "null"] where text[position..<end].starts(with: word.utf8) {
                let behind = position + word.utf8.count
                if behind == end || Self.endsScalar(text[behind]) {
                    position = behind
                    return
                }
            }
            throw unexpected()
        }
    }

    private static func endsScalar(_ byte: UInt8) -> Bool { " \t\r\n,:[]{}".utf8.contains(byte) }

    private mutating func elements(depth: Int) throws(JSONError) {
        skipBlanks()
        if next == Self.byte("]") {
            position += 1
            return
        }
        while true {
            try value(depth: depth)
            if try readSeparator(closing: "]") { return }
        }
    }

    private mutating func members(depth: Int) throws(JSONError) {
        skipBlanks()
        if next == Self.byte("}") {
            position += 1
            return
        }
        var names: Set<[UInt8]> = []
        while true {
            skipBlanks()
            guard next == Self.byte("\"") else { throw unexpected() }
            let start = position
            if !names.insert(try string()).inserted { duplicates.append(start) }
            skipBlanks()
            guard next == Self.byte(":") else { throw unexpected() }
            position += 1
            try value(depth: depth)
            if try readSeparator(closing: "}") { return }
        }
    }

    private mutating func readSeparator(closing: Unicode.Scalar) throws(JSONError) -> Bool {
        skipBlanks()
        guard next == Self.byte(",") || next == Self.byte(closing) else { throw unexpected() }
        position += 1
        return text[position - 1] != Self.byte(",")
    }

    private mutating func number() throws(JSONError) {
        let start = position
        while let byte = next, !Self.endsScalar(byte) { position += 1 }
        let spelling = String(decoding: text[start..<position], as: UTF8.self)
        guard spelling.wholeMatch(of: #/-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/#) != nil else {
            throw JSONError(.number, at: start)
        }
    }

    /// The string's value.
    private mutating func string() throws(JSONError) -> [UInt8] {
        let quote = position
        var value: [UInt8] = []
        position += 1
        while let byte = next {
            switch byte {
            case Self.byte("\""):
                position += 1
                return value
            case 0..<0x20: throw JSONError(.control, at: position)
            case Self.byte("\\"):
                if position + 1 == end { throw JSONError(.unterminated, at: quote) }
                value += try escape()
            default:
                guard let length = sequenceLength(at: position) else { throw JSONError(.encoding, at: position) }
                value += text[position..<position + length]
                position += length
            }
        }
        throw JSONError(.unterminated, at: quote)
    }

    private mutating func escape() throws(JSONError) -> [UInt8] {
        let start = position
        let letter = Character(Unicode.Scalar(text[position + 1]))
        let plain: [Character: String] = [
            "\"": "\"", "\\": "\\", "/": "/", "b": "\u{8}", "f": "\u{C}", "n": "\n", "r": "\r", "t": "\t",
        ]
        if let meant = plain[letter] {
            position += 2
            return Array(meant.utf8)
        }
        guard let unit = unit(at: start) else { throw JSONError(.escape, at: start) }
        var units = [unit]
        if UTF16.isLeadSurrogate(unit), let second = self.unit(at: start + 6), UTF16.isTrailSurrogate(second) {
            units.append(second)
        }
        guard units.count == 2 || !UTF16.isSurrogate(unit) else { throw JSONError(.surrogate, at: start) }
        position += 6 * units.count
        return Array(String(decoding: units, as: UTF16.self).utf8)
    }

    private func unit(at start: Int) -> UInt16? {
        guard start + 6 <= end, text[start] == Self.byte("\\"), text[start + 1] == Self.byte("u") else { return nil }
        let digits = text[start + 2..<start + 6]
        guard digits.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit && $0 < 0x80 }) else { return nil }
        return UInt16(String(decoding: digits, as: UTF8.self), radix: 16)
    }
}
