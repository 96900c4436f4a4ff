import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

/// Compares the parser with `ReferenceValidator` on damaged texts; the seeds make every run the same.
@Suite struct JSONFuzzTests {
    private static let samples = [
        #"{"timestamp":1433004485870,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"session.started","x":[1,-2.50e+3,true]}"#,
        #"{"a":"\u00e9\ud83d\ude00\\\"\/","b":{"a":null,"b":[[],{}]},"\u0061b":"é😀","d":[{"a":1},{"a":1}]}"#,
        #"[false,0,-0,0.1000,1e400,"",[["x"],["\n\t"]],{"":{"":{"":1}}},123456789012345678901234567890]"#,
        "{\"k\" : [ 1 , 2 ] ,\r\n\t\"long name of more than eight bytes\":\"a string that is longer than sixty-four bytes, so that it crosses blocks\"}",
        "{\"a\":1}\n\n{\"a\":\"x\\ny\"}\r\n[1,2]\n\"é\"\n",
        "{" + (0..<40).map { "\"n\($0 % 37)\":\($0)" }.joined(separator: ",") + "}",
        String(repeating: "[", count: 63) + "{\"a\":1}" + String(repeating: "]", count: 63),
    ].map { Array($0.utf8) }

    /// Bytes that matter to the grammar, so that damage is often nearly right.
    private static let seasoning =
        Array("{}[],:\"\\ \n\r\tu0019.-+eEdDtrufalsn/x\u{1}\u{C}\u{1A}\u{7F}é😀".utf8) + [
            0xFF, 0x80, 0xED, 0xA0, 0xC0, 0,
        ]

    private static func damaged(_ sample: [UInt8], with random: inout SplitMix64) -> [UInt8] {
        var text = sample
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            guard !text.isEmpty else { return text }
            let position = Int.random(in: 0..<text.count, using: &random)
            switch Int.random(in: 0..<6, using: &random) {
            case 0: text.remove(at: position)
            case 1: text.removeSubrange(position...)
            case 2: text.insert(seasoning.randomElement(using: &random)!, at: position)
            case 3: text[position] = seasoning.randomElement(using: &random)!
            case 4: text.insert(contentsOf: text[position..<min(text.count, position + 12)], at: position)
            default:
                let other = samples.randomElement(using: &random)!
                text.insert(contentsOf: other.prefix(Int.random(in: 0...other.count, using: &random)), at: position)
            }
        }
        return text
    }

    @Test(arguments: UInt64(0)..<8)
    func parser_agreesWithTheReference_onDamagedTexts(seed: UInt64) {
        var random = SplitMix64(state: seed)
        let parser = JSONParser()
        for _ in 0..<2500 {
            let text = Self.damaged(Self.samples.randomElement(using: &random)!, with: &random)
            let expected = ReferenceValidator.fault(of: text)
            let found = fault(of: text, with: parser)
            if found != expected {
                Issue.record("\(text): \(String(describing: found)), not \(String(describing: expected))")
            }

            let expectedOfLines = ReferenceValidator.faultOfLines(of: text)
            let foundInLines = faultOfLines(text, with: parser)
            if foundInLines != expectedOfLines {
                Issue.record(
                    "lines \(text): \(String(describing: foundInLines)), not \(String(describing: expectedOfLines))")
            }
        }
    }

    private func faultOfLines(_ text: [UInt8], with parser: JSONParser) -> JSONError? {
        switch text.withUnsafeBufferPointer({ parser.parseLines($0) { _ in } }) {
        case .success: nil
        case .failure(let fault): fault
        }
    }

    /// Every value of a text that is taken, written again from its tokens, gives the text without its blanks.
    @Test(arguments: samples.dropLast(2).filter { ReferenceValidator.fault(of: $0) == nil })
    func tokens_spellTheText_whenReadInOrder(sample: [UInt8]) throws {
        let written = try JSONParser().parse(sample) { Self.spelled($0) }.get()
        let doubly = try JSONParser().parse(written) { Self.spelled($0) }.get()
        #expect(doubly == written)
        #expect(written.count <= sample.count)
        #expect(written.filter { $0 > 0x20 } == sample.filter { $0 > 0x20 })
    }

    private static func spelled(_ value: JSONValue) -> [UInt8] {
        switch value.kind {
        case .object:
            Array("{".utf8)
                + Array(
                    value.members.map { Array($0.key.bytes) + [0x3A] + spelled($0.value) }.joined(separator: [0x2C]))
                + Array("}".utf8)
        case .array:
            Array("[".utf8) + Array(value.elements.map { spelled($0) }.joined(separator: [0x2C])) + Array("]".utf8)
        default: Array(value.bytes)
        }
    }
}

/// The result that the parser must have, found the slow way: byte by byte, with arrays and sets of names. Written from
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
