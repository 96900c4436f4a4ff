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
    }
}
