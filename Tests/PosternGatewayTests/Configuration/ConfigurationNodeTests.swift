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
}
