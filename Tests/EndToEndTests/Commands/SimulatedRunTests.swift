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

        @Test(.timeLimit(.minutes(10))) func simulatedRun_makesAnEncryptionKey_thatOthersRequire() async throws {
            var settings = Settings(upstreams: ["appservices": [:]])
            settings.outbox = ["encryptionKey": ""]
            let directory = try GatewayDirectory(settings)
            let refused = try await directory.fail()
            #expect(refused.exitCode == 78 && refused.errors.contains("outbox.encryptionKey is empty"))
            // The next run cannot read what this one encrypts, and begins all the same.
            for _ in 0..<2 {
                let simulated = try await directory.start(["--simulate"])
                let answer = try simulated.client().ask(
                    "PUT", "/v1/appservices/users/ffffffff54d00d1e0b07c0de5eed0011/token",
                    Array(#"{"token": "canary-PiTok", "expiresIn": 1799}"#.utf8),
                    headers: [("Content-Type", "application/json")])
                #expect(answer.status == 200, "\(answer.text)")
                try await simulated.stop()
            }
        }
    }
}
