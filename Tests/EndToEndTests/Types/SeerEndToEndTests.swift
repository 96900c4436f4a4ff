import Foundation
import PosternConformance
import PosternSimulatorKit
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// Seer over real sockets: tokens that expire all the time, an upstream that fails, answers that are lost.
    @Suite struct Seer {
        private func settings(_ seer: HostedSimulator, _ more: [String: Any] = [:]) -> Settings {
            var settings = Settings()
            settings.delivery = ["retryBaseSeconds": 0.01, "retryMaxSeconds": 0.05, "maxInFlight": 8]
            var upstream: [String: Any] = [
                "baseURL": seer.url, "clientId": "gw-client", "clientSecret": "gw:secret/1", "apiKey": "KEY123",
            ]
            upstream.merge(more) { $1 }
            settings.upstreams = ["seer": upstream]
            return settings
        }

        private func payload(_ kind: String, _ number: Int) -> String {
            kind == "tincan"
                ? #"{"actor":{"mbox":"m"},"verb":{"id":"v"},"object":{"id":"o","definition":{"type":"t"}},"context":{"extensions":{"appId":"a"}},"seq":\#(number)}"#
                : #"{"actor":{"id":"a"},"verb":"v","object":{"id":"o","objectType":"t"},"generator":{"appId":"g"},"seq":\#(number)}"#
        }

        @Test(.timeLimit(.minutes(10)))
        func everythingArrives_inOrder_whileTokensExpireAndTheUpstreamFails() async throws {
            let bundle = 4096
            let seer = try HostedSimulator("seer", faults: "status=503:0.1,reset-after:0.05")
            try seer.control(
                #"{"clientId":"gw-client","clientSecret":"gw:secret/1","apiKey":"KEY123","tokenLifeSeconds":1}"#)
            let gateway = try await GatewayDirectory(settings(seer, ["bundleSizeBytes": bundle])).start()
            let counts = ["tincan": 1800, "activity": 1800, "instrumentation": 400]
            let client = try gateway.client()
            // Mixed: a request holds some of each kind. Each comes when the token for the one before has expired.
            for part in 0..<4 {
                var lines: [String] = []
                for index in 0..<450 {
                    for (kind, count) in counts where index < count / 4 {
                        let number = part * (count / 4) + index
                        lines.append(#"{"upstream":"seer","kind":"\#(kind)","payload":\#(payload(kind, number))}"#)
                    }
                }
                let answer = try client.post(
                    "/v1/messages", lines.joined(separator: "\n"),
                    headers: [("Content-Type", "application/x-ndjson")])
                #expect(answer.status == 202)
                // Not before: a token that is being fetched would serve the next part, too.
                try gateway.waitUntilDelivered(to: "seer")
                let isExpired = try eventually { try seer.control()["validTokens"].int == 0 }
                #expect(isExpired, "part \(part)")
            }

            let arrived = try seer.values(of: "/seq")
            for (kind, path) in [
                ("tincan", "/tincan"), ("activity", "/sactivity"), ("instrumentation", "/sinstrumentation"),
            ] {
                let numbers = arrived.filter { $0.source == path }.compactMap { Int($0.value) }
                var seen: Set<Int> = []
                let first = numbers.filter { seen.insert($0).inserted }
                #expect(first == Array(0..<counts[kind]!), "\(kind): \(first.count) arrived, or not in order")
            }
            let received = try seer.received
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            let lost = try #require(received["answers"]["reset-after"].int)
            #expect(try #require(received["duplicates"].int) <= lost * (bundle / payload("activity", 0).utf8.count))
            let control = try seer.control()
            #expect(control["reportsWithoutAuthorization"].int == 0)
            #expect(control["overlappingTokenRequests"].int == 0)
            #expect(try #require(control["tokenRequests"].int) >= 4)
            let upstream = try gateway.upstream("seer")
            #expect(upstream["health"].string == "up")
            try await gateway.stop()
        }

        private func verified(_ seer: HostedSimulator) throws -> HostedSimulator {
            try seer.control(#"{"clientId":"gw-client","clientSecret":"gw:secret/1","apiKey":"KEY123"}"#)
            return seer
        }

        /// Without any message.
        @Test(.timeLimit(.minutes(10)))
        func wrongSecret_isSeenAfterTheStart_andGoneAfterAReload() async throws {
            let seer = try verified(HostedSimulator("seer"))
            let directory = try GatewayDirectory(settings(seer, ["clientSecret": "wrong"]))
            let gateway = try await directory.start()
            func health(becomes health: String) throws -> Bool {
                try eventually { try gateway.upstream("seer")["health"].string == health }
            }
            #expect(try gateway.client().get("/readyz").status == 200)
            #expect(try health(becomes: "unauthorized"))
            let flush = try gateway.client().post("/v1/upstreams/seer/flush", "", headers: [("Prefer", "wait=60")])
            #expect(flush.json["sent"].int == 0 && flush.json["token"].string == "unauthorized", "\(flush.text)")

            try directory.configure(settings(seer))
            gateway.process.signal(SIGHUP)
            // The new settings are adopted before the token that they fetch is there.
            #expect(try eventually { try gateway.upstream("seer")["token"]["valid"].bool == true })
            #expect(try health(becomes: "up"))
            let control = try seer.control()
            #expect(control["tokenRequests"].int == 3 && control["tokensIssued"].int == 1, "\(control)")

            // Delivery settings and a level have nothing to do with the token.
            var slower = settings(seer)
            (slower.delivery["maxInFlight"], slower.logLevel) = (1, "debug")
            try directory.configure(slower)
            gateway.process.signal(SIGHUP)
            _ = try await gateway.process.line(of: .errors) {
                $0.contains("configuration reloaded changed=delivery.maxInFlight,log.level")
            }
            _ = try gateway.client().post("/v1/upstreams/seer/flush", "", headers: [("Prefer", "wait=60")])
            #expect(try seer.control()["tokenRequests"].int == 3)

            // Wrong credentials again: a reload reports that, too.
            try directory.configure(settings(seer, ["clientSecret": "wrong"]))
            gateway.process.signal(SIGHUP)
            #expect(try health(becomes: "unauthorized"))
            #expect(try seer.received["violationCount"].int == 0)
            let ended = try await gateway.stop()
            let lines = ended.errors.split(separator: "\n").filter { $0.contains("token fetch failed") }
            #expect(lines.map { $0.contains(" warning ") } == [true, false, true], "\(lines)")
        }

        /// The second one cannot be reached at all. Neither delays the start, or makes the gateway unready.
        @Test(.timeLimit(.minutes(10)), arguments: [true, false])
        func unreachableTokenEndpoint_isDown_andDelaysNothing(hangs: Bool) async throws {
            let seer = try verified(HostedSimulator("seer"))
            if hangs { try seer.play("hang") }
            var settings = settings(seer, hangs ? [:] : ["baseURL": "http://127.0.0.1:\(freePort())"])
            settings.delivery["requestTimeoutSeconds"] = 3600
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            #expect(try gateway.client().get("/readyz").status == 200)
            if hangs {
                try #require(try eventually { try seer.received["requests"].int == 1 })
                // Ends the request.
                seer.host.stop()
            }
            #expect(try eventually { try gateway.upstream("seer")["health"].string == "down" })
            let flush = try gateway.client().post("/v1/upstreams/seer/flush", "", headers: [("Prefer", "wait=60")])
            #expect(flush.json["token"].string == "unreachable", "\(flush.text)")
            #expect(try gateway.client().get("/readyz").status == 200)
            let next = try verified(HostedSimulator("seer"))
            try directory.configure(self.settings(next))
            gateway.process.signal(SIGHUP)
            #expect(try eventually { try gateway.upstream("seer")["health"].string == "up" })
            // Other settings end the failure before the token is there.
            #expect(try eventually { try next.control()["tokensIssued"].int == 1 })
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)))
        func verification_isLeftOut_whenItIsOff() async throws {
            let seer = try HostedSimulator("seer")
            let gateway = try await GatewayDirectory(settings(seer, ["verifyAtStart": false])).start()
            let client = try gateway.client()
            #expect(try gateway.upstream("seer")["token"]["valid"].bool == false)
            #expect(try seer.control()["tokenRequests"].int == 0)
            let flush = try client.post("/v1/upstreams/seer/flush", "", headers: [("Prefer", "wait=60")])
            #expect(flush.status == 200 && flush.json["token"].string == "ok", "\(flush.text)")
            #expect(try seer.control()["tokenRequests"].int == 1)
            try await gateway.stop()
        }

        /// What an app heard by the SDK's notifications, and read in its response objects.
        @Test(.timeLimit(.minutes(10)))
        func streamAndReceipts_haveTheSDKsWords() async throws {
            let seer = try HostedSimulator("seer")
            let gateway = try await GatewayDirectory(settings(seer, ["autoReportQueue": false])).start()
            let listener = try gateway.client()
            listener.sendRequest("GET", "/v1/stream?upstream=seer")
            #expect(try listener.answer().status == 200)
            let client = try gateway.client()
            let bodies = (1...2).map { payload("activity", $0) }.joined(separator: ",")
            let ids = try client.post("/v1/seer/activity", "[\(bodies)]").json["ids"].strings
            _ = try client.post("/v1/upstreams/seer/flush", "", headers: [("Prefer", "wait=60")])
            var text = ""
            let end = "event: flush.finished"
            while !text.contains(end) || !text.hasSuffix("\n\n"), let chunk = try listener.nextChunk() {
                text += String(decoding: chunk, as: UTF8.self)
            }
            let data = text.components(separatedBy: "\n\n").compactMap { event -> (String, JSON)? in
                let lines = event.split(separator: "\n")
                guard let name = lines.first(where: { $0.hasPrefix("event: ") }),
                    let data = lines.first(where: { $0.hasPrefix("data: ") })
                else { return nil }
                return (String(name.dropFirst(7)), JSON(Array(data.utf8.dropFirst(6))))
            }
            func sdk(_ event: String) -> JSON { data.last { $0.0 == event }?.1["sdk"] ?? JSON([]) }
            let (report, batch) = ("SeerActivityStreamReport", "SeerRequestResultForQueuedBatch")
            #expect(sdk("message.queued")["events"].strings == [report], "\(text)")
            #expect(sdk("message.queued")["queued"].bool == true)
            #expect(sdk("flush.finished")["events"].strings == ["SeerRequestReportQueue"])
            let delivered = sdk("message.delivered")
            #expect(delivered["events"].strings == [batch, report] && delivered["requestIds"].strings == ids)

            let log = try gateway.message(ids[0], include: "attempts")["attemptLog"]
            let receipt = try client.get("/v1/upstreams/seer/batches/\(log[0]["batch"].string ?? "")").json["sdk"]
            #expect(receipt["events"].strings == [batch] && receipt["requestType"].string == report)
            #expect(receipt["kind"].string == "activity" && receipt["requestIds"].strings == ids)
            #expect(receipt["success"].bool == true && receipt["queued"].bool == false)

            // The receipt of a request that Seer rejected permanently, and of one that is sent again.
            try seer.play("status=400:x1,status=503:x1")
            let refused = try client.post(
                "/v1/seer/tincan", payload("tincan", 3), headers: [("Prefer", "wait=60")])
            #expect(refused.status == 502, "\(refused.text)")
            let failed = try #require(
                client.get("/v1/messages?upstream=seer&state=failed").json["messages"][0]["id"].string)
            let attempts = try gateway.message(failed, include: "attempts")["attemptLog"]
            let rejected = try client.get("/v1/upstreams/seer/batches/\(attempts[0]["batch"].string ?? "")").json["sdk"]
            #expect(rejected["success"].bool == false && rejected["queued"].bool == false)
            #expect(rejected["error"]["code"].int == 7 && rejected["error"]["name"].string == "SeerReporterError")
            #expect(rejected["requestType"].string == "SeerTincanReport")
            let repeated = try client.post(
                "/v1/seer/tincan", payload("tincan", 4), headers: [("Prefer", "wait=60")]
            ).json["id"].string
            let tries = try gateway.message(repeated ?? "", include: "attempts")["attemptLog"]
            let again = try client.get("/v1/upstreams/seer/batches/\(tries[0]["batch"].string ?? "")").json["sdk"]
            #expect(again["success"].bool == false && again["queued"].bool == true)
            try await gateway.stop()
        }

        /// Promise 6, over the wire: numbers, escapes, order of members and white space.
        @Test(.timeLimit(.minutes(10)))
        func bytesGoOut_asTheyCameIn() async throws {
            let seer = try HostedSimulator("seer")
            let gateway = try await GatewayDirectory(settings(seer)).start()
            let odd = [
                "0.1000", "1e400", "-0", "123456789012345678901234567890", "0.95", "1e-7",
                #""\u00eb\/\ud83d\ude80ë/🚀""#,
                #"{"z":1,"a":[{"y":2,"b":3.0}] , "m":{}}"#, "null",
            ]
            let texts = odd.map { payload("activity", 1).dropLast() + ",\t\"x\" : \($0)}" }
            let client = try gateway.client()
            #expect(try client.post("/v1/seer/activity", "[\(texts.joined(separator: " , "))]").status == 202)
            try gateway.waitUntilDelivered(to: "seer")
            let received = try HTTPClient(port: seer.port).get("/received?events=true").text
            #expect(received.contains("\"texts\":[\(texts.joined(separator: ","))]"))
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)))
        func queueThatWaits_saysSo_andAFlushAnswersWithCounts() async throws {
            let seer = try HostedSimulator("seer")
            let gateway = try await GatewayDirectory(settings(seer, ["autoReportQueue": false])).start()
            let client = try gateway.client()
            let accepted = try client.post("/v1/seer/tincan", payload("tincan", 1)).json
            let id = try #require(accepted["id"].string)
            let waiting = try gateway.message(id)
            #expect(waiting["state"].string == "queued")
            #expect(waiting["waitingFor"].string == "schedule")
            let direct = try client.post("/v1/seer/tincan", payload("tincan", 2), headers: [("Prefer", "wait=60")])
            #expect(direct.status == 200)
            // A flush counts what has come to its end since it began, also if that was told before.
            #expect(try eventually { try gateway.upstream("seer")["inFlight"].int == 0 })
            let flush = try client.post("/v1/upstreams/seer/flush", "", headers: [("Prefer", "wait=60")])
            #expect(flush.status == 200)
            #expect(flush.json["delivered"].int == 1)
            #expect(flush.json["remaining"].int == 0)
            #expect(try gateway.message(id)["state"].string == "delivered")
            #expect(try seer.values(of: "/seq").map(\.value) == ["2", "1"])
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)))
        func fullQueue_dropsTheOldest_andNamesThem_orRefusesWithTheSDKsCode() async throws {
            let seer = try HostedSimulator("seer")
            let size = payload("tincan", 1).utf8.count
            for (policy, status) in [("dropOldest", 202), ("reject", 503)] {
                let gateway = try await GatewayDirectory(
                    settings(
                        seer, ["autoReportQueue": false, "queue": ["maxBytes": 2 * size, "whenFull": policy]])
                ).start()
                let client = try gateway.client()
                let first = try client.post("/v1/seer/tincan", payload("tincan", 1)).json
                // A payload of exactly the maximum size is accepted.
                #expect(try client.post("/v1/seer/tincan", payload("tincan", 2)).status == 202)
                let third = try client.post("/v1/seer/tincan", payload("tincan", 3))
                #expect(third.status == status)
                if status == 202 {
                    #expect(third.text.contains(#""evicted":["\#(try #require(first["id"].string))"]"#))
                } else {
                    #expect(third.json["seerCode"].int == 9)
                }
                try await gateway.stop()
            }
        }

        /// SIGHUP with other endpoints: a kind that has gone is refused, its messages wait; a new one is taken and
        /// sent.
        @Test(.timeLimit(.minutes(10)))
        func reload_changesKindsAndEndpoints() async throws {
            let seer = try HostedSimulator("seer")
            try seer.control(
                #"{"clientId":"gw-client","clientSecret":"gw:secret/1","apiKey":"KEY123","customPaths":["/old","/new"]}"#
            )
            let directory = try GatewayDirectory(
                settings(seer, ["endpoints": ["old": "/old"], "autoReportQueue": false]))
            let gateway = try await directory.start()
            let client = try gateway.client()
            let id = try #require(try client.post("/v1/seer/old", "{}").json["id"].string)

            try directory.configure(settings(seer, ["endpoints": ["new": "/new"]]))
            gateway.process.signal(SIGHUP)
            _ = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            // A rejected body closes its connection.
            #expect(try gateway.client().post("/v1/seer/old", "{}").status == 404)
            #expect(try client.post("/v1/seer/new", #"{"seq":1}"#).status == 202)
            let table = try client.get("/v1/seer/endpoints").text
            #expect(table.contains(#""/new""#) && !table.contains(#""/old""#))
            #expect(try eventually { try seer.values(of: "/seq").map(\.source) == ["/new"] })
            #expect(try gateway.message(id)["state"].string == "queued")

            try directory.configure(settings(seer, ["endpoints": ["old": "/old"]]))
            gateway.process.signal(SIGHUP)
            try gateway.waitForState("delivered", of: id)
            try await gateway.stop()
        }
    }
}
