import PosternCore
import Testing

@testable import PosternHTTP

@Suite struct ProblemTests {
    @Test func problem_hasTheMembersOfRFC9457_andItsOwn() {
        let problem = Problem(
            slug: .invalidPayload, status: 422, detail: "Field \"a\" is wrong.",
            members: [("errors", "[{\"pointer\":\"/a\"}]")], headers: [("Retry-After", "3")])
        let response = problem.response(instance: "/v1/x", requestID: "r1")
        let expected =
            #"{"type":"urn:postern:problem:invalid-payload","title":"Invalid payload","status":422,"#
            + #""detail":"Field \"a\" is wrong.","instance":"/v1/x","requestId":"r1","errors":[{"pointer":"/a"}]}"#
            + "\n"
        #expect(String(decoding: response.body, as: UTF8.self) == expected)
        #expect(response.status == 422)
        #expect(response.headers.map(\.name) == ["Content-Type", "Retry-After"])
    }

    @Test(arguments: [
        (ProblemSlug.invalidJSON, "Invalid JSON"), (.notFound, "Not found"), (.internal, "Internal error"),
    ])
    func title_isMadeFromTheSlug(slug: ProblemSlug, title: String) {
        #expect(slug.title == title)
    }
}
