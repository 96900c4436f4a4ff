import Logging
import Testing

@testable import PosternCommands
@testable import PosternProcess

/// What an upstream or a caller wrote is shown in a terminal, where control characters would act.
@Suite struct PrintableTextTests {
    @Test(arguments: [
        ("plain text, ünïcode 😀", "plain text, ünïcode 😀"), ("\u{1b}[2Jgone", #"\u001b[2Jgone"#),
        ("a\r\nb", #"a\r\nb"#), ("tab\there", #"tab\there"#), ("nul\0", #"nul\u0000"#), ("\u{7f}", #"\u007f"#),
        ("\u{9b}31m", #"\u009b31m"#), ("\u{202e}txt.exe", #"\u202etxt.exe"#), ("\u{2028}", #"\u2028"#),
    ])
    func controlCharacters_areEscaped(text: String, shown: String) {
        #expect(text.printable() == shown)
    }

    @Test func lineBreaks_stay_whereTheyAreWanted() {
        #expect("{\n\t\"a\": 1\u{1b}\n}".printable(keepsLineBreaks: true) == "{\n\t\"a\": 1\\u001b\n}")
    }

    /// The value stays the same, and so do line breaks between tokens.
    @Test(arguments: [
        ("{\r\n \"a\": \"\u{e9}\\n\u{1F600}\"}", "{\r\n \"a\": \"\u{e9}\\n\u{1F600}\"}"),
        ("[\"\u{9b}2J\u{7f}\u{202e}\u{2067}\"]", #"["\u009b2J\u007f\u202e\u2067"]"#),
    ])
    func controlCharactersOfJSON_areEscaped_whereJSONDoesNot(json: String, shown: String) {
        #expect(json.printableJSON() == shown)
    }

    @Test func logValue_hasNoControlCharacters_inJSON() {
        #expect(StandardErrorLog.json("\u{9b}31m\u{202e}") == #""\u009b31m\u202e""#)
        #expect(StandardErrorLog.json(.dictionary(["\u{85}": .array(["\u{2069}"])])) == #"{"\u0085":["\u2069"]}"#)
    }

    /// A carriage return and a line feed are one `Character`: compared as such, neither would be found.
    @Test(arguments: [
        ("plain", "plain"), ("a\r\nb", #""a\r\nb""#), ("a\nb", #""a\nb""#), ("a\rb", #""a\rb""#), ("", #""""#),
        ("two words", #""two words""#), ("k=v", #""k=v""#), ("\u{9b}x", #""\u009bx""#), ("é", "é"),
    ])
    func logValue_isQuoted_unlessItIsOneWord(value: String, shown: String) {
        #expect(StandardErrorLog.quoted(value) == shown)
    }

    @Test(arguments: [
        (Logger.MetadataValue.stringConvertible(-7), "-7"), (.stringConvertible(UInt16(8080)), "8080"),
        (.stringConvertible(0.5), "0.5"), (.stringConvertible(Double.infinity), #""inf""#), ("7", #""7""#),
        (.stringConvertible(true), #""true""#),
        (.dictionary(["b": "x\n", "a": .array([.stringConvertible(1), "2"])]), #"{"a":[1,"2"],"b":"x\n"}"#),
    ])
    func numbersOfLogValues_areNumbersInJSON(value: Logger.MetadataValue, json: String) {
        #expect(StandardErrorLog.json(value) == json)
    }

    @Test func cellOfATable_cannotBreakItsLine() {
        var table = TextTable(["DETAIL", "NEXT"])
        table.add(["a\r\nb\u{1b}[31m", "x"])
        #expect(table.text == "DETAIL            NEXT\n" + #"a\r\nb\u001b[31m  x"#)
    }
}
