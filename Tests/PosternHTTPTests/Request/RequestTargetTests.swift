import Testing

@testable import PosternHTTP

@Suite struct RequestTargetTests {
    @Test(arguments: [
        ("/a/b", "/a/b", nil, nil), ("/a?x=1", "/a", "x=1", nil), ("/?", "/", "", nil),
        ("http://h:1/p?q", "/p", "q", "h:1"), ("https://h", "/", nil, "h"), ("http://h?q", "/", "q", "h"),
        ("/a?b?c", "/a", "b?c", nil), ("/x://y", "/x://y", nil, nil),
    ])
    func target_isTakenApart(text: String, path: String, query: String?, authority: String?) throws {
        let target = try Array(text.utf8).withUnsafeBufferPointer { try RequestTarget($0, method: "GET") }
        #expect(target.path == path)
        #expect(target.query == query)
        #expect(target.authority == authority)
    }

    @Test(arguments: ["", "/a b", "/\u{1}", "/ü", "a", "*", "h:80", "ftp://h/", "http:///", "http:/h"])
    func target_isRefused_unlessItIsAPathOrAURL(text: String) {
        #expect(throws: RequestFault.self) {
            try Array(text.utf8).withUnsafeBufferPointer { try RequestTarget($0, method: "GET") }
        }
    }

    @Test(arguments: [
        ("a=1&b=2", [["a", "1"], ["b", "2"]]), ("a", [["a", ""]]), ("a=b=c", [["a", "b=c"]]), ("&&a=", [["a", ""]]),
        ("%61%3D=%26+%zz%4", [["a=", "&+%zz%4"]]),
    ])
    func queryPairs_areDecoded_inOrder(query: String, pairs: [[String]]) {
        #expect(RequestQuery(query).pairs.map { [$0.name, $0.value] } == pairs)
    }

    @Test(arguments: [
        ("a=%61&b", true), ("a=%C3%A9", true), ("", true), ("a=%4", false), ("%zz=1", false), ("a=%C3&b=%A9", false),
    ])
    func query_isWellFormed_ifItsEscapesAreUTF8(query: String, expected: Bool) {
        #expect(RequestQuery(query).isWellFormed == expected)
    }
}
