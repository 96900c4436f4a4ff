import Foundation
import Glibc
import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// Events about settled messages that the built binary sends to a webhook. That there is exactly one for each, even if
    /// the process is killed, is shown by the simulated world (`CallbackWatch`) and by `scripts/torture.py`.
    @Suite struct Callbacks {
        private static func settings(samsara: HostedSimulator, hook: HostedSimulator) -> Settings {
            var settings = Settings()
            settings.delivery = ["retryBaseSeconds": 0.01, "retryMaxSeconds": 0.05, "batchMaxWaitSeconds": 0.005]
            settings.upstreams = [
                "samsara": ["url": samsara.url, "delivery": ["batchMaxMessages": 20]],
                "hook": ["type": "webhook", "url": hook.url, "kinds": ["settled": [:]], "batch": "array"],
            ]
            settings.callbacks = [["upstream": "hook", "kind": "settled"]]
            return settings
        }

        /// The service that receives the messages is down, so they expire or are dropped.
        @Test(.timeLimit(.minutes(10)))
        func droppedAndExpiredMessages_areReported_withTheirPayloads() async throws {
            let samsara = try HostedSimulator(faults: "status=503")
            let hook = try HostedSimulator("webhook")
            try hook.control(#"{"batch":"array"}"#)
            var settings = Self.settings(samsara: samsara, hook: hook)
            settings.upstreams?["samsara"]?["queue"] = ["maxMessages": 2, "whenFull": "dropOldest"]
            settings.callbacks = [
                ["upstream": "hook", "kind": "settled", "states": ["dropped", "expired"], "includePayload": true]
            ]
            let gateway = try await GatewayDirectory(settings).start()
            let client = try gateway.client()
            try #require(try client.post("/v1/upstreams/samsara/pause").status == 202)
            let payload = event(1).replacing("\"seq\"", with: "\n \"ratio\": 1.50e+2, \"seq\"")
            let expired = try gateway.postExpiring {
                #"{"upstream":"samsara","kind":"event","expiresAt":"\#($0)","key":"k","payload":\#(payload)}"#
            }
            try gateway.waitForState("expired", of: expired)
            let ids = try (2...4).map { try client.post(eventPath, event($0)).json["id"].string }
            try gateway.waitForState("dropped", of: try #require(ids[0]))
            try #require(try eventually { try hook.received["events"].int == 2 })
            let received = try hook.ask("GET", "/received?events=true&limit=10").text
            let beginning =
                #"{"id":"\#(expired)","upstream":"samsara","kind":"event","state":"expired","key":"k","via":null,"attempts":0,"#
            #expect(received.contains(beginning), "\(received)")
            #expect(received.contains(#""lastError":null,"result":null,"payload":\#(payload)}"#), "\(received)")
            #expect(received.contains(#""state":"dropped","key":null"#), "\(received)")
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10))) func outage_isToldToAWebhook_andItsEnd() async throws {
            let (samsara, hook) = (try HostedSimulator(faults: "status=503"), try HostedSimulator("webhook"))
            try hook.control(#"{"batch":"array"}"#)
            var settings = Self.settings(samsara: samsara, hook: hook)
            settings.callbacks = [
                ["upstream": "hook", "kind": "settled", "events": ["upstream.down", "upstream.up"]]
            ]
            let gateway = try await GatewayDirectory(settings).start()
            let client = try gateway.client()
            let id = try #require(try client.post(eventPath, event(1)).json["id"].string)
            try #require(try eventually { try hook.values(of: "event").map(\.value) == ["upstream.down"] })
            try samsara.play("")
            try gateway.waitForState("delivered", of: id)
            try #require(
                try eventually { try hook.values(of: "event").map(\.value) == ["upstream.down", "upstream.up"] })
            #expect(try hook.values(of: "status").map(\.value) == ["firing", "resolved"])
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)))
        func callbacks_changeWithAReload_andMistakesKeepTheOldOnes() async throws {
            let (samsara, hook) = (try HostedSimulator(), try HostedSimulator("webhook"))
            try hook.control(#"{"batch":"array"}"#)
            var settings = Self.settings(samsara: samsara, hook: hook)
            let callbacks = settings.callbacks
            settings.callbacks = []
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let client = try gateway.client()
            func deliver(_ number: Int) throws {
                #expect(try client.post(eventPath, event(number), headers: [("Prefer", "wait=60")]).status == 200)
            }
            func reload(_ callbacks: [[String: Any]], _ expected: String) async throws {
                settings.callbacks = callbacks
                try directory.configure(settings)
                gateway.process.signal(SIGHUP)
                _ = try await gateway.process.line(of: .errors) { $0.contains(expected) }
            }
            try deliver(1)
            try await reload(callbacks, "configuration reloaded changed=callbacks")
            try deliver(2)
            try await reload([["upstream": "hook", "kind": "unknown"]], "configuration not reloaded")
            try deliver(3)
            try gateway.waitUntilDelivered(to: "hook")
            #expect(try gateway.sample(#"postern_messages_accepted_total{upstream="hook",kind="settled"}"#) == 2)
            try await reload([], "configuration reloaded changed=callbacks")
            try deliver(4)
            #expect(try gateway.sample(#"postern_messages_accepted_total{upstream="hook",kind="settled"}"#) == 2)
            #expect(try hook.values(of: "state").map(\.value) == ["delivered", "delivered"])
            try await gateway.stop()

            settings.callbacks = [["upstream": "samsara", "kind": "event"]]
            try directory.configure(settings)
            let ended = try await Binary.run(["check", "--config", directory.config])
            #expect(ended.exitCode == 78)
            #expect(ended.output.contains("callbacks[0].upstream") || ended.errors.contains("callbacks[0].upstream"))
        }
    }
}
