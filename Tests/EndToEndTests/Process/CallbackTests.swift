import Foundation
import Glibc
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import Synchronization
import Testing

extension EndToEnd {
    /// Events about settled messages that the built binary sends to a webhook.
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

        private static func all(_ view: StoreView, of upstream: String) throws -> [MessageRecord] {
            var (records, next) = ([MessageRecord](), MessageID?.none)
            repeat {
                let filter = MessageFilter(upstream: UpstreamName(upstream))
                let page = try view.messages(filter, after: next, limit: 500, payload: false)
                records += page.messages
                next = page.next
            } while next != nil
            return records
        }

        @Test(.timeLimit(.minutes(10)))
        func everySettlement_hasExactlyOneEvent_whenTheGatewayIsKilledUnderLoad() async throws {
            let samsara = try HostedSimulator(
                faults: "delay=5ms:0.2,status=503:0.05,reset-after:0.05,poison=/eventName:poison:413")
            let hook = try HostedSimulator("webhook", faults: "status=503:0.1,reset-after:0.1")
            try hook.control(#"{"batch":"array"}"#)
            let directory = try GatewayDirectory(Self.settings(samsara: samsara, hook: hook))
            let next = Atomic<Int>(0)
            for _ in 0..<10 {
                let gateway = try await directory.start()
                let goal = next.load(ordering: .relaxed) + Int.random(in: 20..<150)
                let port = gateway.port
                let threads = (0..<3).map { writer in
                    DedicatedThread(name: "e2e-writer") {
                        guard let client = try? HTTPClient(port: port) else { return }
                        while true {
                            let number = next.wrappingAdd(1, ordering: .relaxed).newValue
                            let name = number.isMultiple(of: 25) ? "poison" : "fine"
                            let body = event(number, source: "device-\(writer)", name: name)
                            guard (try? client.post(eventPath, body)) != nil else { return }
                        }
                    }
                }
                #expect(
                    eventually(within: .seconds(30), every: .milliseconds(1)) { next.load(ordering: .relaxed) > goal })
                try await gateway.kill()
                threads.forEach { $0.join() }
            }
            try samsara.play("poison=/eventName:poison:413")
            try hook.play("")
            let gateway = try await directory.start()
            try gateway.waitUntilDelivered()
            try gateway.waitUntilDelivered(to: "hook")
            try await gateway.stop()

            let view = try StoreView(path: directory.store)
            let settled = try Self.all(view, of: "samsara")
            let events = try Self.all(view, of: "hook")
            #expect(settled.contains { $0.state == .failed } && settled.contains { $0.state == .delivered })
            #expect(events.compactMap(\.key).sorted() == settled.map(\.id.description).sorted())
            #expect(events.allSatisfy { $0.state == .delivered })
            #expect(Set(try hook.values(of: "id").map(\.value)) == Set(settled.map(\.id.description)))
            let failed = try hook.values(of: "state").count { $0.value == "failed" }
            #expect(failed >= settled.count { $0.state == .failed })
            #expect(try hook.received["violationCount"].int == 0)
            #expect(try directory.audit().isBalanced)
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
            let expiresAt = SystemTime().now + .seconds(2)
            let payload = event(1).replacing("\"seq\"", with: "\n \"ratio\": 1.50e+2, \"seq\"")
            let short = try client.post(
                "/v1/messages",
                #"{"upstream":"samsara","kind":"event","expiresAt":"\#(expiresAt)","key":"k","payload":\#(payload)}"#)
            let expired = try #require(short.json["id"].string)
            try gateway.waitForState("expired", of: expired)
            let ids = try (2...4).map { try client.post(eventPath, event($0)).json["id"].string }
            try gateway.waitForState("dropped", of: try #require(ids[0]))
            try #require(try eventually { try hook.received["events"].int == 2 })
            let received = try hook.ask("GET", "/received?events=true&limit=10").text
            let beginning =
                #"{"id":"\#(expired)","upstream":"samsara","kind":"event","state":"expired","key":"k","attempts":0,"#
            #expect(received.contains(beginning), "\(received)")
            #expect(received.contains(#""lastError":null,"result":null,"payload":\#(payload)}"#), "\(received)")
            #expect(received.contains(#""state":"dropped","key":null"#), "\(received)")
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
                #expect(try client.post(eventPath, event(number), headers: [("Prefer", "wait=20")]).status == 200)
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
