import Foundation
import PosternConformance
import PosternTestKit
import Testing

extension EndToEnd {
    /// `postern upstreams` and `postern failures`, which call a running gateway.
    @Suite struct UpstreamCommands {
        private func run(
            _ arguments: [String], _ gateway: GatewayProcess, key: String? = nil
        ) async throws -> ChildProcess.Ended {
            try await Binary.run(
                arguments + ["--url", "http://127.0.0.1:\(gateway.port)"],
                environment: key.map { ["POSTERN_KEY": $0] } ?? [:])
        }

        @Test(.timeLimit(.minutes(10))) func upstream_isSteered_fromTheCommandLine() async throws {
            let samsara = try HostedSimulator()
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            let gateway = try await directory.start()
            let paused = try await run(["upstreams", "pause", "samsara"], gateway)
            #expect(paused.output == "samsara is paused; 0 queued.\n", "\(paused.errors)")
            #expect(try gateway.client().post(eventPath, event(1)).status == 202)
            let listed = try await run(["upstreams"], gateway)
            let lines = listed.output.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
            #expect(lines.first?.prefix(3) == ["UPSTREAM", "TYPE", "HEALTH"], "\(listed.errors)")
            #expect(lines.last?.prefix(5) == ["samsara", "samsara", "paused", "-", "1"], "\(listed.output)")
            let resumed = try await run(["upstreams", "resume", "samsara", "--json"], gateway)
            #expect(JSON(Array(resumed.output.utf8))["action"].string == "resume")
            try gateway.waitUntilDelivered()
            let flushed = try await run(["upstreams", "flush", "samsara", "--wait", "20"], gateway)
            #expect(flushed.output.hasPrefix("samsara is flushed: "), "\(flushed.output)\(flushed.errors)")
            let probed = try await run(["upstreams", "probe", "samsara"], gateway)
            #expect(probed.exitCode == 0, "\(probed.output)\(probed.errors)")
            #expect(probed.output.hasPrefix("samsara: ok"), "\(probed.output)")
            let json = try await run(["upstreams", "--json"], gateway)
            #expect(JSON(Array(json.output.utf8))["upstreams"].array.map { $0["name"].string } == ["samsara"])
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10))) func failures_areGrouped_onTheCommandLine() async throws {
            let samsara = try HostedSimulator(faults: "poison=eventName:bad:413")
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            let gateway = try await directory.start()
            let ids = try (0..<3).map { number in
                try #require(
                    try gateway.client().post(eventPath, event(number, name: "bad")).json["id"].string)
            }
            try gateway.waitUntilDelivered()
            for arguments in [["failures"], ["failures", "samsara"]] {
                let text = try await run(arguments, gateway)
                let row = text.output.split(separator: "\n").last?.split(separator: " ").prefix(4).map(String.init)
                #expect(row == ["samsara", "3", "refused", "413"], "\(text.output)\(text.errors)")
                let json = try await run(arguments + ["--json"], gateway)
                let upstreams = JSON(Array(json.output.utf8))["upstreams"].array
                #expect(upstreams.map { $0["name"].string } == ["samsara"])
                #expect(upstreams.first?["failures"].array.map { $0["count"].int } == [3], "\(json.output)")
            }
            let older = try await run(["failures", "samsara", "--cursor", ids[2], "--json"], gateway)
            let groups = JSON(Array(older.output.utf8))["upstreams"][0]["failures"].array
            #expect(groups.map { $0["count"].int } == [2], "\(older.output)\(older.errors)")
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10))) func operations_areListed_andStopped_onTheCommandLine() async throws {
            let directory = try GatewayDirectory(Settings())
            let gateway = try await directory.start()
            let begun = try gateway.client().post(
                "/v1/messages/retry", #"{"upstream":"samsara"}"#,
                headers: [("Content-Type", "application/json"), ("Prefer", "respond-async")])
            let id = try #require(begun.json["operation"].string, "\(begun.text)")
            for arguments in [["operations"], ["operations", "--stop", id]] {
                let text = try await run(arguments, gateway)
                let row = text.output.split(separator: "\n").last?.split(separator: " ").prefix(3).map(String.init)
                #expect(row == [id, "retry", "samsara"], "\(text.output)\(text.errors)")
            }
            let json = try await run(["operations", "--json"], gateway)
            #expect(JSON(Array(json.output.utf8))["operations"][0]["id"].string == id, "\(json.output)")
            let unknown = try await run(["operations", "--stop", "1-1"], gateway)
            #expect(unknown.exitCode == 1 && unknown.errors.contains("no such operation"), "\(unknown.errors)")
            #expect(try await run(["operations", "--stop", "a/b"], gateway).exitCode == 64)
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10))) func refusal_isReported_withExitCode1() async throws {
            let directory = try GatewayDirectory(Settings())
            let gateway = try await directory.start()
            for arguments in [["upstreams", "pause", "absent"], ["failures", "absent"]] {
                let ended = try await run(arguments, gateway)
                #expect(ended.exitCode == 1)
                #expect(ended.errors.contains("No upstream is called absent"), "\(ended.errors)")
            }
            let probed = try await run(["upstreams", "probe", "samsara"], gateway)
            #expect(probed.exitCode == 1, "\(probed.output)\(probed.errors)")
            try await gateway.stop()
            let ended = try await run(["upstreams"], gateway)
            #expect(ended.exitCode == 1)
            #expect(ended.errors.contains("does not respond"), "\(ended.errors)")
        }
    }
}
