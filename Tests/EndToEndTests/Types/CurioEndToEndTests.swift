import Foundation
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

extension EndToEnd {
    /// Curio over real sockets: many visitors, sessions that die, an upstream that fails, answers that are lost, and a
    /// gateway that is killed.
    @Suite struct Curio {
        /// One visitor's forty actions, each with what tells it apart.
        struct Visitor {
            let name: String
            let actions: [(kind: String, members: String, mark: String)]

            init(_ number: Int) {
                let name = "visitor-\(number)"
                self.name = name
                let session =
                    "6d551000-a21d-11e4-8123-" + String(String(number + 0x1000_0000_0000, radix: 16).suffix(12))
                let now = Int64(Date().timeIntervalSince1970 * 1000)
                var played: [(kind: String, members: String, mark: String)] = []
                func add(_ kind: String, _ members: String, _ mark: String) {
                    let common =
                        #""visitorCode":"\#(name)","sessionCode":"\#(session)","timestamp":\#(now + Int64(played.count))"#
                    played.append((kind, "{\(common)\(members.isEmpty ? "" : ",")\(members)}", mark))
                }
                add("session_start", Self.device, "session_start")
                for screen in 0..<9 {
                    // Some have a code of the caller's.
                    let code = "6f9619ff-8b86-4d01-b42d-" + String(0x1000_0000_0000 + number * 16 + screen, radix: 16)
                    let hasCode = screen % 3 == 2
                    let name = hasCode ? #""hitCode":"\#(code)""# : #""screenClass":"c""#
                    let (event, eventCode) = (
                        #""eventKey":"k\#(screen)","eventValue":"1""#, #""eventCode":"e\#(code.dropFirst())""#
                    )
                    add("screen_start", #"\#(name),"pageTitle":"t\#(screen)","path":"p""#, "screen_start t\(screen)")
                    add("event", hasCode ? "\(event),\(eventCode)" : event, "event k\(screen)")
                    add(
                        "event_end", #"\#(hasCode ? eventCode : event),"eventDuration":5"#, "event_end k\(screen)")
                    add("screen_end", name, "screen_end t\(screen)")
                }
                add("push_token", #""pushToken":"abc""#, "push_token")
                add("user_tags", #""userTags":{"AGE":"27"}"#, "user_tags")
                add("session_end", "", "session_end")
                actions = played
            }

            private static let device = #"""
                "screenWidth":750,"screenHeight":1334,"lang":"tr-TR","simOperator":"","simOpCountry":"","networkOpName":"","connType":"wifi","brand":"Apple","model":"iPhone","osType":"iOS","osVer":"9","curioSdkVer":"1.2.4","appVer":"2"
                """#
        }

        private func settings(_ curio: HostedSimulator) -> Settings {
            var settings = Settings()
            settings.delivery = ["retryBaseSeconds": 0.02, "retryMaxSeconds": 0.1, "maxInFlight": 16]
            settings.upstreams = [
                "curio": ["serverURL": curio.url + "/api/v2", "apiKey": "key", "trackingCode": "GW7DEM01"]
            ]
            return settings
        }

        @Test(.timeLimit(.minutes(10)))
        func everyActionArrives_inOrder_withTheRightCodes_whileSessionsDieAndTheGatewayIsKilled() async throws {
            let curio = try HostedSimulator("curio", faults: "status=503:0.1,reset-after:0.05")
            try curio.control(#"{"apiKey":"key","trackingCode":"GW7DEM01","killSessionRate":0.02,"codeForm":"mixed"}"#)
            let directory = try GatewayDirectory(settings(curio))
            var gateway = try await directory.start()
            let visitors = (0..<100).map { Visitor($0) }
            let writers = (0..<16).map { writer in
                PatientWriter(
                    visitors.enumerated().filter { $0.offset % 16 == writer }.map { _, visitor in
                        visitor.actions.map { .init(path: "/v1/curio/\($0.kind)", body: $0.members) }
                    }, port: gateway.port)
            }
            let threads = try writers.map { writer in try DedicatedThread(name: "e2e-curio") { writer.run() } }
            func posted() -> Int { writers.reduce(0) { $0 + $1.posted.load(ordering: .relaxed) } }
            #expect(eventually(every: .milliseconds(5)) { posted() >= 2000 })
            try await gateway.kill()
            gateway = try await directory.start()
            writers.forEach { $0.turn(to: gateway.port) }
            threads.forEach { $0.join() }
            #expect(writers.flatMap { $0.problems.withLock { $0 } } == [])
            try gateway.waitUntilDelivered(to: "curio")
            let upstream = try gateway.upstream("curio")
            #expect(upstream["health"].string == "up", "\(upstream)")
            #expect(try gateway.client().get("/v1/messages?state=failed").json["messages"].array.isEmpty)
            try await gateway.stop()

            var arrived: [String: [String]] = [:]
            let items = try HTTPClient(port: curio.port).get("/received?events=true").json["texts"].array
            for item in items {
                let text = item["pageTitle"].string ?? item["eventKey"].string
                let action = item["action"].string ?? ""
                arrived[item["visitor"].string ?? "", default: []].append(text.map { "\(action) \($0)" } ?? action)
            }
            for visitor in visitors {
                var seen: Set<String> = []
                let first = (arrived[visitor.name] ?? []).filter { seen.insert($0).inserted }
                var expected = visitor.actions.map(\.mark)
                // The end of a session that has already expired does not count.
                if first.last != "session_end" { expected.removeLast() }
                #expect(first == expected, "\(visitor.name)")
            }
            let received = try curio.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            #expect(try curio.control()["recreations"].int ?? 0 > 0)
            #expect(try directory.audit().isBalanced)
        }

        /// The code of the simulator's, the caller's, and what is closed already outlive a kill.
        @Test(.timeLimit(.minutes(10)))
        func screenWithACode_isClosedOnce_afterKills() async throws {
            let curio = try HostedSimulator("curio")
            let directory = try GatewayDirectory(settings(curio))
            var gateway = try await directory.start()
            let code = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"
            func post(_ kind: String, _ members: String) throws -> HTTPClient.Answer {
                try gateway.client().post("/v1/curio/\(kind)", members)
            }
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            let common =
                #"{"visitorCode":"visitor-1","sessionCode":"6d551000-a21d-11e4-8123-100000000001","timestamp":\#(now)"#
            #expect(try post("session_start", Visitor(1).actions[0].members).status == 202)
            let start = #"\#(common),"hitCode":"\#(code)","pageTitle":"t","path":"p"}"#
            #expect(try post("screen_start", start).status == 202)
            try gateway.waitUntilDelivered(to: "curio")
            try await gateway.kill()
            gateway = try await directory.start()
            #expect(try post("screen_start", start).status == 409)
            let end = #"\#(common),"hitCode":"\#(code)"}"#
            let first = try post("screen_end", end)
            #expect(first.status == 202 && first.header("Idempotent-Replay") == nil)
            try await gateway.kill()
            gateway = try await directory.start()
            let second = try post("screen_end", end)
            #expect(second.status == 202 && second.json["id"].string == first.json["id"].string)
            #expect(second.header("Idempotent-Replay") == "true")
            // A repeat of what is delivered waits for nothing.
            try gateway.waitUntilDelivered(to: "curio")
            let awaited = try gateway.client().post("/v1/curio/screen_end", end, headers: [("Prefer", "wait=60")])
            #expect(awaited.status == 200 && awaited.json["id"].string == first.json["id"].string)
            try await gateway.stop()
            let items = try HTTPClient(port: curio.port).get("/received?events=true").json["texts"].array
            let screens = items.filter { $0["pageTitle"].string == "t" }
            #expect(screens.compactMap { $0["action"].string } == ["screen_start", "screen_end"])
            #expect(screens[0]["code"].string == screens[1]["code"].string && screens[0]["code"].string != code)
            #expect(try curio.received["violationCount"].int == 0)
            #expect(try directory.audit().isBalanced)
        }

        @Test(.timeLimit(.minutes(10)))
        func actionOfAnUnknownSession_isRefused_withWhatToSendFirst() async throws {
            let curio = try HostedSimulator("curio")
            let gateway = try await GatewayDirectory(settings(curio)).start()
            let client = try gateway.client()
            let visitor = Visitor(1)
            let refused = try client.post("/v1/curio/event", visitor.actions[2].members)
            #expect(refused.status == 409)
            #expect(refused.json["type"].string == "urn:postern:problem:unknown-session")
            #expect(refused.json["detail"].string?.contains("session_start") == true)
            #expect(try client.post("/v1/curio/session_start", visitor.actions[0].members).status == 202)
            #expect(try client.post("/v1/curio/screen_start", visitor.actions[1].members).status == 202)
            let session = try client.get("/v1/curio/sessions/6d551000-a21d-11e4-8123-100000000001").json
            #expect(session["visitorCode"].string == "visitor-1")
            #expect(session["open"].array.count == 1)
            #expect(try client.get("/v1/curio/sessions/none").status == 404)
            try await gateway.stop()
        }
    }
}
