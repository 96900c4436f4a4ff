import PosternCommands
import PosternCore
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// Promise 8: what waits says so, also for an upstream that the gateway no longer delivers to.
    @Suite struct DisabledUpstream {
        @Test(.timeLimit(.minutes(10)), arguments: [true, false])
        func backlog_isShownEverywhere_untilTheUpstreamIsBack(isConfigured: Bool) async throws {
            let old: [String: Any] = ["type": "samsara", "url": "http://127.0.0.1:9"]
            let samsara: [String: Any] = ["url": "http://127.0.0.1:9"]
            let directory = try GatewayDirectory(Settings(upstreams: ["samsara": samsara, "old": old]))
            var gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/old/event", events(0..<3)).status == 202)
            try await gateway.stop()

            var upstreams = ["samsara": samsara]
            if isConfigured { upstreams["old"] = old.merging(["enabled": false]) { $1 } }
            try directory.configure(Settings(upstreams: upstreams))
            gateway = try await directory.start()
            let shown = try gateway.client().get("/v1/upstreams").json["upstreams"]
            #expect(shown.array.map { $0["name"].string } == ["old", "samsara"])
            #expect(shown[0]["health"].string == "disabled")
            #expect(shown[0]["type"].string == "samsara")
            #expect(shown[0]["queued"].int == 3)
            #expect(shown[0].keys == shown[1].keys)
            let alone = try gateway.upstream("old")
            #expect(alone.keys == shown[0].keys && alone["queued"].int == 3 && alone["health"].string == "disabled")
            for action in ["flush", "pause", "resume"] {
                let answer = try gateway.client().post("/v1/upstreams/old/\(action)")
                #expect(answer.status == 409)
                #expect(answer.json["type"].string == "urn:postern:problem:conflict")
                #expect(answer.json["detail"].string?.contains("old is disabled or no longer configured") == true)
            }
            #expect(try gateway.client().get("/v1/upstreams/older").status == 404)
            #expect(try gateway.sample(#"postern_outbox_messages{upstream="old",state="queued"}"#) == 3)
            #expect(try gateway.client().post("/v1/old/event", event(9)).status == 404)
            let messages = try gateway.client().get("/v1/messages?upstream=old").json["messages"].array
            #expect(messages.map { $0["waitingFor"].string } == ["pause", "pause", "pause"])
            let page = try gateway.message(try #require(messages[0]["id"].string), include: "payload,attempts")
            #expect(page["state"].string == "queued" && page["waitingFor"].string == "pause")
            #expect(page["payload"]["seq"].int == 0 && page["attemptLog"].isThere)
            #expect(try gateway.sample(#"postern_upstream_health{upstream="old",health="disabled"}"#) == 1)
            let stored = try OutboxInspection(StoreLocation(path: directory.store), now: SystemTime().now)
            let filter = MessageFilter(upstream: UpstreamName("old"))
            let list = try stored.list(filter, after: nil, limit: 100, asJSON: true).text
            #expect(try gateway.client().get("/v1/messages?upstream=old").text == list + "\n")
            let name = try #require(UpstreamName("old"))
            let lanes = try gateway.client().get("/v1/upstreams/old/lanes")
            #expect(lanes.status == 200)
            #expect(lanes.json["lanes"].array.allSatisfy { $0["reason"].string == "pause" })
            let waiting = try stored.lanes(of: name, in: nil, after: nil, limit: 100, asJSON: true).text
            #expect(lanes.text == waiting + "\n")
            #expect(stored.stats(asJSON: true).contains(#""health":"disabled""#))
            let ended = try await gateway.stop()
            #expect(
                ended.errors.contains(
                    "upstream is disabled or not configured; messages wait queued=3 type=samsara upstream=old"),
                "\(ended.errors)")

            try directory.configure(Settings(upstreams: ["samsara": samsara, "old": old]))
            gateway = try await directory.start()
            #expect(try gateway.upstream("old")["queued"].int == 3)
            #expect(try !(await gateway.stop()).errors.contains("disabled"))
        }

        /// An operator gets rid of such a backlog without stopping the gateway, and time goes on for it.
        @Test(.timeLimit(.minutes(10))) func backlog_isCancelled_andExpires() async throws {
            let old: [String: Any] = ["type": "samsara", "url": "http://127.0.0.1:9"]
            let directory = try GatewayDirectory(
                Settings(upstreams: ["samsara": ["url": "http://127.0.0.1:9"], "old": old]))
            var gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/old/event", events(0..<3)).status == 202)
            let expiring = try gateway.postExpiring {
                #"{"upstream":"old","kind":"event","expiresAt":"\#($0)","payload":\#(event(4))}"#
            }
            try await gateway.stop()

            try directory.configure(Settings())
            gateway = try await directory.start()
            try gateway.waitForState("expired", of: expiring)
            let queued = try gateway.client().get("/v1/messages?upstream=old&state=queued").json["messages"].array
            try #require(queued.count == 3)
            let first = try #require(queued[0]["id"].string)
            #expect(try gateway.client().ask("DELETE", "/v1/messages/\(first)").status == 200)
            let answer = try gateway.client().post("/v1/messages/cancel", #"{"upstream":"old"}"#)
            #expect(answer.json["cancelled"].int == 2)
            #expect(try gateway.client().get("/v1/upstreams").json["upstreams"].array.count == 1)
            try await gateway.stop()
            #expect(try directory.audit().accounts.allSatisfy { $0.ledger.queued == 0 })
        }
    }
}
