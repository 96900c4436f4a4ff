import PosternConformance
import PosternCore
import PosternTestKit
import PosternTransport
import PosternUpstream
import Testing

@testable import CurioSimulator

/// Behind a server.
@Suite(.timeLimit(.minutes(10))) struct CurioHostTests {
    @Test func answersThatWereLost_areNotHeldAgainstTheGateway() async throws {
        let fixture = try HostedSimulator(.curio, faults: "reset-after@/hit:x9")
        func post(_ suffix: String, _ body: String) async -> TransferResult {
            await fixture.send(.post, suffix, headers: CurioClient.requestHeaders, body)
        }
        #expect(await post("/visit/create", CurioVectors.golden("session-start").body).status == 200)
        #expect(await fixture.send(.post, "/control", #"{"killSessions":"all"}"#).status == 200)
        for _ in 0..<9 {
            #expect(await post("/hit/create", CurioVectors.golden("screen-start").body).reason == .interrupted)
        }
        #expect(await post("/hit/create", CurioVectors.golden("screen-start").body).status == 401)
        #expect(
            try fixture.ask("GET", "/received").text.contains(
                #""answers":{"200":1,"401":1,"reset-after":9},"violationCount":0,"violations":[]"#))
    }
}
