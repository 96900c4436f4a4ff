import Crypto
import Foundation
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

extension EndToEnd {
    /// StreamOne over real sockets: writes of many accounts, a platform that is busy, rate-limited or failing, and a
    /// gateway that is killed.
    @Suite struct StreamOne {
        private func settings(_ platform: HostedSimulator) -> Settings {
            var settings = Settings()
            settings.delivery = ["retryBaseSeconds": 0.02, "retryMaxSeconds": 0.1, "maxInFlight": 16]
            settings.upstreams = [
                "streamone": [
                    "apiUrl": platform.url, "id": "9yC-4pQxT_2a", "psk": "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu",
                    "rateLimitPauseSeconds": 0.1, "readOnlyPauseSeconds": 0.1,
                ]
            ]
            return settings
        }

        @Test(.timeLimit(.minutes(10)))
        func everyWriteArrives_inOrderPerAccount_withItsResult() async throws {
            let accounts = 50
            let writes = 25
            let platform = try HostedSimulator("streamone", faults: "status=503:0.1")
            try platform.control(
                #"{"statusRate":{"10":0.02,"8":0.002},"clockOffsetSeconds":1,"failuresUntilRateLimited":0}"#)
            let directory = try GatewayDirectory(settings(platform))
            var gateway = try await directory.start()
            let writers = (0..<10).map { writer in
                PatientWriter(
                    (0..<accounts).filter { $0 % 10 == writer }.map { account in
                        (0..<writes).map { number in
                            .init(
                                path: "/v1/streamone/call",
                                body: #"""
                                    {"command":"item","action":"edit","account":"A\#(account)","arguments":{"seq":"\#(account)-\#(number)"}}
                                    """#)
                        }
                    }, port: gateway.port)
            }
            let threads = try writers.map { writer in try DedicatedThread(name: "e2e-streamone") { writer.run() } }
            func posted() -> Int { writers.reduce(0) { $0 + $1.posted.load(ordering: .relaxed) } }
            #expect(eventually { posted() >= 600 })
            try await gateway.kill()
            gateway = try await directory.start()
            writers.forEach { $0.turn(to: gateway.port) }
            threads.forEach { $0.join() }
            #expect(writers.flatMap { $0.problems.withLock { $0 } } == [])
            try gateway.waitUntilDelivered(to: "streamone")

            var arrived: [String: [Int]] = [:]
            for (account, value) in try platform.values(of: "/arguments/seq").map({ ($0.source, $0.value) }) {
                arrived[account, default: []].append(Int(value.split(separator: "-").last ?? "") ?? -1)
            }
            for account in 0..<accounts {
                var seen: Set<Int> = []
                let first = (arrived["A\(account)"] ?? []).filter { seen.insert($0).inserted }
                #expect(first == Array(0..<writes), "A\(account)")
            }
            let received = try platform.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            let page = try gateway.client().get("/v1/messages?upstream=streamone&state=delivered&limit=1000").json
            #expect(page["messages"].array.count == 1000)
            #expect(page["messages"].array.allSatisfy { $0["result"].isThere })
            #expect(try gateway.client().get("/v1/messages?state=failed").json["messages"].array.isEmpty)
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }

        /// Not even at log level trace. The session itself remains valid.
        @Test(.timeLimit(.minutes(10)))
        func login_leavesNoPasswordBehind_andItsSessionOutlivesAKill() async throws {
            let platform = try HostedSimulator("streamone")
            try platform.control(
                #"{"users":[{"id":"Cmv8fnKfjF2l","username":"jan","password":"canary-Pa55","needsV2Hash":true}]}"#)
            var settings = settings(platform)
            settings.logLevel = "trace"
            let directory = try GatewayDirectory(settings)
            // MD5 of the password is the old hash, which is as good as it; the last belongs to the application.
            var secrets = ["canary-", "62392522ed53eb4a1a03f012e15400e6", "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"]
            func login(
                _ password: String, _ client: HTTPClient, at resource: String = "sessions"
            ) throws -> HTTPClient.Answer {
                try client.post(
                    "/v1/streamone/\(resource)",
                    #"{"username":"jan","password":"\#(password)","userip":"192.0.2.7"}"#)
            }
            func view(_ session: String, _ client: HTTPClient) throws -> HTTPClient.Answer {
                try client.post("/v1/streamone/proxy/user/viewme", "", headers: [("Postern-Session", session)])
            }
            var gateway = try await directory.start()
            var client = try gateway.client()
            let begun = try login("canary-Pa55", client)
            #expect(begun.status == 201, "\(begun.text)")
            let session = try #require(begun.json["id"].string)
            secrets.append(
                try #require(try login("canary-new", client, at: "passwords").json["hash"].string))
            let refused = try login("canary-wrong", client)
            #expect(refused.status == 401)
            #expect(try view(session, client).json["header"]["status"].int == 0)
            gateway.process.signal(SIGKILL)
            var logs = try await gateway.process.end().errors

            gateway = try await directory.start()
            client = try gateway.client()
            #expect(try view(session, client).json["header"]["status"].int == 0)
            let texts = try ["/metrics", "/v1/upstreams/streamone"].map { try client.get($0).text }
            logs += try await gateway.stop().errors
            for secret in secrets {
                #expect(try directory.files(with: secret) == [])
                #expect(!logs.contains(secret))
                #expect(([begun.text, refused.text] + texts).allSatisfy { !$0.contains(secret) })
            }
            #expect(logs.contains("started"))
            #expect(try platform.received["violationCount"].int == 0)
        }

        /// Roles and responses, outside sessions and in one; and none of them shows in the files of the store.
        @Test(.timeLimit(.minutes(10)))
        func tokensInTheStore_answerAfterAKill_withoutAsking() async throws {
            let platform = try HostedSimulator("streamone")
            try platform.control(
                #"""
                {"users":[{"id":"Cmv8fnKfjF2l","username":"jan","password":"secret",
                  "roles":[{"id":"canary-role","tokens":["canary-token"]}]}]}
                """#)
            var settings = settings(platform)
            settings.upstreams?["streamone"]?["requestCache"] = "store"
            settings.upstreams?["streamone"]?["tokenCache"] = "store"
            settings.upstreams?["streamone"]?["tokenCacheSeconds"] = 3600
            let directory = try GatewayDirectory(settings)
            var gateway = try await directory.start()
            let session = try #require(
                gateway.client().post(
                    "/v1/streamone/sessions", #"{"username":"jan","password":"secret","userip":"192.0.2.7"}"#
                ).json["id"].string)
            func ask() throws -> [String] {
                let client = try gateway.client()
                let headers = [("Postern-Session", session)]
                return try [
                    client.get("/v1/streamone/roles").text,
                    client.ask("GET", "/v1/streamone/roles", headers: headers).text,
                    client.ask("GET", "/v1/streamone/tokens/canary-token", headers: headers).text,
                    client.post("/v1/streamone/proxy/application/view", "").text,
                ]
            }
            func calls() throws -> Int? { try platform.received["requests"].int }
            let answers = try ask()
            #expect(answers[1].contains("canary-role") && answers[2].contains("true"), "\(answers)")
            // The copies are written behind the responses, in their order.
            #expect(try gateway.client().post("/v1/streamone/call", #"{"command":"x","action":"edit"}"#).status == 202)
            try gateway.waitUntilDelivered(to: "streamone")
            let before = try calls()
            try await gateway.kill()

            gateway = try await directory.start()
            #expect(try ask() == answers)
            #expect(try calls() == before)
            #expect(try directory.files(with: "canary") == [])
            #expect(try gateway.client().ask("DELETE", "/v1/streamone/sessions/\(session)").status == 204)
            try await gateway.stop()
        }

        /// The path of a call as StreamOne's SDKs sign it, with its query.
        static func sdkTarget(_ action: String, _ body: String, account: String? = nil) -> String {
            let seconds = SystemTime().now.milliseconds / 1000
            let scope = account.map { "&account=\($0)" } ?? ""
            let query =
                "api=3&format=json&authentication_type=application\(scope)&timestamp=\(seconds)&application=9yC-4pQxT_2a"
            let key = SymmetricKey(data: Array("ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu".utf8))
            let text = Array("/api/\(action)?\(query)&\(body)".utf8)
            let signature = Array(HMAC<Insecure.SHA1>.authenticationCode(for: text, using: key)).hexadecimal
            return "/sdk/streamone/api/\(action)?\(query)&signature=\(signature)"
        }

        private func callBySDK(
            _ gateway: GatewayProcess, _ action: String, _ body: String, account: String? = nil
        ) throws -> JSON {
            let answer = try gateway.client().post(
                Self.sdkTarget(action, body, account: account), body,
                headers: [("Content-Type", "application/x-www-form-urlencoded")])
            #expect(answer.status == 200)
            return answer.json["header"]
        }

        /// Calls that are queued while the platform is away outlive a kill, and arrive before those that follow.
        @Test(.timeLimit(.minutes(10)))
        func callsOfAnSDK_areQueuedWhileThePlatformIsAway_andArriveInOrderAfterAKill() async throws {
            let platform = try HostedSimulator("streamone")
            var settings = settings(platform)
            settings.upstreams?["streamone"]?["sdk"] = ["enabled": true, "queueActions": ["item/edit"]]
            settings.upstreams?["streamone"]?["apiUrl"] = "http://127.0.0.1:9"
            let directory = try GatewayDirectory(settings)
            var gateway = try await directory.start()
            for number in 1...20 {
                for account in ["A1", "A2"] {
                    let header = try callBySDK(gateway, "item/edit", "seq=\(number)", account: account)
                    #expect(header["status"].int == 0 && header["queued"].bool == true, "\(header)")
                }
            }
            let (read, other) = (
                try callBySDK(gateway, "item/info", "seq=0"), try callBySDK(gateway, "item/create", "seq=0")
            )
            #expect(read["status"].int == 1 && other["status"].int == 1)
            try await gateway.kill()

            settings.upstreams?["streamone"]?["apiUrl"] = platform.url
            try directory.configure(settings)
            gateway = try await directory.start()
            for account in ["A1", "A2"] {
                #expect(try callBySDK(gateway, "item/edit", "seq=21", account: account)["status"].int == 0)
            }
            try gateway.waitUntilDelivered(to: "streamone")
            // The platform is there, and nothing waits: the answer is its own.
            let direct = try callBySDK(gateway, "item/edit", "seq=22", account: "A1")
            #expect(direct["status"].int == 0 && !direct["queued"].isThere)
            let values = try platform.values(of: "/arguments/seq")
            #expect(values.filter { $0.source == "A1" }.map(\.value) == (1...22).map(String.init))
            #expect(values.filter { $0.source == "A2" }.map(\.value) == (1...21).map(String.init))
            #expect(values.count == 43)
            #expect(try platform.received["violationCount"].int == 0)
            let page = try gateway.client().get("/v1/messages?upstream=streamone&limit=100").json["messages"].array
            #expect(page.count >= 40 && page.allSatisfy { $0["via"].string == "sdk" })
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }
    }
}
