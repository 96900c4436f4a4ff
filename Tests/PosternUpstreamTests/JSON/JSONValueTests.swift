import PosternCore
import PosternUpstream
import Testing

@Suite struct JSONValueTests {
    @Test(arguments: [
        ("{}", JSONValue.Kind.object), ("[]", .array), ("\"\"", .string), ("1", .number), ("true", .true),
        ("false", .false),
        ("null", .null),
    ])
    func kind_isReported(text: String, kind: JSONValue.Kind) throws {
        #expect(try parsing(text) { $0.kind } == kind)
        #expect(try parsing("[\(text)]") { $0.elements.map(\.kind) } == [kind])
    }

    @Test func members_areFound_behindNestedOnes() throws {
        let text = #" {"a":{"b":[1,[2,{}],"x"]},"c":[],"\u0064":"d\n","e":{}} "#
        try parsing(text) { value in
            #expect(value.members.map { $0.key.string } == ["a", "c", "d", "e"])
            #expect(value.range == 1..<text.utf8.count - 1)
            #expect(
                value["a"]?["b"]?.elements.map { String(decoding: $0.bytes, as: UTF8.self) } == [
                    "1", "[2,{}]", "\"x\"",
                ])
            #expect(value["d"]?.string == "d\n")
            #expect(value[named: "e"]?.kind == .object)
            #expect(value["b"] == nil)
            #expect(value["c"]?["c"] == nil)
            #expect(value["c"]?.members.contains { _ in true } == false)
            #expect(value["e"]?.elements.contains { _ in true } == false)
        }
    }

    @Test(arguments: [
        ("0", Int64(0)), ("-0", 0), ("1433004485870", 1_433_004_485_870), ("9223372036854775807", .max),
        ("-9223372036854775808", .min), ("9223372036854775808", nil), ("-9223372036854775809", nil),
        ("123456789012345678901234567890", nil), ("1.0", nil), ("1e3", nil), ("\"1\"", nil), ("true", nil),
        ("null", nil),
    ])
    func integer_isGiven_forLiteralsOf64Bits(text: String, number: Int64?) throws {
        #expect(try parsing(text) { $0.integer } == number)
    }

    @Test(arguments: [("1", true), ("-0", true), ("1.0", false), ("1e3", false), ("1E3", false), ("\"1\"", false)])
    func integerLiteral_isOne_withoutFractionAndExponent(text: String, isInteger: Bool) throws {
        #expect(try parsing(text) { $0.isIntegerLiteral } == isInteger)
    }

    @Test(arguments: [
        (#""a\"\\\/\b\f\n\r\t""#, "a\"\\/\u{8}\u{C}\n\r\t"), (#""\u00e9\uD83D\uDE00é""#, "é😀é"), (#""\u0000""#, "\0"),
        (#""""#, ""), (#""plain""#, "plain"),
    ])
    func string_isGiven_withEscapesResolved(text: String, value: String) throws {
        #expect(try parsing(text) { $0.string } == value)
        #expect(try parsing(text) { $0.stringBytes } == Array(value.utf8))
    }

    @Test(arguments: [
        (#""""#, true), (#"" \t ""#, true), (#""\u0020\n""#, true), ("\"\u{A0}\u{2003}\"", true), (#"" a""#, false),
        (#""\u0061""#, false), ("\"é\"", false), ("null", false), ("0", false),
    ])
    func blankString_isOne_ofWhiteSpaceAlone(text: String, isBlank: Bool) throws {
        #expect(try parsing(text) { $0.isBlankString } == isBlank)
    }

    @Test func equals_resolvesEscapes() throws {
        #expect(try parsing(#"{"\u0061bc":1}"#) { $0["abc"]?.integer } == 1)
        #expect(try parsing(#""abc""#) { $0.equals("abc") && !$0.equals("abd") && !$0.equals("ab") })
        #expect(try parsing(#""\u0061\u0062""#) { $0.equals("ab") && !$0.equals("abc") && !$0.equals("a") })
        #expect(try parsing(#""\/""#) { $0.equals("/") && !$0.equals("//") })
    }

    @Test(arguments: ["1", "12", "123", "true", "null", "[]", "{}"])
    func equals_isFalse_ifTheValueIsNotAString(text: String) throws {
        #expect(try parsing(text) { !$0.equals("") && !$0.equals("2") && !$0.equals("ru") })
    }

    @Test func elements_areAllThere_ofALongArray() throws {
        let text = "[\(String(repeating: "0, ", count: 70_000))0]"
        #expect(try parsing(text) { $0.elements.reduce(0) { count, _ in count + 1 } } == 70_001)
    }

    @Test func values_areFound_whateverBlanksAreBetween() throws {
        let text = "{ \"a\" : [ 1 , [ ] ,\t{ } ] ,\r\n\"b\":\"x\" , \"c\":null}"
        try parsing(text) { value in
            #expect(value.members.map { $0.key.string } == ["a", "b", "c"])
            #expect(value["a"]?.elements.map(\.kind) == [.number, .array, .object])
            #expect(value["b"]?.string == "x")
            #expect(value["c"]?.kind == .null)
            #expect(value.range == 0..<text.utf8.count)
        }
    }
}
