import PosternTestKit
import Testing

extension EndToEnd {
    /// Promise 8: what waits says so, also for an upstream that the gateway no longer delivers to.
    @Suite struct DisabledUpstream {
        @Test(.timeLimit(.minutes(10)), arguments: [true, false])
        func backlog_isShownEverywhere_untilTheUpstreamIsBack(isConfigured: Bool) async throws {
            let old: [String: Any] = ["type": "samsara", "url": "http://127.0.0.1:9"]
            let samsara: [String: Any] = ["url": "http://127.0.0.1:9"]
            let place = try Place(Settings(upstreams: ["samsara": samsara, "old": old]))
            var gateway = try await place.start()
            #expect(try gateway.client().post("/v1/old/event", events(0..<3)).status == 202)
            try await gateway.stop()

            var upstreams = ["samsara": samsara]
            if isConfigured { upstreams["old"] = old.merging(["enabled": false]) { $1 } }
            try place.configure(Settings(upstreams: upstreams))
            gateway = try await place.start()
            let shown = try gateway.client().get("/v1/upstreams").json["upstreams"]
            #expect(shown.array.map { $0["name"].string } == ["old", "samsara"])
            #expect(shown[0]["health"].string == "disabled")
            #expect(shown[0]["type"].string == "samsara")
            #expect(shown[0]["queued"].int == 3)
            #expect(shown[0].keys == shown[1].keys)
            #expect(try gateway.sample(#"postern_outbox_messages{upstream="old",state="queued"}"#) == 3)
            #expect(try gateway.client().post("/v1/old/event", event(9)).status == 404)
            let ended = try await gateway.stop()
            #expect(
                ended.errors.contains(
                    "upstream is disabled or not configured; its messages wait queued=3 type=samsara upstream=old"),
                "\(ended.errors)")

            try place.configure(Settings(upstreams: ["samsara": samsara, "old": old]))
            gateway = try await place.start()
            #expect(try gateway.upstream("old")["queued"].int == 3)
            #expect(try !(await gateway.stop()).errors.contains("disabled"))
        }
    }
}
