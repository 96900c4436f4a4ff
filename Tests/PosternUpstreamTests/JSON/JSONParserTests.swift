import PosternCore
import PosternUpstream
import Testing

/// Parses `text` with a new parser and returns the result of `read` for its value.
func parsing<R>(_ text: String, _ read: (JSONValue) -> R) throws(JSONError) -> R {
    try JSONParser().parse(Array(text.utf8), read).get()
}

/// The error in `text`, or nil if it is valid.
func fault(of text: [UInt8], with parser: JSONParser = JSONParser()) -> JSONError? {
    switch parser.parse(text, { _ in }) {
    case .success: nil
    case .failure(let fault): fault
    }
}

struct Refused: Sendable, CustomTestStringConvertible {
    let text: [UInt8]
    let reason: JSONError.Reason
    let offset: Int

    init(_ text: String, _ reason: JSONError.Reason, _ offset: Int) {
        self.init(Array(text.utf8), reason, offset)
    }

    init(_ text: [UInt8], _ reason: JSONError.Reason, _ offset: Int) {
        self.text = text
        self.reason = reason
        self.offset = offset
    }

    var testDescription: String { String(decoding: text.prefix(40), as: UTF8.self) }
}

@Suite struct JSONParserTests {
    @Test(arguments: [
        "{}", "[]", "0", "-0", "\"\"", "true", "false", "null", " [ 1 , 2 ]\r\n\t", "1e400", "-0.1000E-5", "0.0", "0e0",
        "123456789012345678901234567890", #"{"a":{"b":[[],{},"",null]}}"#, #""\"\\\/\b\f\n\r\tA\u0000""#,
        #""\ud83d\ude00\uDBFF\uDFFF""#, "\"é 😀 \u{10FFFF}\u{7F}\"", #"{"":1," ":2}"#, #"{"a":1,"A":2}"#,
        #"[{"a":1},{"a":1}]"#, #"{"a":{"a":1}}"#, #"["a\\"]"#, "[\(String(repeating: "1,", count: 70000))1]",
        String(repeating: "[", count: 64) + String(repeating: "]", count: 64),
        "[" + String(repeating: #"{"a":"#, count: 63) + "1" + String(repeating: "}", count: 63) + "]",
    ])
    func text_isTaken_whenItIsJSON(text: String) {
        #expect(fault(of: Array(text.utf8)) == nil)
    }

    @Test(arguments: [
        Refused("", .empty, 0), Refused(" \n ", .empty, 3),
        Refused("\u{FEFF}{}", .syntax, 0), Refused("x", .syntax, 0), Refused("[1 2]", .syntax, 3),
        Refused("[1,]", .syntax, 3), Refused("[,]", .syntax, 1), Refused(#"{"a" 1}"#, .syntax, 5),
        Refused("{a:1}", .syntax, 1), Refused(#"{"a":1,}"#, .syntax, 7), Refused(#"{1:2}"#, .syntax, 1),
        Refused("[tru]", .syntax, 1), Refused("[truex]", .syntax, 1), Refused("[nul", .syntax, 1),
        Refused("[NaN]", .syntax, 1), Refused("[+1]", .syntax, 1), Refused("[.5]", .syntax, 1),
        Refused("['a']", .syntax, 1), Refused("[1]]", .trailing, 3), Refused("[1}", .syntax, 2),
        Refused("[\u{1}]", .syntax, 1), Refused("[\u{C}1]", .syntax, 1), Refused("[1\u{1A}2]", .number, 1),
        Refused("[é]", .syntax, 1), Refused(#"[\"a"]"#, .syntax, 1), Refused(#"["a"\"b"]"#, .syntax, 4),
        Refused("[", .truncated, 1), Refused(#"{"a"#, .unterminated, 1), Refused(#"{"a":"#, .truncated, 5),
        Refused("[1, ", .truncated, 4), Refused(#"{"a":1"#, .truncated, 6),
        Refused("1 2", .trailing, 2), Refused("{} x", .trailing, 3), Refused("\"a\"\"b\"", .trailing, 3),
        Refused("1\0", .number, 0), Refused("{}\0", .trailing, 2),
        Refused(String(repeating: "[", count: 65), .depth, 64),
        Refused(String(repeating: "[{\"a\":", count: 40), .depth, 192),
        Refused(#"{"a":1,"b":2,"a":3}"#, .duplicate, 13), Refused(#"{"a":1,"\u0061":3}"#, .duplicate, 7),
        Refused(#"{"\ud83d\ude00":1,"😀":3}"#, .duplicate, 18), Refused(#"{"/":1,"\/":3}"#, .duplicate, 7),
        Refused(#"{"a":{"x":1,"x":2},"a":3}"#, .duplicate, 12), Refused(#"{"a":1,"a":{"x":1,"x":2}}"#, .duplicate, 7),
        Refused(#"{"a":1,"a":}"#, .syntax, 11), Refused(#"{"":1,"":2}"#, .duplicate, 6),
        Refused(Array("[\"a".utf8) + [0xFF] + Array("\"]".utf8), .encoding, 3),
        Refused([0x22, 0xC0, 0x80, 0x22], .encoding, 1), Refused([0x22, 0xED, 0xA0, 0x80, 0x22], .encoding, 1),
        Refused([0x22, 0xF4, 0x90, 0x80, 0x80, 0x22], .encoding, 1), Refused([0x22, 0x41, 0xE2, 0x82], .encoding, 2),
        Refused([0xFF], .encoding, 0), Refused([0x5B, 0x31, 0x5D, 0x80], .encoding, 3),
        Refused(#"["\ud83d"]"#, .surrogate, 2), Refused(#"["a\ude00"]"#, .surrogate, 3),
        Refused(#"["\ud83d\u0041"]"#, .surrogate, 2), Refused(#"["\ud83d\ud83d\ude00"]"#, .surrogate, 2),
        Refused(#"["\x"]"#, .escape, 2), Refused(#"["\u12g4"]"#, .escape, 2), Refused(#"["\U0041"]"#, .escape, 2),
        Refused(#"["\u12"#, .escape, 2), Refused(#"["\"#, .unterminated, 1), Refused(#"["ab\""#, .unterminated, 1),
        Refused("[01]", .number, 1), Refused("[-]", .number, 1), Refused("[1.]", .number, 1),
        Refused("[1e]", .number, 1),
        Refused("[1e+]", .number, 1), Refused("[-a]", .number, 1), Refused("[0x1]", .number, 1),
        Refused("1\"a\"", .number, 0),
        Refused("[--1]", .number, 1), Refused("[1.e5]", .number, 1), Refused("[\"a\nb\"]", .control, 3),
        Refused("[\"a\tb\"]", .control, 3), Refused("[\"\0\"]", .control, 2),
    ])
    func text_isRefused_withReasonAndOffset(refused: Refused) {
        #expect(fault(of: refused.text) == JSONError(refused.reason, at: refused.offset))
    }

    @Test(arguments: [3, 24, 61, 62, 200, 1000])
    func duplicate_isFound_inObjectsOfAnySize(count: Int) {
        var members = (0..<count).map { "\"member \($0)\":\($0)" }
        #expect(fault(of: Array("{\(members.joined(separator: ","))}".utf8)) == nil)
        let before = members.joined(separator: ",").utf8.count + 2
        members += [#""m\u0065mber 1":0"#, #""member 0":0"#, #""member 1":0"#]
        #expect(fault(of: Array("{\(members.joined(separator: ","))}".utf8)) == JSONError(.duplicate, at: before))
    }

    @Test func text_isRefused_whenItIsLargerThanOffsetsReach() {
        let byte: [UInt8] = [0x31]
        byte.withUnsafeBufferPointer { one in
            // Never read: the length alone decides.
            let huge = UnsafeBufferPointer(start: one.baseAddress, count: 1 << 31)
            guard case .failure(let fault) = JSONParser().parse(huge, { _ in }) else { return #expect(Bool(false)) }
            #expect(fault.reason == .tooLarge)
        }
    }

    @Test func parser_isReused_afterLargeAndRefusedTexts() {
        let parser = JSONParser()
        let large = Array("[\(String(repeating: #"{"a":"b"},"#, count: 200_000))0]".utf8)
        for _ in 0..<2 {
            #expect(fault(of: large, with: parser) == nil)
            #expect(fault(of: Array("[1".utf8), with: parser) == JSONError(.truncated, at: 2))
            #expect(fault(of: Array("[1]".utf8), with: parser) == nil)
        }
    }

    @Test func bodysError_isThrown_andTheParserContinues() {
        struct Stop: Error {}
        let parser = JSONParser()
        #expect(throws: Stop.self) { try parser.parse([0x31]) { (_) throws(Stop) in throw Stop() } }
        #expect(fault(of: [0x31], with: parser) == nil)
    }

    @Test func parserOfAThread_isTheSame_eachTime() {
        #expect(JSONParser.ofThisThread === JSONParser.ofThisThread)
    }

    @Test(arguments: [
        (JSONError.Reason.empty, "no JSON text"), (.syntax, "unexpected character"),
        (.truncated, "unexpected end of the text"), (.trailing, "more text after the JSON value"),
        (.depth, "more than 64 nested objects and arrays"), (.duplicate, "duplicate member name"),
        (.encoding, "invalid UTF-8"), (.surrogate, "lone surrogate"), (.escape, "invalid escape"),
        (.number, "malformed number"), (.control, "unescaped control character"),
        (.unterminated, "unterminated string"), (.tooLarge, "JSON text of 2 GiB or more"),
        (.memory, "no memory to parse the text"),
    ])
    func fault_saysWhatAndWhere(reason: JSONError.Reason, sentence: String) {
        #expect(JSONError(reason, at: 17).description == sentence + " at byte 17")
    }

    @Test(arguments: [
        (#"{"n":1,"m":2,"n":3}"#, #"duplicate member name "n""#),
        (#"{"a\"b":1,"a\"b":2}"#, #"duplicate member name "a\"b""#),
        (#"{"a":1,}"#, "a comma after the last element"), ("[1 , \n]", "a comma after the last element"),
        ("[,]", "unexpected character"), ("[]]", "more text after the JSON value"),
        ("[1 // one\n]", "JSON has no comments"), ("[] # done", "JSON has no comments"),
    ])
    func fault_namesWhatTheTextHas(text: String, sentence: String) {
        #expect(fault(of: Array(text.utf8))?.sentence(in: Array(text.utf8)) == sentence)
    }

    @Test func repeatedName_isShortened() {
        let name = String(repeating: "é", count: 100)
        let text = Array("{\"\(name)\":1,\"\(name)\":2}".utf8)
        #expect(fault(of: text)?.sentence(in: text) == "duplicate member name \"\(name.prefix(60))…\"")
    }
}
