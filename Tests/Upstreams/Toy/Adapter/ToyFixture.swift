import PosternConformance
import PosternCore
import PosternUpstream
import Testing

@Suite struct ToyConformance {
    @Test(arguments: Conformance.rules) func toy(keepsTo rule: Conformance) async throws {
        try await rule.check(.toy)
    }
}

extension UpstreamFixture {
    static let toy = UpstreamFixture(
        type: .toy,
        settings: ["url": .text("http://127.0.0.1:8090/api/"), "apiKey": .text("open-sesame")],
        secrets: ["open-sesame"],
        good: [Sample("note", #"{"text":"hello"}"#)],
        bad: [BadSample("note", #"["private"]"#, "")],
        golden: [GoldenRequest(file: "note.http", samples: [Sample("note", #"{"text":"hello"}"#)])],
        answers: Answer.usual)
}
