import PosternConformance
import PosternTestKit
import Testing

extension EndToEnd {
    /// A name that is configured again as another type, whose API would get messages that it never checked.
    @Suite struct OtherType {
        private var webhook: [String: Any] { ["type": "webhook", "url": "http://127.0.0.1:9/"] }

        private func expectRefusals(_ directory: GatewayDirectory) async throws {
            let check = ["check", "--config", directory.config]
            for ended in [
                try await directory.fail(), try await Binary.run(check),
                try await Binary.run(check + ["--store", directory.store]),
            ] {
                let said = ended.errors + ended.output
                #expect(ended.exitCode == 78, "\(said)")
                #expect(said.contains("the store has 1 messages that upstream api accepted as type samsara"), "\(said)")
                #expect(said.contains("another name") && said.contains("postern outbox purge"), "\(said)")
            }
        }

        @Test(.timeLimit(.minutes(10)))
        func startAndCheck_areRefused_whileAMessageIsQueued_thatAnotherNameKeeps() async throws {
            var settings = Settings(upstreams: ["api": ["type": "samsara", "url": "http://127.0.0.1:9"]])
            let directory = try GatewayDirectory(settings)
            var gateway = try await directory.start()
            let id = try #require(try gateway.client().post("/v1/api/event", event(1)).json["id"].string)
            try await gateway.stop()

            settings.upstreams = ["api": webhook]
            try directory.configure(settings)
            try await expectRefusals(directory)

            settings.upstreams = ["hook": webhook]
            try directory.configure(settings)
            #expect(try await Binary.run(["check", "--config", directory.config]).exitCode == 0)
            gateway = try await directory.start()
            #expect(try gateway.message(id)["state"].string == "queued")
            #expect(try gateway.client().ask("DELETE", "/v1/messages/\(id)").status < 300)
            try await gateway.stop()

            // Nothing of the former type is left to be sent.
            settings.upstreams = ["api": webhook]
            try directory.configure(settings)
            gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/api/event", "{}").status == 202)
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)))
        func startAndCheck_areRefused_whileAFailedMessageIsKept_untilItIsPurged() async throws {
            let samsara = try HostedSimulator(faults: "poison=eventName:bad:413")
            var settings = Settings(upstreams: ["api": ["type": "samsara", "url": samsara.url]])
            let directory = try GatewayDirectory(settings)
            var gateway = try await directory.start()
            let id = try #require(try gateway.client().post("/v1/api/event", event(1, name: "bad")).json["id"].string)
            try gateway.waitForState("failed", of: id)
            try await gateway.stop()

            settings.upstreams = ["api": webhook]
            try directory.configure(settings)
            try await expectRefusals(directory)
            let purged = try await Binary.run(
                ["outbox", "purge", "--store", directory.store, "--upstream", "api", "--state", "failed", "--yes"])
            #expect(purged.exitCode == 0, "\(purged.errors)")
            gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/api/event", "{}").status == 202)
            try await gateway.stop()
        }
    }
}
