import PosternCore
import PosternUpstream
import Testing

@Suite struct PreferHeaderTests {
    @Test(
        arguments: [
            ("wait=5", 5), ("Wait = 5", 5), ("wait=\"5\"", 5), ("wait=61", 60), ("wait=99999999999999999999", 60),
            ("return=minimal, wait=7", 7), ("return=minimal; foo=1, wait=7;x", 7), (" ,, wait=7 ,", 7),
            ("wait=5;", 5), ("wait=5; ;x ; y = \"a;b\"", 5), ("wait=5; =x", nil), ("; wait=5", nil),
            ("wait=5; x=", nil), ("wait=5; x y", nil), ("wait=5; x=\"a, wait=6", nil), ("wait=5; x=\"a\"b, wait=6", 6),
            ("wait=5; x=\"1, 2\"", 5), ("x=\"a\\\", wait=1\", wait=3", 3), ("x=[, wait=3", 3),
            ("wait", nil), ("wait=", nil), ("wait=\"\"", nil), ("wait=0", nil), ("wait=-1", nil), ("wait=+5", nil),
            ("wait=5s", nil), ("wait=5 6", nil), ("foo; wait=5", nil), ("foo=\"a, wait=1\"", nil),
            ("foo=\"a, wait=1", nil), ("foo=\"a\\", nil), ("await=5", nil), ("\"wait\"=5", nil), ("", nil),
        ] as [(String, Int?)])
    func wait_isReadByTheGrammar(text: String, seconds: Int?) {
        #expect(PreferHeader([text]).wait == seconds)
    }

    @Test func firstOfTwo_counts_overAllLines() {
        #expect(PreferHeader(["wait=5, wait=9", "wait=2"]).wait == 5)
        #expect(PreferHeader(["x=1", "wait=2", "wait=5"]).wait == 2)
        #expect(PreferHeader(["wait=x, wait=9"]).wait == nil, "also if nothing can be made of it")
    }

    @Test func name_isFoundInAnyCase_andItsValueIsKeptAsSent() {
        let header = PreferHeader(["Handling=Lenient; strictly=no, return=\"mini\\mal\", respond-async"])
        #expect(header["handling"] == "Lenient")
        #expect(header["return"] == "minimal")
        #expect(header["respond-async"] == "")
        #expect(header["strictly"] == nil)
    }
}
