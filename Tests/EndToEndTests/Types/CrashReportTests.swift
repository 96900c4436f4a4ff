import Foundation
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// Crash reports of AppServices through kills: the text is uploaded until it is taken, and the metrics that name it
    /// at most once. The simulator records every metrics that name a crash too early or again.
    @Suite struct CrashReports {
        private static func text(_ number: Int) -> String {
            #"{"deviceId":"c0ffee11-2233-4455-8677-8899aabbccdd","text":"crash \#(number)"}"#
        }

        private func directory(_ platform: HostedSimulator) throws -> GatewayDirectory {
            var settings = Settings()
            settings.delivery = ["retryBaseSeconds": 0.02, "retryMaxSeconds": 0.1]
            settings.upstreams = [
                "appservices": [
                    "baseURL": platform.url + "/appservices", "organization": "acme", "application": "campus-dev",
                    "apiKey": "KEY", "monitoring": ["enabled": true],
                ]
            ]
            return try GatewayDirectory(settings)
        }

        /// The requests of that step that the simulator has taken.
        private func taken(_ step: String, by platform: HostedSimulator) throws -> Int {
            try platform.ask("GET", "/received?events=true&limit=1000").json["texts"].array.count {
                $0.description.contains(step)
            }
        }

        private func message(_ gateway: GatewayProcess, _ id: String) throws -> JSON {
            try gateway.client().get("/v1/messages/\(id)?include=attempts").json
        }

        /// The step in which the gateway is killed: its request is taken, and its answer does not arrive.
        @Test(
            .timeLimit(.minutes(10)),
            arguments: [("crashLogs", "crash_log", "delivered"), ("apmMetrics", "metrics", "dropped")])
        func killInAStep_repeatsTheText_andNeverTheMetrics(path: String, step: String, end: String) async throws {
            let platform = try HostedSimulator("appservices")
            let directory = try directory(platform)
            var gateway = try await directory.start()
            try platform.play("hang-after@/appservices/acme/campus-dev/apm/\(path)")
            let posted = try gateway.client().post("/v1/appservices/crash", Self.text(1)).json
            let id = try #require(posted["id"].string)
            try #require(try eventually { try taken(#""step":"\#(step)""#, by: platform) == 1 })
            try await gateway.kill()
            try platform.play("")
            gateway = try await directory.start()
            try gateway.waitUntilDelivered(to: "appservices")
            let message = try message(gateway, id)
            #expect(message["state"].string == end)
            let outcomes = message["result"]["steps"].array.map(\.["outcome"].string)
            #expect(outcomes.suffix(2) == ["done", end == "delivered" ? "done" : "failed"])
            let attempts = message["attemptLog"].array.map {
                "\($0["step"].string ?? "") \($0["outcome"].string ?? "")"
            }
            #expect(
                attempts
                    == (end == "delivered"
                        ? [
                            "fetchConfiguration proceed", "uploadCrashLog unknown", "uploadCrashLog proceed",
                            "uploadMetrics delivered",
                        ]
                        : ["fetchConfiguration proceed", "uploadCrashLog proceed", "uploadMetrics unknown"]))
            let state = try platform.ask("GET", "/control/state").json
            #expect(state["metrics"].int == 1 && state["crashLogs"].array.count == 1)
            let received = try platform.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }
    }
}
