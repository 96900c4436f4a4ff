import PosternHTTP
import PosternTestKit
import Testing

@testable import PosternAPI

/// libmicrohttpd has little memory for the head of a response (`HTTPServerSettings.connectionMemory`).
@Suite struct ResponseHeadTests {
    /// An origin whose name is as long as DNS permits.
    private static let page =
        "https://" + [63, 63, 63, 61].map { String(repeating: "a", count: $0) }.joined(separator: ".")
        + ":65535"
    private static let requestID = String(repeating: "x", count: 128)

    private func longest(
        _ method: String, _ path: String, _ headers: [(String, String)] = [], of gateway: TestGateway
    ) throws -> HTTPClient.Answer {
        let answer = try gateway.client.ask(
            method, path, headers: [("Origin", Self.page), ("X-Request-Id", Self.requestID)] + headers)
        #expect(answer.header("Access-Control-Allow-Origin") == Self.page)
        #expect(answer.header("X-Request-Id") == Self.requestID)
        let bytes = answer.headers.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count + 4 }
        #expect(bytes < HTTPServerSettings.maxResponseHeaderBytes, "\(path)")
        return answer
    }

    @Test func longestHeads_areSent() throws {
        var setup = Setup()
        setup.callers = CallerPolicy(origins: [Self.page])
        try withPausedGateway(setup) { gateway in
            for file in ConsoleFile.all.keys {
                let answer = try longest(
                    "GET", file.isEmpty ? "/console" : "/console/\(file)", [("Accept-Encoding", "gzip")], of: gateway)
                #expect(answer.status == 200 && !answer.body.isEmpty)
            }
            // A page may ask for as much as the head of a request holds.
            let attributes = (0..<600).map { "ce-attribute-\($0)" }
            let permission = try longest(
                "OPTIONS", "/v1/cloudevents",
                [
                    ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Private-Network", "true"),
                    ("Access-Control-Request-Headers", attributes.joined(separator: ",")),
                ], of: gateway)
            #expect(permission.status == 204)
            let allowed = permission.header("Access-Control-Allow-Headers")?.split(separator: ", ") ?? []
            #expect(allowed.contains("X-Request-Id"))
            #expect(allowed.filter { $0.hasPrefix("ce-") }.count >= 28)
        }
    }
}
