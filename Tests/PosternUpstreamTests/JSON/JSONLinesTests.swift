import PosternCore
import PosternUpstream
import Testing

@Suite struct JSONLinesTests {
    private func lines(of text: String) throws(JSONError) -> [String] {
        let text = Array(text.utf8)
        return try text.withUnsafeBufferPointer { bytes in
            JSONParser().parseLines(bytes) { lines in
                lines.elements.map { String(decoding: text[$0.range], as: UTF8.self) }
            }
        }.get()
    }

    @Test(arguments: [
        ("{\"a\":1}", ["{\"a\":1}"]), ("{\"a\":1}\n", ["{\"a\":1}"]), ("1\n2\r\n3", ["1", "2", "3"]),
        ("\n\n \t\r\n[1, 2]\n\n\"x\"\r\n\r\n", ["[1, 2]", "\"x\""]), (" {} \r\n {} ", ["{}", "{}"]),
        ("{\"a\":{\"b\":\"c\\n\"}}\n{\"a\":1}\n{\"a\":1}", ["{\"a\":{\"b\":\"c\\n\"}}", "{\"a\":1}", "{\"a\":1}"]),
    ])
    func eachLine_isAValue_withItsOwnRange(text: String, expected: [String]) throws {
        #expect(try lines(of: text) == expected)
    }

    @Test(arguments: [
        ("", JSONError(.empty, at: 0)), ("\n \r\n", JSONError(.empty, at: 4)),
        ("1\n2 3\n", JSONError(.trailing, at: 4)), ("{}\n[1,\n2]\n", JSONError(.truncated, at: 6)),
        ("{}\n\"a\nb\"\n", JSONError(.unterminated, at: 3)), ("{}\n{\"a\":1,\"a\":2}", JSONError(.duplicate, at: 10)),
        ("{}\n{}\nx\n", JSONError(.syntax, at: 6)), ("{}\r{}\n", JSONError(.trailing, at: 3)),
        ("{\"a\":1,\"a\":2}\n{", JSONError(.truncated, at: 15)),
    ])
    func fault_isPlaced_fromTheStartOfTheText(text: String, expected: JSONError) {
        #expect(throws: expected) { try lines(of: text) }
    }

    @Test func values_areReadable_inEveryLine() throws {
        let text = Array("{\"a\":\"é\"}\n{\"b\":[1,{\"c\":2}],\"a\":\"\\u00e9\"}".utf8)
        let names = text.withUnsafeBufferPointer { bytes in
            JSONParser().parseLines(bytes) { lines in lines.elements.map { $0["a"]?.string } }
        }
        #expect(try names.get() == ["é", "é"])
    }
}
