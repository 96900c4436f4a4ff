import Foundation
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

extension EndToEnd {
    /// AppServices over real sockets: tokens that die and are renewed, an upstream that fails, answers that are lost,
    /// and a gateway that is killed. What the platform holds in the end is what the users wanted.
    @Suite struct AppServices {
        private struct User {
            let number: Int
            var id: String { "ffffffff" + Self.hex(number, 24) }
            var first: String { "PiTok-first.\(number)" }
            var second: String { "PiTok-second.\(number)" }
            var losesToken: Bool { number.isMultiple(of: 2) }

            func device(_ index: Int) -> String { "c0ffee11-2233-4455-8677-" + Self.hex(number * 3 + index, 12) }
            func push(_ index: Int, _ version: Int = 1) -> String { Self.hex((number * 3 + index) * 10 + version, 64) }

            private static func hex(_ number: Int, _ digits: Int) -> String {
                let text = String(number, radix: 16)
                return String(repeating: "0", count: digits - text.count) + text
            }

            private func step(_ kind: String, _ members: String, token: String) -> PatientWriter.Step {
                .init(
                    path: "/v1/appservices/\(kind)",
                    body: #"{"userId":"\#(id)",\#(members),"auth":{"token":"\#(token)"}}"#)
            }
            private func on(_ index: Int) -> String { #""deviceId":"\#(device(index))""# }

            /// What the user wants while the first token is good.
            var before: [PatientWriter.Step] {
                (0..<3).map {
                    let preferences = $0 == 0 ? #","preferences":{"whitelist":{"a":[]}}"# : ""
                    return step(
                        "register", #"\#(on($0)),"deviceToken":"\#(push($0))"\#(preferences)"#, token: first)
                } + [
                    step("group_add", #""group":"g\#(number % 7)""#, token: first),
                    step("group_add", #""group":"all""#, token: first),
                    step("preferences", #"\#(on(1)),"preferences":{"blacklist":{"b":["x"]}}"#, token: first),
                ]
            }

            /// What the user posts after that. A quarter of the users post the new token alone, a quarter with messages.
            var after: [PatientWriter.Step] {
                let token = number % 4 == 2 ? second : first
                var steps: [PatientWriter.Step] = []
                if number.isMultiple(of: 3) { steps.append(step("group_remove", #""group":"all""#, token: token)) }
                steps.append(
                    losesToken
                        ? step("register", #"\#(on(2)),"deviceToken":"\#(push(2, 2))""#, token: token)
                        : step("unregister", on(2), token: token))
                steps.append(step("preferences", #"\#(on(0)),"preferences":{"whitelist":{"c":[]}}"#, token: token))
                if number % 4 == 0 {
                    steps.append(
                        .init(
                            method: "PUT", path: "/v1/appservices/users/\(id)/token",
                            body: #"{"token":"\#(second)"}"#))
                }
                return steps
            }
        }

        private func settings(_ appservices: HostedSimulator) -> Settings {
            var settings = Settings()
            settings.delivery = ["retryBaseSeconds": 0.02, "retryMaxSeconds": 0.1, "maxInFlight": Self.maxInFlight]
            settings.upstreams = [
                "appservices": [
                    "baseURL": appservices.url + "/appservices", "organization": "acme", "application": "campus",
                    "apiKey": "KEY",
                ]
            ]
            return settings
        }

        private static let maxInFlight = 16

        @Test(.timeLimit(.minutes(10)))
        func platformEndsAsTheUsersWanted_whileTokensDie_andTheGatewayIsKilled() async throws {
            let platform = try HostedSimulator("appservices", faults: "status=503:0.1,reset-after:0.05")
            try platform.control(#"{"organization":"acme","application":"campus","apiKey":"KEY","bindTokens":true}"#)
            let directory = try GatewayDirectory(settings(platform))
            var gateway = try await directory.start()
            let users = (0..<60).map { User(number: $0) }
            func run(_ script: @escaping (User) -> [PatientWriter.Step], during: ([PatientWriter]) async throws -> Void)
                async throws
            {
                let writers = (0..<8).map { writer in
                    PatientWriter(users.filter { $0.number % 8 == writer }.map(script), port: gateway.port)
                }
                let threads = try writers.map { writer in try DedicatedThread(name: "e2e-apps") { writer.run() } }
                try await during(writers)
                threads.forEach { $0.join() }
                #expect(writers.flatMap { $0.problems.withLock { $0 } } == [])
            }
            try await run({ $0.before }) { writers in
                #expect(eventually { posted(writers) >= 180 })
                // Half of the users' tokens expire while their messages are queued and in flight.
                let dead = users.filter(\.losesToken).map { "\"\($0.first)\"" }.joined(separator: ",")
                try platform.control(#"{"invalidateToken":[\#(dead)]}"#)
            }
            try await run({ $0.after }) { writers in
                #expect(eventually { posted(writers) >= 80 })
                try await gateway.kill()
                // Tokens that are needed lie in the log of the database now.
                try noTokenIsLeft(at: directory)
                gateway = try await directory.start()
                writers.forEach { $0.turn(to: gateway.port) }
            }
            try gateway.waitUntilDelivered(to: "appservices")
            #expect(try gateway.client().get("/v1/messages?state=failed").json["messages"].array.isEmpty)

            let state = try HTTPClient(port: platform.port).get("/control/state").json
            let expected = try expected(users)
            let items = try HTTPClient(port: platform.port).get("/received?events=true").json["texts"].array
                .map(\.description)
            for part in ["connections", "crashLogs", "devices", "groups", "metrics", "users"] {
                for key in state[part].keys.union(expected[part].keys).sorted() {
                    let (held, wanted) = (state[part][key].description, expected[part][key].description)
                    guard held != wanted else { continue }
                    let requests = items.filter { $0.contains(key) }.joined(separator: "\n")
                    Issue.record("\(part) \(key): \(held) instead of \(wanted)\n\(requests)")
                }
            }
            #expect(state.description == expected.description)
            let received = try platform.received
            // What a gateway was told just before it was killed, it may not have written down.
            let forgotten = received["violations"].array.filter {
                $0.string?.hasSuffix("a refused token is sent again") == true
            }
            #expect(forgotten.count <= Self.maxInFlight)
            #expect(received["violationCount"].int == forgotten.count, "\(received["violations"])")
            for path in ["/metrics", "/v1/messages?include=payload,attempts&limit=1000", "/v1/upstreams/appservices"] {
                #expect(try !gateway.client().get(path).text.contains("PiTok-"), "a token in \(path)")
            }
            let ended = try await gateway.stop()
            #expect(!ended.errors.isEmpty && !ended.errors.contains("PiTok-"), "a token in what was logged")
            #expect(try directory.audit().isBalanced)
            try noTokenIsLeft(at: directory)
        }

        /// Two users take turns on a device while the platform is away, and the gateway is killed in between: the platform
        /// ends as the one that was always there.
        @Test(.timeLimit(.minutes(5)))
        func twoUsersOnADevice_endAsIfThePlatformHadAlwaysBeenThere() async throws {
            let platform = try HostedSimulator("appservices")
            let device = "c0ffee11-2233-4455-8677-8899aabbccdd"
            func push(_ user: String) -> String { String(repeating: user == "ann" ? "a" : "b", count: 64) }
            func item(_ kind: String, _ members: String, of user: String) -> PatientWriter.Step {
                .init(
                    path: "/v1/appservices/\(kind)", body: #"{\#(members),"auth":{"token":"PiTok-\#(user)"}}"#)
            }
            func login(_ user: String) -> [PatientWriter.Step] {
                let on = #""deviceId":"\#(device)""#
                return [
                    item("device", #"\#(on),"deviceToken":"\#(push(user))","notifier":"apple""#, of: user),
                    item("user", #""userId":"\#(user)""#, of: user),
                    item("connect", #""userId":"\#(user)",\#(on)"#, of: user),
                    item("preferences", #""userId":null,\#(on),"preferences":{"whitelist":{"\#(user)":[]}}"#, of: user),
                    item("group_add", #""userId":"\#(user)","group":"all""#, of: user),
                ]
            }
            func logout(_ user: String) -> [PatientWriter.Step] {
                let on = #""deviceId":"\#(device)""#
                return [
                    item("disconnect", #""userId":"\#(user)",\#(on)"#, of: user),
                    item("device_unregister", #"\#(on),"notifier":"apple""#, of: user),
                ]
            }
            let directory = try GatewayDirectory(settings(platform))
            var gateway = try await directory.start()
            _ = try gateway.client().post("/v1/upstreams/appservices/pause")
            for (index, steps) in [login("ann"), logout("ann"), login("bob"), logout("bob"), login("ann")].enumerated()
            {
                for step in steps {
                    #expect(try gateway.client().post(step.path, step.body).status == 202, "\(step.path)")
                }
                guard index == 2 else { continue }
                try await gateway.kill()
                gateway = try await directory.start()
            }
            _ = try gateway.client().post("/v1/upstreams/appservices/resume")
            try gateway.waitUntilDelivered(to: "appservices")
            #expect(try gateway.client().get("/v1/messages?state=failed").json["messages"].array.isEmpty)
            let state = try HTTPClient(port: platform.port).get("/control/state").json
            #expect(state["connections"][device].array.map(\.string) == ["ann"])
            #expect(state["devices"][device]["apple.notifier.id"].string == push("ann"))
            #expect(state["devices"][device]["mobileplatform"].description.contains("ann"))
            #expect(state["groups"]["all"].array.compactMap(\.string) == ["ann", "bob"])
            #expect(state["users"].array.compactMap(\.string) == ["ann", "bob"])
            let received = try platform.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            _ = try await gateway.stop()
            #expect(try directory.audit().isBalanced)
            try noTokenIsLeft(at: directory)
        }

        private func posted(_ writers: [PatientWriter]) -> Int {
            writers.reduce(0) { $0 + $1.posted.load(ordering: .relaxed) }
        }

        private func expected(_ users: [User]) throws -> JSON {
            var devices: [String: Any] = [:]
            var connections: [String: [String]] = [:]
            var groups: [String: [String]] = [:]
            for user in users {
                for index in 0..<3 {
                    let isGone = index == 2 && !user.losesToken
                    let push = isGone ? "" : user.push(index, index == 2 ? 2 : 1)
                    var device: [String: Any] = ["apple.notifier.id": push]
                    if index == 0 { device["mobileplatform"] = Self.preferences(["c": []], [:]) }
                    if index == 1 { device["mobileplatform"] = Self.preferences([:], ["b": ["x"]]) }
                    devices[user.device(index)] = device
                    if !isGone { connections[user.device(index)] = [user.id] }
                }
                groups["g\(user.number % 7)", default: []].append(user.id)
                if !user.number.isMultiple(of: 3) { groups["all", default: []].append(user.id) }
            }
            let state: [String: Any] = [
                "connections": connections, "crashLogs": [String](), "devices": devices, "groups": groups, "metrics": 0,
                "users": users.map(\.id),
            ]
            return JSON(Array(try JSONSerialization.data(withJSONObject: state)))
        }

        private static func preferences(_ white: [String: [String]], _ black: [String: [String]]) -> Any {
            ["preferences": ["whitelist": white, "blacklist": black]]
        }

        /// Neither the database nor its log contains a token.
        private func noTokenIsLeft(at directory: GatewayDirectory) throws {
            #expect(try directory.files(with: "PiTok-") == [])
        }
    }
}
