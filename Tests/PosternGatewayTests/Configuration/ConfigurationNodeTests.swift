import PosternUpstream
import Testing

@testable import PosternGateway

@Suite struct ConfigurationNodeTests {
    @Test(arguments: [
        ("true", ConfigurationNode.flag(true)), (" null\n", .null), ("-0.5e+10", .number("-0.5e+10")),
        (#""a\"\\\/\n\u00e9\ud83d\ude00""#, .string("a\"\\/\n\u{e9}\u{1F600}")),
        ("[1, \"é\"]", .array([.number("1"), .string("é")])), ("[ ]", .array([])), ("{ }", .object([])),
        (
            "\u{FEFF}{\n\"b\": false, \"a\": {}}",
            .object([.init(name: "b", value: .flag(false)), .init(name: "a", value: .object([]))])
        ),
    ])
    func value_isRead(text: String, expected: ConfigurationNode) throws {
        #expect(try ConfigurationNode.parse(Array(text.utf8)) == expected)
    }

    @Test func bytesThatAreNotUTF8_areRefused_withTheirPlace() {
        let text = Array("\u{FEFF}{\n\"é".utf8) + [0xFF] + Array("\": 1}".utf8)
        #expect {
            try ConfigurationNode.parse(text)
        } throws: {
            "\($0)" == "is not JSON at line 2, column 3: invalid UTF-8"
        }
    }

    /// Comments and trailing commas are read in files only.
    @Test(arguments: [
        ("{// one\n\"a\": 1 /* two */, /* three\n */ \"b\": [1, 2, // four\n ], /**/}", #"{"a": 1, "b": [1, 2]}"#),
        (
            #"{"a": "// no", "b": "/* no */", "c": "\"// no,]", "d\\": [",]", ",}",],}"#,
            #"{"a": "// no", "b": "/* no */", "c": "\"// no,]", "d\\": [",]", ",}"]}"#
        ),
        ("\u{FEFF}// first\r\n{}// last", "{}"), ("/*//*/1//*/", "1"),
        ("[{}, [], \"\", null,\t\r\n]", "[{}, [], \"\", null]"),
        ("[1, // the comma\n // and the bracket\n]", "[1]"),
    ])
    func commentsAndTrailingCommas_areBlanks(text: String, expected: String) throws {
        let text = Array(text.utf8)
        #expect(try ConfigurationNode.parse(commented: text) == ConfigurationNode.parse(Array(expected.utf8)))
        #expect(throws: ConfigurationNode.SyntaxError.self) { try ConfigurationNode.parse(text) }
        #expect(try JSONComments.blanked(text).count == text.count)
    }

    @Test(arguments: [
        "[,]", "{,}", "[1,,]", "[1,", "1,", "{\"a\":,}", "[1/]", "[\"a", "[\"a\\", "/", "1 / 2", "[1 // ]",
    ])
    func whatIsNeitherCommentNorTrailingComma_isLeftForTheParser(text: String) throws {
        #expect(throws: ConfigurationNode.SyntaxError.self) { try ConfigurationNode.parse(commented: Array(text.utf8)) }
    }
}
