import PosternCore
import Testing

@Suite struct UpstreamNameTests {
    @Test(arguments: ["a", "seer", "push-dev", "x9", "a-", "a--b", String(repeating: "a", count: 31), "events2"])
    func name_isTaken_whenItFitsAPath(text: String) {
        #expect(UpstreamName(text)?.description == text)
    }

    @Test(arguments: [
        "", "9a", "-a", "A", "aB", "a_b", "a.b", "a/b", "a b", "ä", "aé", String(repeating: "a", count: 32),
        "messages", "cloudevents", "events", "upstreams", "stream", "keys", "gateway", "history", "operations", "nodes",
    ])
    func name_isRefused_whenItIsMalformedOrReserved(text: String) {
        #expect(UpstreamName(text) == nil)
    }

    /// Design, section 3.1. A store may hold messages of an upstream whose name was reserved later.
    @Test func reservedName_isRead_fromAStore() {
        for text in UpstreamName.reserved { #expect(UpstreamName(stored: text)?.description == text) }
        #expect(UpstreamName(stored: "a_b") == nil)
    }

    @Test func names_sortByTheirText() throws {
        let names = try ["seer", "curio", "samsara"].map { try #require(UpstreamName($0)) }
        #expect(names.sorted().map(\.description) == ["curio", "samsara", "seer"])
    }
}
