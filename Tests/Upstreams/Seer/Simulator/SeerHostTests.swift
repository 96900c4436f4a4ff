import PosternConformance
import PosternCore
import PosternTestKit
import PosternTransport
import Testing

@testable import SeerSimulator

/// Behind a server.
@Suite(.timeLimit(.minutes(10))) struct SeerHostTests {
    @Test func seer_takesReports_andShowsThemByKind() async throws {
        let fixture = try HostedSimulator(.seer)
        #expect(try await fixture.text("/control", .post, #"{"tokenAnswer":"slow:50"}"#).hasPrefix("{"))
        let start = ContinuousClock.now
        let answer = try await fixture.send(
            .post, "/oauth/access_token", headers: SeerClient.tokenHeaders, "grant_type=client_credentials"
        ).get()
        #expect(ContinuousClock.now - start >= .milliseconds(50))
        let token = try #require(JSON(answer.body)["access_token"].string)
        let headers = [
            ("Authorization", "Bearer \(token)"), ("Accept", "application/json"), ("Content-Type", "application/json"),
        ]
        let batch = SeerVectors.batch([SeerVectors.a1, SeerVectors.a2])
        #expect(await fixture.send(.post, "/sactivity/batch", headers: headers, batch).status == 200)
        #expect(await fixture.send(.post, "/tincan", headers: headers, SeerVectors.t1).status == 200)
        #expect(try await fixture.text("/faults", .post, "poison=/object/objectType:photo:413").hasPrefix("poison="))
        #expect(await fixture.send(.post, "/sactivity/batch", headers: headers, batch).status == 413)
        #expect(
            try await fixture.text("/received?field=/object/id")
                == "/sactivity\tobjectId\n/sactivity\to-1\n/tincan\thttp://pearson.com/ccsoc/interactive/\n")
        #expect(
            try await fixture.text("/received").contains(
                #""events":3,"distinctEvents":3,"duplicates":0,"answers":{"200":3,"413":1},"violationCount":0"#))
        #expect(JSON(Array(try await fixture.text("/control").utf8))["validTokens"].int == 1)
    }
}
