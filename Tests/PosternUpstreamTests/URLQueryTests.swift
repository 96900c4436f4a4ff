import PosternCore
import PosternUpstream
import Testing

@Suite struct URLQueryTests {
    @Test(
        arguments: [
            ("https://h/a", "https://h/a", []), ("https://h/a?", "https://h/a?", []),
            ("/a?v=1&sig=x%2By", "/a?v=***&sig=***", ["1", "x+y"]), ("?token", "?***", ["token"]),
            ("?a=&b", "?a=&***", ["b"]), ("?a=b=c?d", "?a=***", ["b=c?d"]), ("?a=%C3%A9", "?a=***", ["é"]),
            ("?a=100%", "?a=***", ["100%"]), ("?a=%4", "?a=***", ["%4"]), ("?a=%FF", "?a=***", ["%FF"]),
            ("?&&a=b", "?&&a=***", ["b"]),
        ] as [(String, String, [String])])
    func values_areFound_andMasked(url: String, masked: String, values: [String]) {
        #expect(URLQuery.masked(url) == masked)
        #expect(URLQuery.values(of: url) == values)
    }

    @Test func value_staysAsItIs_ifItIsNotASecret() {
        #expect(URLQuery.masked("/a?b=c%20d&e=f") { $0 == "c d" } == "/a?b=***&e=f")
    }
}
