import Foundation
import PosternConformance
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// Webhooks over real sockets, to a simulator that verifies signatures and processes each key once.
    @Suite struct Webhook {
        private static let secrets = [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX",
        ]

        private func settings(_ hook: HostedSimulator, _ more: [String: Any] = [:]) -> Settings {
            var settings = Settings()
            settings.delivery = [
                "retryBaseSeconds": 0.01, "retryMaxSeconds": 0.05, "maxInFlight": 8, "batchMaxMessages": 50,
            ]
            var upstream: [String: Any] = [
                "type": "webhook", "url": hook.url, "kinds": ["order": ["path": "/orders"], "part": ["method": "PUT"]],
                "batch": "array", "orderBy": "/key", "signingSecrets": Self.secrets, "headers": ["X-Tenant": "7"],
            ]
            upstream.merge(more) { $1 }
            settings.upstreams = ["hook": upstream]
            return settings
        }

        @Test(.timeLimit(.minutes(10)), arguments: ["none", "array", "ndjson", "wrapped"])
        func everythingArrives_onceAndInOrder_whileTheUpstreamFails(batch: String) async throws {
            let hook = try HostedSimulator("webhook", faults: "status=503:0.1,reset-after:0.1,poison=/seq:poison:400")
            try hook.control(#"{"batch":"\#(batch)","signingSecrets":["\#(Self.secrets[1])"],"paths":["/orders","/"]}"#)
            let gateway = try await GatewayDirectory(settings(hook, ["batch": batch])).start()
            let client = try gateway.client()
            let count = 600
            let lines = (0..<count).map { number in
                let kind = number % 4 == 0 ? "part" : "order"
                return #"{"upstream":"hook","kind":"\#(kind)","payload":{"key":"k\#(number % 7)","seq":\#(number)}}"#
            }
            let answer = try client.post(
                "/v1/messages", lines.joined(separator: "\n"), headers: [("Content-Type", "application/x-ndjson")])
            #expect(answer.status == 202)
            let poison = try client.post("/v1/hook/order", #"{"key":"k1","seq":"poison"}"#).json
            try gateway.waitForState("failed", of: try #require(poison["id"].string))
            try gateway.waitUntilDelivered(to: "hook")

            let arrived = try hook.values(of: "seq")
            #expect(arrived.count == count)
            for key in 0..<7 {
                let numbers = arrived.filter { $0.source == "k\(key)" }.compactMap { Int($0.value) }
                #expect(numbers == Array(stride(from: key, to: count, by: 7)), "k\(key)")
            }
            let received = try hook.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            let control = try hook.control()
            #expect(try #require(control["signedRequests"].int) > 0)
            // What was taken before its response was lost was sent again under its key.
            #expect(try #require(control["replays"].int) > 0 || batch != "none")
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)), arguments: ["basic", "post"])
        func token_isFetched_andFetchedAgain_whenItIsRevoked(authentication: String) async throws {
            let hook = try HostedSimulator("webhook")
            try hook.control(
                #"{"clientId":"id","clientSecret":"a:b","scope":"events","tokenParameters":["audience=https://a/?b=c&d"],"#
                    + #""clientAuthentication":"\#(authentication)"}"#)
            let auth: [String: Any] = [
                "type": "oauth2", "tokenURL": hook.url + "/token?tenant=1", "clientId": "id", "clientSecret": "a:b",
                "scope": "events", "parameters": ["audience": "https://a/?b=c&d"],
                "clientAuthentication": authentication,
            ]
            let gateway = try await GatewayDirectory(settings(hook, ["auth": auth])).start()
            let client = try gateway.client()
            for number in 1...2 {
                let answer = try client.post("/v1/hook/order", "[[\(number)]]", headers: [("Prefer", "wait=60")])
                #expect(answer.status == 200)
                #expect(try hook.control(#"{"revokeNow":true}"#)["tokensIssued"].int == number)
            }
            #expect(try hook.received["violationCount"].int == 0)
            #expect(try hook.values(of: "key").count == 2)
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)))
        func kinds_areRoutes_metricsAndMayChange() async throws {
            let hook = try HostedSimulator("webhook")
            let directory = try GatewayDirectory(settings(hook))
            let gateway = try await directory.start()
            let client = try gateway.client()
            #expect(try client.post("/v1/hook/refund", "{}").status == 404)
            #expect(try client.get("/metrics").text.contains(#"accepted_total{upstream="hook",kind="part"} 0"#))
            #expect(try gateway.upstream("hook")["kinds"].strings == ["order", "part"])
            #expect(try client.get("/openapi.yaml").text.contains("\n  /v1/hook/order:\n"))
            let dryRun = try client.post(
                "/v1/messages?dryRun=true",
                """
                [{"upstream":"hook","kind":"order","payload":1},{"upstream":"hook","kind":"part","payload":2},
                {"upstream":"hook","kind":"order","payload":3}]
                """)
            let bodies = dryRun.json["requests"].array.compactMap { $0["body"].string }
            #expect(bodies == ["[1,3]", "[2]"])
            for secret in Self.secrets { #expect(!dryRun.text.contains(secret)) }
            #expect(dryRun.text.contains("v1,*** v1,***"))

            try directory.configure(settings(hook, ["kinds": ["refund": ["path": "/refunds"]]]))
            gateway.process.signal(SIGHUP)
            #expect(
                try eventually {
                    try client.post("/v1/hook/refund", "{}", headers: [("Prefer", "wait=60")]).status == 200
                })
            #expect(try client.post("/v1/hook/order", "{}").status == 404)
            let document = try client.get("/openapi.yaml").text
            #expect(document.contains("\n  /v1/hook/refund:\n") && !document.contains("/v1/hook/order:"))
            try await gateway.stop()
        }

        /// What was accepted is delivered to each leg, also after the process was killed.
        @Test(.timeLimit(.minutes(10)))
        func fanOut_isDeliveredToEachLeg_afterAKill() async throws {
            let (hook, other) = (
                try HostedSimulator("webhook", faults: "status=503"),
                try HostedSimulator("webhook", faults: "status=503")
            )
            let kinds: [String: Any] = ["order": [:], "placed": ["fanOut": ["order", "crm/contact"]]]
            var settings = settings(hook, ["kinds": kinds, "batch": "none"])
            settings.upstreams?["crm"] = ["type": "webhook", "url": other.url, "kinds": ["contact": [:]]]
            let directory = try GatewayDirectory(settings)
            var gateway = try await directory.start()
            let payloads = (0..<20).map { #"{"key":"k","seq":\#($0)}"# }.joined(separator: ",")
            let answer = try gateway.client().post("/v1/hook/placed", "[\(payloads)]")
            #expect(answer.status == 202 && answer.json["ids"].array.count == 40, "\(answer.text)")
            try await gateway.kill()
            try hook.play("")
            try other.play("")
            gateway = try await directory.start()
            try gateway.waitUntilDelivered(to: "hook")
            try gateway.waitUntilDelivered(to: "crm")
            for simulator in [hook, other] {
                #expect(Set(try simulator.values(of: "seq").compactMap { Int($0.value) }) == Set(0..<20))
            }
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }
    }
}
