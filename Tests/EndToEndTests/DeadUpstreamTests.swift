import Glibc
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// Promise 4: a dead upstream does not slow down the others.
    @Suite(.enabled(if: Timing.isMeasured)) struct DeadUpstreamTiming {
        private func median(_ times: [Duration]) -> Duration { times.sorted()[times.count / 2] }

        @Test func latencyOfTheAPI_doesNotDependOnTheUpstream() async throws {
            let live = try HostedSimulator()
            let hanging = try HostedSimulator(faults: "hang")
            let urls = [live.url, "http://127.0.0.1:\(freePort())", hanging.url]
            var gateways: [GatewayProcess] = []
            var clients: [HTTPClient] = []
            let places = try urls.map {
                try GatewayDirectory(Settings(upstreamURL: $0, server: ["port": 0, "shutdownGraceSeconds": 0]))
            }
            for directory in places {
                gateways.append(try await directory.start())
                clients.append(try #require(try gateways.last?.client()))
            }
            var times: [[Duration]] = [[], [], []]
            // Interleaved, so that whatever else the machine does falls on all three.
            for number in 0..<200 {
                for (index, client) in clients.enumerated() {
                    let start = ContinuousClock.now
                    #expect(try client.post(eventPath, event(number)).status == 202)
                    times[index].append(ContinuousClock.now - start)
                }
            }
            let medians = times.map(median)
            #expect(medians[1] < medians[0] * 3, "refused \(medians[1]), live \(medians[0])")
            #expect(medians[2] < medians[0] * 3, "hanging \(medians[2]), live \(medians[0])")
            for gateway in gateways { try await gateway.stop() }
        }
    }

    /// A stop ends the gateway, whatever hangs. Requests to the upstream go on for longer than the tests.
    @Suite struct DeadUpstream {
        private func settings(_ samsara: HostedSimulator, graceSeconds: Int) -> Settings {
            var settings = Settings(upstreamURL: samsara.url)
            settings.server["shutdownGraceSeconds"] = graceSeconds
            settings.delivery["requestTimeoutSeconds"] = 3600
            return settings
        }

        @Test(.timeLimit(.minutes(10)))
        func stop_endsWithinTheGracePeriod_whenTheUpstreamHangs_andNothingIsLost() async throws {
            let samsara = try HostedSimulator(faults: "hang")
            let directory = try GatewayDirectory(settings(samsara, graceSeconds: 1))
            let gateway = try await directory.start()
            #expect(try gateway.client().post(eventPath, events(0..<50)).status == 202)
            try #require(try eventually { try samsara.received["requests"].int ?? 0 > 0 })
            let start = ContinuousClock.now
            let ended = try await gateway.stop()
            let took = ContinuousClock.now - start
            #expect(took >= .milliseconds(900), "it did not wait for what was under way: \(took)")
            #expect(ended.errors.contains("graceSeconds=1"), "\(ended.errors)")

            try samsara.play("")
            let next = try await directory.start()
            try next.waitUntilDelivered()
            #expect(try samsara.values(of: "seq").map(\.value) == (0..<50).map(String.init))
            try await next.stop()
            #expect(try directory.audit().isBalanced)
        }

        @Test(.timeLimit(.minutes(10)))
        func secondSignal_endsTheWaiting() async throws {
            let samsara = try HostedSimulator(faults: "hang")
            let directory = try GatewayDirectory(settings(samsara, graceSeconds: 3600))
            let gateway = try await directory.start()
            #expect(try gateway.client().post(eventPath, event(1)).status == 202)
            try #require(try eventually { try samsara.received["requests"].int ?? 0 > 0 })
            gateway.process.signal(SIGTERM)
            _ = try await gateway.process.line(of: .errors) { $0.contains(" stopping ") }
            try await gateway.stop()
            let account = try #require(try directory.audit().accounts.first)
            #expect(account.ledger.queued == 1 && account.findings.isEmpty)
        }

        @Test(.timeLimit(.minutes(10)))
        func requestsInFlight_areAnsweredDuringTheStop() async throws {
            let samsara = try HostedSimulator(faults: "hang")
            let directory = try GatewayDirectory(settings(samsara, graceSeconds: 3600))
            let gateway = try await directory.start()
            let (waiting, sending) = (try gateway.client(), try gateway.client())
            waiting.sendRequest("POST", eventPath, Array(event(1).utf8), headers: [("Prefer", "wait=60")])
            let body = event(2)
            sending.send(
                "POST \(eventPath) HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    + "Content-Length: \(body.utf8.count)\r\n\r\n\(body.prefix(20))")
            try #require(try eventually { try samsara.received["requests"].int ?? 0 > 0 })
            gateway.process.signal(SIGTERM)
            _ = try await gateway.process.line(of: .errors) { $0.contains(" stopping ") }
            #expect(try waiting.answer().status == 202)
            sending.send(String(body.dropFirst(20)))
            let answer = try sending.answer()
            #expect(answer.status == 202)
            #expect(answer.header("Connection") == "close")
            // The second signal ends the waiting for the upstream.
            try await gateway.stop()
            #expect(try directory.audit().accounts[0].ledger.accepted == 2)
        }

        @Test(.timeLimit(.minutes(10)))
        func outage_isOverByItself_andNothingWasLost() async throws {
            let port = freePort()
            let directory = try GatewayDirectory(Settings(upstreamURL: "http://127.0.0.1:\(port)"))
            let gateway = try await directory.start()
            #expect(try gateway.client().post(eventPath, events(0..<100)).status == 202)
            #expect(try eventually { try gateway.upstream()["health"].string == "down" })
            #expect(try gateway.client().get("/readyz").status == 200)
            let samsara = try HostedSimulator()
            var settings = Settings(upstreamURL: samsara.url)
            settings.logLevel = "debug"
            try directory.configure(settings)
            gateway.process.signal(SIGHUP)
            try gateway.waitUntilDelivered()
            #expect(try samsara.values(of: "seq").map(\.value) == (0..<100).map(String.init))
            #expect(try eventually { try gateway.upstream()["health"].string == "up" })
            try await gateway.stop()
        }
    }

    /// Promise 5: only the poison message of a rejected batch ends as failed.
    @Suite struct Poison {
        /// 500 events in one batch, one of which is rejected. Returns the number of requests.
        private func requests(faults: String) async throws -> (total: Int, answers: JSON) {
            let samsara = try HostedSimulator(faults: faults)
            var settings = Settings(upstreamURL: samsara.url)
            settings.delivery = ["retryBaseSeconds": 0.01, "retryMaxSeconds": 0.02, "maxInFlight": 1]
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let client = try gateway.client()
            _ = try client.post("/v1/upstreams/samsara/pause")
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let poison = 317
            let texts = (0..<500).map { event($0, source: "d\($0)", name: $0 == poison ? "bad" : "good") }
            let accepted = try client.post(eventPath, "[\(texts.joined(separator: ","))]")
            let ids = accepted.json["ids"].strings
            try #require(ids.count == 500, "\(accepted.text)")
            _ = try client.post("/v1/upstreams/samsara/resume")
            try gateway.waitUntilDelivered()

            let failed = try client.get("/v1/messages?state=failed").json["messages"].array
            #expect(failed.map { $0["id"].string } == [ids[poison]])
            #expect(failed.first?["lastError"]["class"].string == "refused")
            let arrived = try samsara.values(of: "seq").compactMap { Int($0.value) }
            #expect(arrived.count == 499)
            #expect(Set(arrived) == Set(0..<500).subtracting([poison]))
            let received = try samsara.received
            try await gateway.stop()
            let account = try #require(try directory.audit().accounts.first)
            #expect(account.ledger.delivered == 499 && account.findings.isEmpty)
            return (try #require(received["requests"].int), received["answers"])
        }

        /// 2·log2(500)+1, rounded up.
        private let maxForIsolation = 19

        @Test(.timeLimit(.minutes(10))) func tooLargeForSomething_isFoundByHalving() async throws {
            let took = try await requests(faults: "poison=eventName:bad:413")
            #expect(took.total <= 1 + maxForIsolation, "\(took.answers)")
        }

        @Test(.timeLimit(.minutes(10))) func namedByItsPlace_isFoundAtOnce() async throws {
            let took = try await requests(faults: "poison=eventName:bad:array")
            #expect(took.total == 2, "\(took.answers)")
        }
    }
}
