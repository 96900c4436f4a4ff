import Foundation
import PosternAPI
import PosternConformance
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// Curio's SDKs with the gateway as their server, over real sockets.
    @Suite struct CurioSDKs {
        private static let form = ("Content-Type", "application/x-www-form-urlencoded")
        private static let path = "/sdk/curio"

        private static func settings(_ url: String, _ more: [String: Any] = [:], sdk: [String: Any] = [:]) -> Settings {
            var settings = Settings()
            settings.delivery = ["retryBaseSeconds": 0.02, "retryMaxSeconds": 0.1]
            let curio: [String: Any] = [
                "serverURL": url + "/api/v2", "apiKey": "key", "trackingCode": "GW7DEM01",
                "sdk": ["enabled": true].merging(sdk) { $1 },
            ]
            settings.upstreams = [
                "curio": curio.merging(more) { $1 },
                "other": ["type": "curio", "serverURL": url, "apiKey": "other", "trackingCode": "OTHER"],
            ]
            return settings
        }

        private static func platform(_ faults: String = "") throws -> HostedSimulator {
            let platform = try HostedSimulator("curio", faults: faults)
            try platform.control(#"{"apiKey":"key","trackingCode":"GW7DEM01"}"#)
            return platform
        }

        /// An app of a visitor, with one session.
        private struct App {
            let number: Int
            var port: UInt16
            var trackingCode: String? = "GW7DEM01"
            var apiKey = "key"

            var visitor: String { "visitor-\(number)" }
            var session: String {
                "6d551000-a21d-11e4-8123-" + String(String(number + 0x1000_0000_0000, radix: 16).suffix(12))
            }

            func body(_ members: [String: String] = [:]) -> String {
                var all = ["visitorCode": visitor, "sessionCode": session, "sessionTimeout": "30"]
                all["trackingCode"] = trackingCode
                return all.merging(members) { $1 }.map { name, value in
                    name + "=" + (value.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? "")
                }.joined(separator: "&")
            }

            @discardableResult func send(_ call: String, _ members: [String: String] = [:]) throws -> HTTPClient.Answer
            {
                try HTTPClient(port: port).post("\(path)/\(call)", body(members), headers: [form])
            }

            private static let device =
                "screenWidth=750 screenHeight=1334 lang=tr-TR simOperator= simOpCountry= networkOpName= connType=wifi brand=Apple model=iPhone osType=iOS osVer=9 curioSdkVer=1.2.4 appVer=2"

            var device: [String: String] {
                var device = ["apiKey": apiKey]
                for pair in Self.device.split(separator: " ") {
                    let parts = pair.split(separator: "=", omittingEmptySubsequences: false)
                    device[String(parts[0])] = String(parts[1])
                }
                return device
            }

            func begin() throws -> HTTPClient.Answer { try send("visit/create", device) }
        }

        private func items(_ platform: HostedSimulator) throws -> [JSON] {
            try HTTPClient(port: platform.port).get("/received?events=true").json["texts"].array
        }

        private func count(_ call: String, _ outcome: String, _ gateway: GatewayProcess) throws -> Int? {
            let name = "postern_sdk_requests_total{upstream=\"curio\",call=\"\(call)\",outcome=\"\(outcome)\"} "
            let line = try gateway.client().get("/metrics").text.split(separator: "\n").first { $0.hasPrefix(name) }
            return line.flatMap { Int($0.dropFirst(name.count)) }
        }

        // MARK: Who is let in

        private enum Caller: CaseIterable { case absent, wrong, ofAnotherUpstream, right }

        /// The answer does not depend on the platform, nor the check on the keys of the gateway.
        @Test(.timeLimit(.minutes(10)), arguments: [true, false], [true, false])
        func everyCall_isCheckedAsItsPlatformDoes_whetherOrNotThatIsThere(isUp: Bool, hasKeys: Bool) async throws {
            let platform = try Self.platform()
            var settings = Self.settings(isUp ? platform.url : "http://127.0.0.1:9")
            if hasKeys {
                let digest = KeyText.digest(of: "postern_key").map { String(format: "%02x", $0) }.joined()
                settings.auth = [
                    "keys": [["name": "k", "sha256": digest, "scopes": ["write"]]], "openMetrics": true,
                ]
            }
            let gateway = try await GatewayDirectory(settings).start()
            for caller in Caller.allCases {
                var app = App(number: 1, port: gateway.port)
                switch caller {
                case .absent: app.trackingCode = nil
                case .wrong: app.trackingCode = "GW7DEM02"
                case .ofAnotherUpstream: (app.trackingCode, app.apiKey) = ("OTHER", "other")
                case .right: break
                }
                let status = caller == .right ? 200 : 412
                #expect(try app.begin().status == status)
                for (call, members) in [
                    ("hit/create", ["pageTitle": "t", "path": "p"]), ("batch/create", ["data": "[]"]),
                    ("offline/create", app.device.merging(["data": "[]"]) { $1 }), ("visitor/unregister", [:]),
                    ("visit/end", [:]),
                ] {
                    let answer = try app.send(call, members)
                    #expect(answer.status == status && answer.body.isEmpty == (caller != .right), "\(caller) \(call)")
                    #expect(answer.header("Content-Type") == (caller == .right ? "application/json" : nil))
                }
            }
            var app = App(number: 2, port: gateway.port)
            app.apiKey = "other"
            #expect(try app.begin().status == 412)
            #expect(try app.send("hit/create").status == 401)
            #expect(try app.send("nowhere").status == 404)
            #expect(try gateway.client().get("\(Self.path)/hit/create").header("Allow") == "POST")
            #expect(try count("hit_create", "unauthorized", gateway) == 4)
            try await gateway.stop()
        }

        // MARK: What was told is kept

        /// The session, the code, and what it closes outlive a kill.
        @Test(.timeLimit(.minutes(10))) func code_closesItsScreen_afterAKill_andTheSessionIsStillLive() async throws {
            let platform = try Self.platform()
            let directory = try GatewayDirectory(Self.settings(platform.url))
            var gateway = try await directory.start()
            var app = App(number: 1, port: gateway.port)
            #expect(try app.begin().text == "{}")
            let answer = try app.send("hit/create", ["pageTitle": "t", "path": "p"])
            let code = try #require(answer.json["hitCode"].string)
            #expect(answer.text == #"{"hitCode":"\#(code)"}"#)
            try gateway.waitUntilDelivered(to: "curio")
            for _ in 0..<2 {
                try await gateway.kill()
                gateway = try await directory.start()
                app.port = gateway.port
                let end = try app.send("hit/end", ["pageTitle": "", "path": "", "hitCode": code])
                #expect(end.status == 200 && end.text == "{}")
            }
            #expect(try count("hit_end", "repeated", gateway) == 1)
            #expect(try app.begin().status == 200)
            #expect(try count("visit_create", "repeated", gateway) == 1)
            try gateway.waitUntilDelivered(to: "curio")
            try await gateway.stop()
            let screens = try items(platform).filter { $0["pageTitle"].string == "t" }
            #expect(screens.compactMap { $0["action"].string } == ["screen_start", "screen_end"])
            #expect(screens[0]["code"].string == screens[1]["code"].string && screens[0]["code"].string != code)
            #expect(try platform.received["violationCount"].int == 0)
            #expect(try directory.audit().isBalanced)
        }

        @Test(.timeLimit(.minutes(10)))
        func whatAnSDKWasTold_arrivesInOrder_afterBothPlatformAndGatewayWereGone() async throws {
            let platform = try Self.platform("status=503")
            let directory = try GatewayDirectory(Self.settings(platform.url))
            var gateway = try await directory.start()
            var marks: [Int: [String]] = [:]
            for round in 0..<3 {
                for number in 0..<5 {
                    let app = App(number: number, port: gateway.port)
                    if round == 0 { #expect(try app.begin().status == 200) }
                    for index in 0..<3 {
                        let mark = "\(round).\(index)"
                        let start = try app.send("hit/create", ["pageTitle": mark, "path": "p"])
                        let code = try #require(start.json["hitCode"].string)
                        #expect(try app.send("hit/end", ["hitCode": code]).status == 200)
                        marks[number, default: []] += ["screen_start \(mark)", "screen_end \(mark)"]
                    }
                    // The answer is lost, and the batch comes again.
                    let common =
                        #""timestamp":\#(1_500_000_000_000 + round),"hitCode":"\#(UUID().uuidString.lowercased())""#
                    let data = #"[{"type":3,\#(common)},{"type":2,"pageTitle":"b\#(round)","path":"p",\#(common)}]"#
                    for _ in 0..<2 { #expect(try app.send("batch/create", ["data": data]).text == "{}") }
                    marks[number, default: []] += ["screen_start b\(round)", "screen_end b\(round)"]
                }
                try await gateway.kill()
                gateway = try await directory.start()
            }
            for number in 0..<5 { #expect(try App(number: number, port: gateway.port).send("visit/end").status == 200) }
            #expect(try count("batch", "repeated", gateway) == 0)
            try platform.play("")
            try gateway.waitUntilDelivered(to: "curio")
            #expect(try gateway.client().get("/v1/messages?state=failed").json["messages"].array.isEmpty)
            var arrived: [String: [String]] = [:]
            for item in try items(platform) {
                guard let title = item["pageTitle"].string else { continue }
                arrived[item["visitor"].string ?? "", default: []].append("\(item["action"].string ?? "") \(title)")
            }
            for (number, expected) in marks { #expect(arrived["visitor-\(number)"] == expected, "\(number)") }
            let received = try platform.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }

        // MARK: No room

        @Test(.timeLimit(.minutes(10))) func requestWithoutRoom_isHeld_untilThereIs_orItsConnectionIsClosed()
            async throws
        {
            let more: [String: Any] = ["maxCachedActivityCount": 2]
            var settings = Self.settings("http://127.0.0.1:9", more, sdk: ["holdSeconds": 1])
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let app = App(number: 1, port: gateway.port)
            #expect(try app.begin().status == 200)
            #expect(try app.send("visitor/unregister").status == 200)
            #expect(throws: (any Error).self) { try app.send("visitor/unregister") }
            #expect(try count("unregister", "no_room", gateway) == 1)
            // What fails a check is answered at once.
            #expect(try app.send("hit/create", ["sessionCode": "x"]).status == 401)
            settings = Self.settings("http://127.0.0.1:9", more, sdk: ["holdSeconds": 300])
            try directory.configure(settings)
            gateway.process.signal(SIGHUP)
            _ = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            let waiting = try gateway.client()
            waiting.sendRequest(
                "POST", "\(Self.path)/visit/end", Array(app.body().utf8), headers: [Self.form])
            let list = try gateway.client().get("/v1/messages?upstream=curio&state=queued").json["messages"].array
            let last = try #require(list.compactMap { $0["id"].string }.max())
            #expect(try gateway.client().ask("DELETE", "/v1/messages/\(last)").status == 200)
            #expect(try waiting.answer().status == 200)
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }

        // MARK: Queries

        @Test(.timeLimit(.minutes(10))) func queries_areAskedUpstream_inTheSessionThatTheUpstreamKnows() async throws {
            let platform = try Self.platform()
            let gateway = try await GatewayDirectory(Self.settings(platform.url)).start()
            let app = App(number: 1, port: gateway.port)
            let (tags, history) = ("visitor/getVisitorProfileTags", "pushHistory/get/0/5")
            #expect(try app.send(tags).status == 401)
            #expect(try app.begin().status == 200)
            #expect(try app.send("visitor/setUserTag", ["userTags": #"{"AGE":"27"}"#]).status == 200)
            try gateway.waitUntilDelivered(to: "curio")
            let answer = try app.send(tags)
            #expect(answer.status == 200 && answer.text == #"{"AGE":"27"}"#)
            #expect(answer.header("Content-Type") == "application/json")
            #expect(try app.send(history, ["pushToken": "t"]).text == "{}")
            #expect(try app.send("pushHistory/get/a/5").status == 404)
            try platform.control(#"{"killSessions":"all"}"#)
            let dead = try app.send(tags)
            #expect(dead.status == 401 && dead.body.isEmpty)
            try platform.play("status=500")
            let down = try app.send(tags)
            #expect(down.status == 503 && down.body.isEmpty)
            let next = App(number: 2, port: gateway.port)
            #expect(try next.begin().status == 200)
            #expect(try next.send(tags).status == 503)
            #expect(try count("tags_get", "proxied", gateway) == 2)
            try await gateway.stop()
        }

        // MARK: Large ones

        /// As Android sends its whole cache. It is above the visitor's cap, and comes twice.
        @Test(.timeLimit(.minutes(10))) func fiftyThousandRecords_areStoredInOneTransaction_once() async throws {
            let directory = try GatewayDirectory(
                Self.settings("http://127.0.0.1:9", sdk: ["maxBodyBytes": 64 << 20, "holdSeconds": 0]))
            let gateway = try await directory.start()
            let app = App(number: 1, port: gateway.port)
            let records = (0..<50_000).reversed().map {
                #"{"type":4,"timestamp":\#(1_500_000_000_000 + $0),"sessionCode":"\#(app.session)","eventKey":"k","eventValue":"","eventCode":"e\#($0)"}"#
            }
            let members = app.device.merging(["data": "[\(records.joined(separator: ","))]"]) { $1 }
            for outcome in ["accepted", "repeated"] {
                #expect(try app.send("offline/create", members).text == "{}")
                #expect(try count("offline", outcome, gateway) == 1)
                #expect(try gateway.upstream("curio")["queued"].int == 50_000)
            }
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }
    }
}
