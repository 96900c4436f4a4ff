import Foundation
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// `postern serve --simulate`.
    @Suite struct SimulatedRun {
        @Test(.timeLimit(.minutes(10))) func simulatedRun_leavesARealBacklogAlone() async throws {
            let directory = try GatewayDirectory(Settings())
            let real = try await directory.start()
            let accepted = try real.client().post(eventPath, event(1))
            let id = try #require(accepted.json["id"].string)
            try await real.stop()
            let simulated = try await directory.start(["--simulate"])
            #expect(try simulated.client().get("/v1/messages/\(id)").status == 404)
            let delivered = try simulated.client().post(eventPath, event(2), headers: [("Prefer", "wait=60")])
            #expect(delivered.json["state"].string == "delivered")
            #expect(delivered.json["simulated"].bool == true)
            try await simulated.stop()
            #expect(FileManager.default.fileExists(atPath: directory.store + ".simulated"))
            let ledger = try directory.audit().accounts.map(\.ledger)
            #expect(ledger.map(\.queued) == [1])
            #expect(ledger.map(\.delivered) == [0])
        }
    }
}
