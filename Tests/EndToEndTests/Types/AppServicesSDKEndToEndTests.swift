import Foundation
import PosternAPI
import PosternConformance
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// AppServices' SDK with the gateway as its base URL, over real sockets.
    @Suite struct AppServicesSDKs {
        private static let device = "c0ffee11-2233-4455-8677-8899aabbccdd"

        private static func settings(_ url: String, waitSeconds: Int, _ more: [String: Any] = [:]) -> Settings {
            var settings = Settings()
            settings.delivery = ["retryBaseSeconds": 0.02, "retryMaxSeconds": 0.1]
            settings.upstreams = [
                "appservices": [
                    "baseURL": url + "/appservices", "organization": "acme", "application": "campus", "apiKey": "KEY",
                    "sdk": ["enabled": true, "waitSeconds": waitSeconds],
                ].merging(more) { $1 }
            ]
            return settings
        }

        private static func platform(_ more: String = "") throws -> HostedSimulator {
            let platform = try HostedSimulator("appservices")
            try platform.control(#"{"organization":"acme","application":"campus","apiKey":"KEY"\#(more)}"#)
            return platform
        }

        /// An app of a user. It encodes nothing, as the SDK.
        private struct App {
            let user: String
            var token: String
            let port: UInt16
            /// The path of the base URL.
            var base = "/sdk/appservices"

            init(_ user: String, _ port: UInt16, base: String = "/sdk/appservices", token: String? = nil) {
                (self.user, self.port, self.base) = (user, port, base)
                self.token = token ?? "PiTok-\(user)"
            }

            @discardableResult func ask(_ method: String, _ path: String, _ body: String = "") throws
                -> HTTPClient.Answer
            {
                try HTTPClient(port: port).ask(
                    method, "\(base)/acme/campus/\(path)?api_key=KEY", Array(body.utf8),
                    headers: [
                        ("Content-Type", "application/json"), ("Authorization", "Bearer \(token)"),
                        ("X-Auth-Provider", "pi"),
                    ])
            }

            var registration: (String, String, String) {
                let push = String(repeating: user == "ann" ? "a" : "b", count: 64)
                return (
                    "PUT", "device/\(AppServicesSDKs.device.uppercased())",
                    #"{"type":"device","uuid":"\#(AppServicesSDKs.device.uppercased())","apple.notifier.id":"\#(push)"}"#
                )
            }
            var connection: (String, String, String) { ("POST", "users/\(user)/devices/\(AppServicesSDKs.device)", "") }

            var login: [(String, String, String)] {
                [
                    registration, ("POST", "users", #"{"username":"\#(user)"}"#), connection,
                    (
                        "PUT", "device/\(AppServicesSDKs.device.uppercased())",
                        #"{"mobileplatform":{"preferences":{"whitelist":{"\#(user)":[]},"blacklist":{}}}}"#
                    ), ("POST", "groups", #"{"path":"all","title":"all"}"#), ("POST", "groups/all/users/\(user)", ""),
                ]
            }
            var logout: [(String, String, String)] {
                [
                    ("DELETE", "users/\(user)/devices/\(AppServicesSDKs.device)", ""),
                    ("PUT", "device/\(AppServicesSDKs.device)", #"{"type":"device","apple.notifier.id":""}"#),
                ]
            }
        }

        private func count(_ call: String, _ outcome: String, _ gateway: GatewayProcess) throws -> Int {
            let name = "postern_sdk_requests_total{upstream=\"appservices\",call=\"\(call)\",outcome=\"\(outcome)\"} "
            let line = try gateway.client().get("/metrics").text.split(separator: "\n").first { $0.hasPrefix(name) }
            let value = try #require(line, "\(name)").dropFirst(name.count)
            return try #require(Int(value))
        }

        private func state(of platform: HostedSimulator) throws -> JSON {
            try HTTPClient(port: platform.port).get("/control/state").json
        }

        /// An existing user is none to the SDK: it would cancel everything that follows.
        @Test(.timeLimit(.minutes(5))) func answersOfThePlatform_arePassedOn_butNotThatSomethingExists() async throws {
            let platform = try Self.platform()
            let gateway = try await GatewayDirectory(Self.settings(platform.url, waitSeconds: 30)).start()
            let app = App("ann", gateway.port)
            for round in 0..<2 {
                for (index, (method, path, body)) in app.login.enumerated() {
                    let answer = try app.ask(method, path, body)
                    #expect(answer.status == 200, "\(method) \(path) \(answer.text)")
                    let entity = answer.json["entities"].array.first
                    #expect(entity?["type"].string != nil, "\(answer.text)")
                    #expect(answer.json["error"].string == nil && !answer.text.contains("KEY"), "\(answer.text)")
                    if path.hasPrefix("device/") { #expect(entity?["uuid"].string == Self.device) }
                    if round == 1, index == 1 {
                        #expect(answer.json["params"].keys.isEmpty && entity?["username"].string == "ann")
                    }
                }
            }
            #expect(try count("device", "proxied", gateway) == 2 && count("preferences", "proxied", gateway) == 2)
            #expect(try count("user", "proxied", gateway) == 1 && count("user", "accepted", gateway) == 1)
            let message = try gateway.client().get("/v1/messages?kind=connect").json["messages"][0]
            #expect(message["via"].string == "sdk" && message["result"]["steps"].array.count == 1)
            #expect(try platform.received["violationCount"].int == 0)
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(5)), arguments: [0, 5])
        func twoUsersOnADevice_whileThePlatformIsAway_endAsAtOneThatWasAlwaysThere(waitSeconds: Int) async throws {
            let (platform, other) = (try Self.platform(), try Self.platform())
            let directory = try GatewayDirectory(Self.settings(platform.url, waitSeconds: waitSeconds))
            var gateway = try await directory.start()
            _ = try gateway.client().post("/v1/upstreams/appservices/pause")
            let start = ContinuousClock.now
            for (index, (user, isLogin)) in [
                ("ann", true), ("ann", false), ("bob", true), ("bob", false), ("ann", true),
            ].enumerated() {
                let direct = App(user, other.port, base: "/appservices")
                for (method, path, body) in isLogin ? direct.login : direct.logout {
                    _ = try direct.ask(method, path, body)
                    let answer = try App(user, gateway.port).ask(method, path, body)
                    #expect(answer.status == 200 && answer.json["entities"].array.count == 1, "\(answer.text)")
                    #expect(answer.json["action"].string == method.lowercased())
                }
                guard index == 2 else { continue }
                try await gateway.kill()
                gateway = try await directory.start()
            }
            // None of them has waited.
            #expect(ContinuousClock.now - start < .seconds(60))
            _ = try gateway.client().post("/v1/upstreams/appservices/resume")
            try gateway.waitUntilDelivered(to: "appservices")
            #expect(try gateway.client().get("/v1/messages?state=failed").json["messages"].array.isEmpty)
            #expect(try state(of: platform).description == state(of: other).description)
            let received = try platform.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }

        @Test(.timeLimit(.minutes(5))) func refusedToken_isPassedOn_andItsMessageWaitsForTheNextOne() async throws {
            let platform = try Self.platform(#","invalidateToken":["PiTok-ann"]"#)
            let gateway = try await GatewayDirectory(Self.settings(platform.url, waitSeconds: 30)).start()
            var app = App("ann", gateway.port)
            for outcome in ["proxied", "unauthorized"] {
                let (method, path, body) = app.login[1]
                let answer = try app.ask(method, path, body)
                #expect(answer.status == 401 && answer.json["error"].string != nil, "\(answer.text)")
                #expect(try count("user", outcome, gateway) == 1)
            }
            #expect(try platform.received["requests"].int == 1)
            #expect(try gateway.client().get("/v1/upstreams/appservices").json["queued"].int == 2)
            app.token = "PiTok-ann.2"
            for (method, path, body) in app.login { #expect(try app.ask(method, path, body).status == 200) }
            try gateway.waitUntilDelivered(to: "appservices")
            #expect(try state(of: platform)["users"].array.map(\.string) == ["ann"])
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(5))) func group_isLookedUpAtOnce_andIsThereIfThatCannotBeAsked() async throws {
            let platform = try Self.platform()
            let gateway = try await GatewayDirectory(Self.settings(platform.url, waitSeconds: 30)).start()
            let app = App("ann", gateway.port)
            let missing = try app.ask("GET", "groups/none")
            #expect(missing.status == 404 && missing.json["error"].string != nil, "\(missing.text)")
            _ = try gateway.client().post("/v1/upstreams/appservices/pause")
            let known = try app.ask("GET", "groups/none")
            #expect(known.status == 404 && known.json["error"].string == "service_resource_not_found")
            let other = try app.ask("GET", "groups/other")
            #expect(other.status == 200 && other.json["entities"][0]["path"].string == "other", "\(other.text)")
            try app.ask("POST", "groups", #"{"path":"none","title":"none"}"#)
            #expect(try app.ask("GET", "groups/none").status == 200)
            try await gateway.stop()
        }

        private enum Caller: CaseIterable { case absent, wrong, ofAnotherUpstream, right }

        /// The answer does not depend on the platform, nor the check on the keys of the gateway.
        @Test(.timeLimit(.minutes(5)), arguments: [true, false], [true, false])
        func everyCall_isCheckedAsThePlatformDoes_whetherOrNotItIsThere(isUp: Bool, hasKeys: Bool) async throws {
            let platform = try Self.platform()
            var settings = Self.settings(isUp ? platform.url : "http://127.0.0.1:9", waitSeconds: 0)
            let other = settings.upstreams?["appservices"]?.merging(["type": "appservices", "apiKey": "OTHER"]) { $1 }
            settings.upstreams?["other"] = other
            if hasKeys {
                let digest = KeyText.digest(of: "postern_" + String(repeating: "0", count: 43))
                settings.auth = [
                    "keys": [
                        [
                            "name": "a", "sha256": digest.map { String(format: "%02x", $0) }.joined(),
                            "scopes": ["write"],
                        ]
                    ]
                ]
            }
            let gateway = try await GatewayDirectory(settings).start()
            let app = App("ann", gateway.port)
            let calls =
                app.login + app.logout + [("GET", "groups/all", ""), ("DELETE", "groups/all/users/ann", "")]
            for (method, path, body) in calls {
                for caller in Caller.allCases {
                    let key: String? =
                        switch caller {
                        case .absent: nil
                        case .wrong: "WRONG"
                        case .ofAnotherUpstream: "OTHER"
                        case .right: "KEY"
                        }
                    let answer = try HTTPClient(port: gateway.port).ask(
                        method, "/sdk/appservices/acme/campus/\(path)" + (key.map { "?api_key=\($0)" } ?? ""),
                        Array(body.utf8), headers: [("Authorization", "Bearer T"), ("X-Auth-Provider", "pi")])
                    #expect(answer.status == (caller == .right ? 200 : 401), "\(method) \(path) \(answer.text)")
                    #expect((answer.json["fault"].keys.isEmpty) == (caller == .right))
                    #expect(answer.header("Content-Type") == "application/json")
                }
            }
            for (path, status, code) in [
                ("acme/other/users?api_key=KEY", 404, "organization_application_not_found"),
                ("acme/campus/nowhere?api_key=KEY", 401, "auth_missing_credentials"),
                ("acme/campus/users?api_key=KEY", 401, "auth_missing_credentials"), ("acme/campus/nowhere", 401, nil),
                ("acme/campus/apm/apmMetrics", 404, "entity_not_found"),
            ] as [(String, Int, String?)] {
                let answer = try HTTPClient(port: gateway.port).post("/sdk/appservices/\(path)", "{}")
                #expect(answer.status == status && answer.json["error"].string == code, "\(path) \(answer.text)")
            }
            let wrong = try app.ask("PATCH", "users")
            #expect(wrong.status == 405 && wrong.json["error"].string == "unsupported_service_operation")
            #expect(wrong.header("Allow") == "POST")
            for path in ["users/ann/devices/", "users/ann/devices"] {
                let answer = try app.ask("DELETE", path)
                #expect(answer.status == 400 && answer.json["error"].string == "illegal_argument", "\(answer.text)")
            }
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(5))) func monitoring_isStoredAsItCame_andACrashWithoutRoomIsNotAnswered() async throws
        {
            let platform = try Self.platform()
            let directory = try GatewayDirectory(
                Self.settings(
                    platform.url, waitSeconds: 30, ["monitoringEnabled": true, "queue": ["maxMessages": 1]]))
            var gateway = try await directory.start()
            func send(_ method: String, _ path: String, _ body: String = "") throws -> HTTPClient.Answer {
                try HTTPClient(port: gateway.port).ask(
                    method, "/sdk/appservices/acme/campus/apm/\(path)", Array(body.utf8))
            }
            let configuration = try send("GET", "apigeeMobileConfig")
            #expect(configuration.status == 200, "\(configuration.text)")
            _ = try gateway.client().post("/v1/upstreams/appservices/pause")
            try await gateway.stop()
            gateway = try await directory.start()
            #expect(try send("GET", "apigeeMobileConfig").text == configuration.text)
            let crash = "crashLogs/\(Self.device).crash"
            let stored = try send("PUT", crash, String(repeating: "it \"broke\"\n", count: 20_000))
            #expect(stored.status == 200 && stored.text == "{}")
            #expect(throws: (any Error).self) { try send("PUT", crash, "again") }
            let full = try send("POST", "apmMetrics", #"{"sessionMetrics":{"appId":"1"}}"#)
            #expect(full.status == 503 && full.json["error"].string == "service_unavailable", "\(full.text)")
            #expect(try count("crash", "no_room", gateway) == 1)
            _ = try gateway.client().post("/v1/upstreams/appservices/resume")
            try gateway.waitUntilDelivered(to: "appservices")
            let metrics = try send(
                "POST", "apmMetrics",
                #"{"logs":[{"tag":"t","logLevel":"V","logMessage":"m","timeStamp":"1"}],"sessionMetrics":{"appId":"1"}}"#
            )
            #expect(metrics.text == #"{"message":"Successfully sent"}"#)
            try gateway.waitUntilDelivered(to: "appservices")
            #expect(try gateway.client().get("/v1/messages?state=delivered").json["messages"].array.count == 2)
            #expect(try state(of: platform)["crashLogs"].description.contains(Self.device))
            try await gateway.stop()
        }
    }
}
