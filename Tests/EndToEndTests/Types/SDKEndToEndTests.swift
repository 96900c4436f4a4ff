import Foundation
import PosternAPI
import PosternConformance
import PosternSimulatorKit
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// SDKs whose base URL is the gateway, over real sockets.
    @Suite struct SDKs {
        private static let key = "postern_0000000000000000000000000000000000000000000"

        private static func keys(_ upstreams: [String]) -> [[String: Any]] {
            [
                [
                    "name": "app", "sha256": KeyText.digest(of: key).map { String(format: "%02x", $0) }.joined(),
                    "scopes": ["write"], "upstreams": upstreams,
                ]
            ]
        }

        private static func basic(_ user: String, _ password: String) -> (String, String) {
            ("Authorization", "Basic \(Data("\(user):\(password)".utf8).base64EncodedString())")
        }

        private static let activity =
            #"{"actor":{"id":"a"},"verb":"v","object":{"id":"o","objectType":"t"},"generator":{"appId":"g"}}"#
        private static let form = ("Content-Type", "application/x-www-form-urlencoded")
        private static let json = ("Content-Type", "application/json")

        private static func settings(samsara: String, seer: String) -> Settings {
            var settings = Settings()
            settings.upstreams = [
                "samsara": ["url": samsara, "sdk": ["enabled": true, "rootPath": true]],
                "other": ["type": "samsara", "url": samsara],
                "seer": [
                    "baseURL": seer, "clientId": "simulated-client", "clientSecret": "simulated-secret",
                    "sdk": ["enabled": true],
                ],
            ]
            return settings
        }

        private enum Caller: CaseIterable { case absent, wrong, ofAnotherUpstream, right }

        /// The answer does not depend on the platform, nor the check on the keys of the gateway.
        @Test(.timeLimit(.minutes(10)), arguments: [true, false], [["*"], ["other"], []])
        func everyCall_isCheckedAsItsPlatformDoes_whetherOrNotThatIsThere(isUp: Bool, upstreams: [String]) async throws
        {
            let (samsara, seer) = (try HostedSimulator("samsara"), try HostedSimulator("seer"))
            var settings = Self.settings(
                samsara: isUp ? samsara.url : "http://127.0.0.1:9", seer: isUp ? seer.url : "http://127.0.0.1:9")
            if !upstreams.isEmpty { settings.auth = ["keys": Self.keys(upstreams)] }
            let gateway = try await GatewayDirectory(settings).start()
            let client = try gateway.client()
            for path in ["/sdk/samsara/v1/events", "/v1/events"] {
                for caller in Caller.allCases {
                    let header: [(String, String)] =
                        switch caller {
                        case .absent: []
                        case .wrong: [Self.basic("sdk", "postern_wrong")]
                        case .ofAnotherUpstream, .right: [Self.basic("sdk", Self.key)]
                        }
                    let isRight = (caller == .right || caller == .ofAnotherUpstream) && upstreams == ["*"]
                    let answer = try client.post(path, events(0..<2), headers: header + [Self.json])
                    #expect(answer.status == (isRight ? 202 : 401), "\(caller) \(answer.status) \(answer.text)")
                    #expect(answer.header("Content-Type")?.contains("problem") != true)
                }
            }
            #expect(try client.get("/sdk/samsara/v1/api-status").text == #"{"status":"online"}"#)

            func tokenRequest(_ password: String) throws -> HTTPClient.Answer {
                try client.post(
                    "/sdk/seer/oauth/access_token", "grant_type=client_credentials",
                    headers: [Self.basic("simulated-client", password), Self.form])
            }
            #expect(try tokenRequest("wrong").status == 401)
            let token = try #require(try tokenRequest("simulated-secret").json["access_token"].string)
            for (call, body) in [
                ("sactivity", Self.activity), ("sinstrumentation", Self.activity),
                ("sactivity/batch", #"{"activities":[\#(Self.activity)]}"#),
            ] {
                for (value, status) in [
                    (nil, 401), ("Bearer x", 401), ("Bearer \(Self.key)", 401), ("Bearer \(token)", 200),
                ] {
                    let header = value.map { [("Authorization", $0)] } ?? []
                    let answer = try client.post("/sdk/seer/\(call)", body, headers: header + [Self.json])
                    #expect(answer.status == status, "\(call) \(answer.text)")
                }
            }
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)))
        func whatAnSDKWasTold_arrivesInOrder_afterBothPlatformAndGatewayWereGone() async throws {
            let seer = try HostedSimulator("seer", faults: "status=503")
            try seer.control(#"{"clientId":"simulated-client","clientSecret":"simulated-secret"}"#)
            let directory = try GatewayDirectory(Self.settings(samsara: "http://127.0.0.1:9", seer: seer.url))
            var gateway = try await directory.start()
            var token: String?
            var told = 0
            for _ in 0..<3 {
                let client = try gateway.client()
                // A token outlives the gateway.
                if token == nil {
                    token = try client.post(
                        "/sdk/seer/oauth/access_token", "grant_type=client_credentials",
                        headers: [Self.basic("simulated-client", "simulated-secret"), Self.form]
                    ).json["access_token"].string
                }
                for _ in 0..<20 {
                    let items = (0..<3).map { Self.activity.dropLast() + ",\"seq\":\(told + $0)}" }
                    let answer = try client.post(
                        "/sdk/seer/sactivity/batch", #"{"activities":[\#(items.joined(separator: ","))]}"#,
                        headers: [("Authorization", "Bearer \(token ?? "")"), Self.json])
                    #expect(answer.status == 200 && answer.text == "{}")
                    told += 3
                }
                try await gateway.kill()
                gateway = try await directory.start()
            }
            try seer.play("")
            try gateway.waitUntilDelivered(to: "seer")
            #expect(try seer.values(of: "/seq").compactMap { Int($0.value) } == Array(0..<told))
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }

        @Test(.timeLimit(.minutes(10))) func reload_addsAndRemovesEndpoints() async throws {
            var settings = Settings()
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let client = try gateway.client()
            func status(_ path: String) throws -> Int { try client.post(path, "[]", headers: [Self.json]).status }
            #expect(try status("/sdk/samsara/v1/events") == 404)
            for (sdk, path) in [
                (["enabled": true, "anonymous": true], "/sdk/samsara/v1/events"),
                (["enabled": true, "anonymous": true, "prefix": "/x/y"], "/x/y/v1/events"),
            ] as [([String: Any], String)] {
                settings.upstreams = ["samsara": ["url": settings.upstreamURL, "sdk": sdk]]
                try directory.configure(settings)
                gateway.process.signal(SIGHUP)
                #expect(try eventually { try status(path) == 202 }, "\(path)")
            }
            #expect(try status("/sdk/samsara/v1/events") == 404)
            settings.upstreams = nil
            try directory.configure(settings)
            gateway.process.signal(SIGHUP)
            #expect(try eventually { try status("/x/y/v1/events") == 404 })
            try await gateway.stop()
        }

        /// All of them at once, with the values of the simulators.
        @Test(.timeLimit(.minutes(10))) func example_servesTheSDKsOfAllTypes_withSimulators() async throws {
            let text = String(decoding: try Fixture.bytes(inPackage: "config.example.json"), as: UTF8.self)
            let enabled = text.replacingOccurrences(
                of: #"("sdk": \{\s*"enabled": )false"#, with: "$1true", options: .regularExpression)
            #expect(enabled != text)
            let directory = try GatewayDirectory(Settings())
            try directory.write(
                enabled.replacingOccurrences(of: #""port": 8080"#, with: #""port": 0"#).replacingOccurrences(
                    of: "data/postern.sqlite", with: directory.store))
            let process = try Binary.start(["serve", "--config", directory.config, "--simulate"])
            let gateway = try await GatewayProcess(process, at: directory)
            let client = try gateway.client()
            #expect(try client.get("/sdk/samsara/v1/api-status").status == 200)
            #expect(
                try client.post(
                    "/sdk/seer/oauth/access_token", "grant_type=client_credentials",
                    headers: [Self.basic("simulated-client", "simulated-secret"), Self.form]
                ).status == 200)
            try await gateway.stop()
        }
    }
}
