import PosternJSON

/// What the parser must say, found the slow way: one byte after the other, with arrays and sets of names. Written from
/// RFC 8259 and the rules of `JSONFault` alone; shares nothing with the parser.
struct ReferenceValidator {
    private let text: [UInt8]
    private var place: Int
    private let end: Int
    private var duplicates: [Int] = []

    static func fault(of text: [UInt8]) -> JSONFault? {
        var validator = Self(text, text.startIndex..<text.endIndex)
        do { try validator.document() } catch { return error }
        return validator.duplicates.min().map { JSONFault(.duplicate, at: $0) }
    }

    static func faultOfLines(of text: [UInt8]) -> JSONFault? {
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
        return isEmpty ? JSONFault(.empty, at: text.count) : duplicates.min().map { JSONFault(.duplicate, at: $0) }
    }

    private init(_ text: [UInt8], _ range: Range<Int>) {
        self.text = text
        place = range.lowerBound
        end = range.upperBound
    }

    private var next: UInt8? { place < end ? text[place] : nil }
    private static func byte(_ character: Unicode.Scalar) -> UInt8 { UInt8(ascii: character) }

    private mutating func skipBlanks() {
        while let byte = next, [0x20, 0x09, 0x0A, 0x0D].contains(byte) { place += 1 }
    }

    private func unexpected(_ reason: JSONFault.Reason = .syntax) -> JSONFault {
        guard next != nil else { return JSONFault(.truncated, at: place) }
        return JSONFault(sequenceLength(at: place) == nil ? .encoding : reason, at: place)
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

    private mutating func document() throws(JSONFault) {
        skipBlanks()
        guard next != nil else { throw JSONFault(.empty, at: place) }
        try value(depth: 0)
        skipBlanks()
        if next != nil { throw unexpected(.trailing) }
    }

    private mutating func value(depth: Int) throws(JSONFault) {
        skipBlanks()
        guard let first = next else { throw unexpected() }
        switch first {
        case Self.byte("["), Self.byte("{"):
            guard depth < 64 else { throw JSONFault(.depth, at: place) }
            place += 1
            try first == Self.byte("[") ? elements(depth: depth + 1) : members(depth: depth + 1)
        case Self.byte("\""): _ = try string()
        case Self.byte("-"), Self.byte("0")...Self.byte("9"): try number()
        default:
            for word in ["true", "false", "null"] where text[place..<end].starts(with: word.utf8) {
                let behind = place + word.utf8.count
                if behind == end || Self.endsScalar(text[behind]) {
                    place = behind
                    return
                }
            }
            throw unexpected()
        }
    }

    private static func endsScalar(_ byte: UInt8) -> Bool { " \t\r\n,:[]{}".utf8.contains(byte) }

    private mutating func elements(depth: Int) throws(JSONFault) {
        skipBlanks()
        if next == Self.byte("]") {
            place += 1
            return
        }
        while true {
            try value(depth: depth)
            if try isLast(closing: "]") { return }
        }
    }

    private mutating func members(depth: Int) throws(JSONFault) {
        skipBlanks()
        if next == Self.byte("}") {
            place += 1
            return
        }
        var names: Set<[UInt8]> = []
        while true {
            skipBlanks()
            guard next == Self.byte("\"") else { throw unexpected() }
            let start = place
            if !names.insert(try string()).inserted { duplicates.append(start) }
            skipBlanks()
            guard next == Self.byte(":") else { throw unexpected() }
            place += 1
            try value(depth: depth)
            if try isLast(closing: "}") { return }
        }
    }

    private mutating func isLast(closing: Unicode.Scalar) throws(JSONFault) -> Bool {
        skipBlanks()
        guard next == Self.byte(",") || next == Self.byte(closing) else { throw unexpected() }
        place += 1
        return text[place - 1] != Self.byte(",")
    }

    private mutating func number() throws(JSONFault) {
        let start = place
        while let byte = next, !Self.endsScalar(byte) { place += 1 }
        var spelling = text[start..<place]
        if spelling.first == Self.byte("-") { spelling.removeFirst() }
        var digits = spelling.prefix { (48...57).contains($0) }
        guard digits.count == 1 || (digits.count > 1 && digits.first != 48) else { throw JSONFault(.number, at: start) }
        spelling.removeFirst(digits.count)
        for mark in [".", "eE"] where spelling.first.map(mark.utf8.contains) == true {
            spelling.removeFirst()
            if mark == "eE", let sign = spelling.first, "+-".utf8.contains(sign) { spelling.removeFirst() }
            digits = spelling.prefix { (48...57).contains($0) }
            guard !digits.isEmpty else { throw JSONFault(.number, at: start) }
            spelling.removeFirst(digits.count)
        }
        guard spelling.isEmpty else { throw JSONFault(.number, at: start) }
    }

    /// The string's value.
    private mutating func string() throws(JSONFault) -> [UInt8] {
        let quote = place
        var value: [UInt8] = []
        place += 1
        while let byte = next {
            switch byte {
            case Self.byte("\""):
                place += 1
                return value
            case 0..<0x20: throw JSONFault(.control, at: place)
            case Self.byte("\\"):
                if place + 1 == end { throw JSONFault(.unterminated, at: quote) }
                value += try escape()
            default:
                guard let length = sequenceLength(at: place) else { throw JSONFault(.encoding, at: place) }
                value += text[place..<place + length]
                place += length
            }
        }
        throw JSONFault(.unterminated, at: quote)
    }

    private mutating func escape() throws(JSONFault) -> [UInt8] {
        let start = place
        let letter = Character(Unicode.Scalar(text[place + 1]))
        let plain: [Character: String] = [
            "\"": "\"", "\\": "\\", "/": "/", "b": "\u{8}", "f": "\u{C}", "n": "\n", "r": "\r", "t": "\t",
        ]
        if let meant = plain[letter] {
            place += 2
            return Array(meant.utf8)
        }
        guard let unit = unit(at: start) else { throw JSONFault(.escape, at: start) }
        var units = [unit]
        if UTF16.isLeadSurrogate(unit), let second = self.unit(at: start + 6), UTF16.isTrailSurrogate(second) {
            units.append(second)
        }
        guard units.count == 2 || !UTF16.isSurrogate(unit) else { throw JSONFault(.surrogate, at: start) }
        place += 6 * units.count
        return Array(String(decoding: units, as: UTF16.self).utf8)
    }

    private func unit(at start: Int) -> UInt16? {
        guard start + 6 <= end, text[start] == Self.byte("\\"), text[start + 1] == Self.byte("u") else { return nil }
        let digits = text[start + 2..<start + 6]
        guard digits.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit && $0 < 0x80 }) else { return nil }
        return UInt16(String(decoding: digits, as: UTF8.self), radix: 16)
    }
}
