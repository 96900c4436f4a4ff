import Testing

@testable import PosternAPI

@Suite struct TraceParentTests {
    private static let ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"

    @Test(arguments: ["00-\(ids)-01", "00-\(ids)-ff", "cc-\(ids)-01", "cc-\(ids)-01-what-comes-later"])
    func valid_isKept_inTheVersionThatIsWritten(header: String) throws {
        let parent = try #require(TraceParent(header))
        #expect(parent.text == "00" + header.dropFirst(2).prefix(53))
    }

    /// W3C Trace Context, section 3.2.2.
    @Test(arguments: [
        "", "00", "00-\(ids)", "00-\(ids)-1", "00-\(ids)-011", "00-\(ids)-01-more", "ff-\(ids)-01", "0g-\(ids)-01",
        "00-\(ids)-0G", "cc-\(ids)-01.later", "00_\(ids)-01",
        "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319cé-b7ad6b716920333-01",
    ])
    func invalid_isIgnored(header: String) { #expect(TraceParent(header) == nil) }
}
