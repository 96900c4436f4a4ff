import PosternJSON
import Testing

@Suite struct JSONOutlineTests {
    private func values(_ text: String) -> [String?]? {
        let text = Array(text.utf8)
        return JSONOutline(text, finding: "header", "body")?.values.map { range in
            range.map { String(decoding: text[$0], as: UTF8.self) }
        }
    }

    static let objects: [(text: String, header: String?, body: String?)] = [
        (#"{"header":{"a":[1,{"body":2}]},"body":null}"#, #"{"a":[1,{"body":2}]}"#, "null"),
        (#" { "body" : "x\"}," , "header" : -1.5e3 } "#, "-1.5e3", #""x\"},""#),
        ("{}", nil, nil), (#"{"header":1,"header":[2]}"#, "[2]", nil), (#"{"x":{"header":1}}"#, nil, nil),
        (#"{"body":[0,0,[],{}],"header":"ü"}"#, #""ü""#, "[0,0,[],{}]"),
    ]

    @Test(arguments: objects) func members_areFound_atTheTop(text: String, header: String?, body: String?) {
        #expect(values(text) == [header, body])
    }

    @Test(arguments: ["", "[]", "null", #"{"header":}"#, #"{"header":1"#, #"{"header":1}x"#, "{\"a\":\"\u{1}\"}"])
    func textThatIsNoObject_hasNoOutline(text: String) {
        #expect(values(text) == nil)
    }

    @Test func deepNesting_isSteppedOver() {
        let deep = String(repeating: "[", count: 5000) + String(repeating: "]", count: 5000)
        #expect(values(#"{"header":1,"body":\#(deep)}"#) == ["1", deep])
        #expect(values(#"{"header":1,"body":\#(deep.dropLast())"#) == nil)
    }
}
