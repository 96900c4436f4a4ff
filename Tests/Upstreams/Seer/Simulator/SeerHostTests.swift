import PosternConformance
import PosternCore
import PosternTestKit
import PosternTransport
import PosternUpstream
import Testing

@testable import SeerSimulator

/// Behind a server.
@Suite(.timeLimit(.minutes(10))) struct SeerHostTests {
    @Test func seer_takesReports_andShowsThemByKind() async throws {
        let fixture = try HostedSimulator(.seer)
        #expect(try fixture.ask("POST", "/control", #"{"tokenAnswer":"slow:50"}"#).text.hasPrefix("{"))
        let answer = try await fixture.send(
            .post, "/oauth/access_token", headers: SeerClient.tokenHeaders, "grant_type=client_credentials"
        ).get()
        let token = try #require(JSON(answer.body)["access_token"].string)
        let headers = [
            ("Authorization", "Bearer \(token)"), ("Accept", "application/json"), ("Content-Type", "application/json"),
        ]
        let batch = SeerVectors.batch([SeerVectors.a1, SeerVectors.a2])
        #expect(await fixture.send(.post, "/sactivity/batch", headers: headers, batch).status == 200)
        #expect(await fixture.send(.post, "/tincan", headers: headers, SeerVectors.t1).status == 200)
        #expect(try fixture.ask("POST", "/faults", "poison=/object/objectType:photo:413").text.hasPrefix("poison="))
        #expect(await fixture.send(.post, "/sactivity/batch", headers: headers, batch).status == 413)
        #expect(
            try fixture.ask("GET", "/received?field=/object/id").text
                == "/sactivity\tobjectId\n/sactivity\to-1\n/tincan\thttp://pearson.com/ccsoc/interactive/\n")
        #expect(
            try fixture.ask("GET", "/received").text.contains(
                #""events":3,"distinctEvents":3,"duplicates":0,"answers":{"200":3,"413":1},"violationCount":0"#))
        #expect(try fixture.ask("GET", "/control").json["validTokens"].int == 1)
    }
}
