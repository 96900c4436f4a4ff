import Testing

@testable import PosternGateway

@Suite struct ConfigurationTextTests {
    @Test(arguments: [
        ("true", ConfigurationNode.flag(true)), (" null\n", .null), ("-0.5e+10", .number("-0.5e+10")),
        (#""a\"\\\/\n\u00e9\ud83d\ude00""#, .string("a\"\\/\n\u{e9}\u{1F600}")),
        ("[1, \"é\"]", .array([.number("1"), .string("é")])), ("[ ]", .array([])), ("{ }", .object([])),
        ("{\"a\":\n1}", .object([.init(name: "a", value: .number("1"), line: 1)])),
        ("\u{FEFF}{\n\"a\": 1}", .object([.init(name: "a", value: .number("1"), line: 2)])),
    ])
    func value_isRead(text: String, expected: ConfigurationNode) throws {
        #expect(try ConfigurationText.parse(Array(text.utf8)) == expected)
    }

    @Test(arguments: [
        "+1", "1.", ".5", "1e", "--1", "0x10", "NaN", "tru", "nulll", "'a'", "\"", "\"\\u12\"", "{", "[1,",
    ])
    func text_isRefused(text: String) {
        #expect(throws: ConfigurationText.SyntaxError.self) { try ConfigurationText.parse(Array(text.utf8)) }
    }

    @Test func bytesThatAreNotUTF8_areRefused_withTheirLine() {
        #expect(throws: ConfigurationText.SyntaxError(line: 2, column: 1, detail: "text that is not UTF-8")) {
            try ConfigurationText.parse(Array("{\n\"".utf8) + [0xFF] + Array("\": 1}".utf8))
        }
    }
}
