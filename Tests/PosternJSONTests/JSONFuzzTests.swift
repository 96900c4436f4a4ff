import PosternCore
import PosternJSON
import PosternTestKit
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
