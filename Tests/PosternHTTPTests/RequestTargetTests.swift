import Testing

@testable import PosternHTTP

@Suite struct RequestTargetTests {
    @Test(arguments: [
        ("/a/b", "/a/b", nil), ("/a?x=1", "/a", "x=1"), ("/?", "/", ""), ("*", "*", nil),
        ("http://h:1/p?q", "/p", "q"), ("/a?b?c", "/a", "b?c"), ("/x://y", "/x://y", nil),
    ])
    func target_isTakenApart(text: String, path: String, query: String?) {
        let target = Array(text.utf8).withUnsafeBufferPointer { RequestTarget($0) }
        #expect(target.path == path)
        #expect(target.query == query)
        #expect(target.isValid)
    }

    @Test(arguments: ["", "/a b", "/\u{1}", "/ü"])
    func target_isInvalid_withMoreThanVisibleASCII(text: String) {
        #expect(!Array(text.utf8).withUnsafeBufferPointer { RequestTarget($0) }.isValid)
    }

    @Test(arguments: [
        ("a=1&b=2", [["a", "1"], ["b", "2"]]), ("a", [["a", ""]]), ("a=b=c", [["a", "b=c"]]), ("&&a=", [["a", ""]]),
        ("%61%3D=%26+%zz%4", [["a=", "&+%zz%4"]]),
    ])
    func queryPairs_areDecoded_inOrder(query: String, pairs: [[String]]) {
        #expect(queryPairs(of: query).map { [$0.name, $0.value] } == pairs)
    }
}
