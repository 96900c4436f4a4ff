import Crypto
import Foundation
import Glibc
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

extension EndToEnd {
    /// Gateways that share a store in PostgreSQL: each accepts, and one works on the queues.
    @Suite struct Standby {
        private static let lease = 3.0
        /// One that syncs, as a gateway requires.
        private static let server = Result { try PostgresServer(settings: ["fsync=on"]) }

        /// A gateway that listens, whether or not it owns the store.
        private struct Node {
            let name: String
            let process: ChildProcess
            let port: UInt16
            let directory: GatewayDirectory
            let settings: Settings

            init(_ name: String, _ settings: Settings, environment: [String: String] = [:]) async throws {
                self.name = name
                var settings = settings
                var postgres = settings.outbox["postgres"] as? [String: Any] ?? [:]
                postgres["node"] = name
                settings.outbox["postgres"] = postgres
                self.settings = settings
                directory = try GatewayDirectory(settings)
                process = try Binary.start(["serve", "--config", directory.config], environment: environment)
                let line = try await process.line(of: .errors) { $0.contains(" waiting for the store ") }
                let port = line.split(separator: " ").first { $0.hasPrefix("port=") }
                self.port = try #require(port.flatMap { UInt16($0.dropFirst(5)) }, "no port in: \(line)")
            }

            func client() throws -> HTTPClient { try HTTPClient(port: port) }

            func ready() throws -> HTTPClient.Answer { try client().get("/readyz") }

            /// The time until it is ready.
            func timeUntilReady() throws -> Duration {
                let start = ContinuousClock.now
                try #require(eventually(every: .milliseconds(10)) { (try? ready().status) == 200 }, "it is not ready")
                return ContinuousClock.now - start
            }

            /// The name of the gateway that works on the queues, as this one knows it.
            func owner() throws -> String? { try client().get("/v1/upstreams/samsara").json["owner"].string }

            /// The time until it works on the queues.
            func timeUntilOwner() throws -> Duration {
                let start = ContinuousClock.now
                try #require(eventually(every: .milliseconds(10)) { (try? owner()) == name }, "it owns nothing")
                return ContinuousClock.now - start
            }

            func stop() async throws -> ChildProcess.Ended {
                process.signal(SIGTERM)
                return try await process.end()
            }
        }

        private static func settings(_ upstreamURL: String) throws -> Settings {
            let server = try server.get()
            var settings = Settings(upstreamURL: upstreamURL)
            settings.outbox = [
                "engine": "postgres",
                "postgres": ["url": server.url, "schema": server.schema(), "leaseSeconds": lease],
            ]
            return settings
        }

        /// Posts events of one source, the next numbers each, and again what got no 202, to whichever gateway accepts.
        private final class Writer: Sendable {
            let source: String
            let accepted = Mutex<[Int]>([])
            private let isStopping = Atomic<Bool>(false)

            init(_ source: String) { self.source = source }

            func stop() { isStopping.store(true, ordering: .relaxed) }

            func run(_ ports: [UInt16]) {
                var (next, attempt) = (0, 0)
                while !isStopping.load(ordering: .relaxed) {
                    let client = try? HTTPClient(port: ports[attempt % ports.count])
                    let key = [("Idempotency-Key", "\(source)-\(next)")]
                    if let answer = try? client?.post(eventPath, event(next, source: source), headers: key),
                        answer.status == 202
                    {
                        accepted.withLock { $0.append(next) }
                        next += 1
                    } else {
                        attempt += 1
                        usleep(5000)
                    }
                }
            }
        }

        @Test(.timeLimit(.minutes(10)))
        func standby_acceptsWithinTheLeaseAndTwoSeconds_afterAKill_andNothingIsLost() async throws {
            let samsara = try HostedSimulator(faults: "delay=5ms:0.2,status=503:0.05")
            let settings = try Self.settings(samsara.url)
            let active = try await Node("west", settings)
            _ = try active.timeUntilOwner()
            let standby = try await Node("east", settings)
            _ = try standby.timeUntilReady()
            #expect(try standby.owner() == "west")

            let writers = (0..<3).map { Writer("device-\($0)") }
            let threads = try writers.map { writer in
                try DedicatedThread(name: "e2e-writer") { [ports = [active.port, standby.port]] in writer.run(ports) }
            }
            func accepted() -> Int { writers.reduce(0) { sum, writer in sum + writer.accepted.withLock(\.count) } }
            #expect(eventually { accepted() > 100 })
            active.process.signal(SIGKILL)
            let start = ContinuousClock.now
            let before = accepted()
            #expect(eventually(every: .milliseconds(5)) { accepted() > before + 3 }, "the standby accepts nothing")
            let away = ContinuousClock.now - start
            #expect(Binary.isSanitized || away < .seconds(Self.lease + 2), "nothing was accepted for \(away)")
            let goal = accepted() + 50
            #expect(eventually { accepted() > goal })
            writers.forEach { $0.stop() }
            threads.forEach { $0.join() }
            _ = try await active.process.end()

            try samsara.play("")
            let client = try standby.client()
            #expect(
                try eventually(every: .milliseconds(20)) {
                    let upstream = try client.get("/v1/upstreams/samsara").json
                    return upstream["queued"].int == 0 && upstream["inFlight"].int == 0
                })
            let arrived = try samsara.values(of: "seq")
            for writer in writers {
                expectArrival(of: writer.accepted.withLock { $0 }, from: writer.source, in: arrived)
            }
            let audit = try await Binary.run(["outbox", "audit", "--config", standby.directory.config])
            #expect(audit.exitCode == 0, "\(audit.output)\(audit.errors)")
            #expect(try await standby.stop().exitCode == 0)
        }

        /// It wakes in the middle of whatever it did. What it has sent before counts as ambiguous.
        @Test(.timeLimit(.minutes(10)))
        func frozenOwner_sendsNothing_afterItWakes_andEndsWith74() async throws {
            let samsara = try HostedSimulator(faults: "delay=20ms:1")
            let settings = try Self.settings(samsara.url)
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let standby = try await Node("east", settings)
            _ = try standby.timeUntilReady()
            let client = try owner.client()
            for first in stride(from: 0, to: 2000, by: 100) {
                let events = (first..<first + 100).map { event($0, source: "device-\($0 % 10)") }
                #expect(try client.post(eventPath, "[\(events.joined(separator: ","))]").status == 202)
            }
            let isHalfway = eventually(every: .milliseconds(1)) { (try? samsara.values(of: "seq").count) ?? 0 > 200 }
            owner.process.signal(SIGSTOP)
            #expect(isHalfway)
            let waiting = try standby.client()
            _ = try standby.timeUntilOwner()
            #expect(
                try eventually(every: .milliseconds(20)) {
                    let upstream = try waiting.get("/v1/upstreams/samsara").json
                    return upstream["queued"].int == 0 && upstream["inFlight"].int == 0
                })
            let arrived = try samsara.values(of: "seq").count
            #expect(arrived >= 2000)
            owner.process.signal(SIGCONT)
            let ended = try await owner.process.end()
            #expect(ended.exitCode == 74, "\(ended.errors)")
            #expect(try samsara.values(of: "seq").count == arrived)
            #expect(try await standby.stop().exitCode == 0)
        }

        /// What the server itself refuses, what only the owner can ask, and what comes before the store is open.
        @Test(.timeLimit(.minutes(10))) func everyGateway_answersSDKsAsTheirPlatformDoes() async throws {
            let platform = try HostedSimulator("appservices")
            var settings = try Self.settings("http://127.0.0.1:9")
            settings.outbox["encryptionKey"] = String(repeating: "5a", count: 32)
            settings.upstreams = [
                "samsara": ["url": "http://127.0.0.1:9", "sdk": ["enabled": true, "anonymous": true]],
                "appservices": [
                    "baseURL": platform.url + "/appservices", "organization": "acme", "application": "campus",
                    "apiKey": "KEY", "sdk": ["enabled": true],
                ],
            ]
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let standby = try await Node("east", settings)
            _ = try standby.timeUntilReady()
            for node in [owner, standby] {
                let client = try node.client()
                client.send(
                    "POST /sdk/samsara/v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"
                )
                let refused = try client.answer()
                #expect(refused.status == 400 && refused.text == "Malformed JSON in request body.", "\(refused.text)")
                let missing = try node.client().ask(
                    "GET", "/sdk/appservices/acme/campus/groups/none?api_key=KEY",
                    headers: [("X-Auth-Provider", "pi"), ("Authorization", "Bearer PiTok-ann")])
                #expect(missing.status == 404, "\(node.name): \(missing.text)")
            }
            settings.outbox["postgres"] = ["url": "postgres://postern@127.0.0.1:9/postern"]
            let waiting = try await Node("south", settings)
            let answer = try waiting.client().post("/sdk/samsara/v1/events", "[]")
            #expect(answer.status == 503 && answer.text == "503 Service Unavailable", "\(answer.text)")
            for node in [waiting, standby, owner] { #expect(try await node.stop().exitCode == 0) }
        }

        @Test(.timeLimit(.minutes(10))) func standby_takesOverAtOnce_whenTheOwnerStops() async throws {
            let settings = try Self.settings("http://127.0.0.1:9")
            let first = try await Node("west", settings)
            _ = try first.timeUntilOwner()
            let posted = try first.client().post(eventPath, event(0))
            #expect(posted.status == 202 && posted.header("Postern-Node") == "west")
            let second = try await Node("east", settings)
            let client = try second.client()
            #expect(try client.get("/livez").status == 200)
            _ = try second.timeUntilReady()
            #expect(try client.get("/v1/messages").header("Postern-Node") == "east")
            let nodes = try client.get("/v1/nodes").json["nodes"].array
            #expect(nodes.map { $0["name"].string } == ["east", "west"])
            #expect(nodes.map { $0["queues"].strings } == [[], ["samsara"]])
            func digests() throws -> [String?] {
                try client.get("/v1/nodes").json["nodes"].array.map { $0["configDigest"].string }
            }
            #expect(try Set(digests()).count == 1)
            var changed = second.settings
            changed.delivery["batchMaxWaitSeconds"] = 1
            try second.directory.configure(changed)
            second.process.signal(SIGHUP)
            #expect(try eventually { try Set(digests()).count == 2 })
            #expect(try await first.stop().exitCode == 0)
            // As the lease is three seconds, it has not waited for its end.
            #expect(try second.timeUntilOwner() < .seconds(Self.lease) || Binary.isSanitized)
            #expect(try second.client().get("/v1/messages").json["messages"].array.count == 1)
            let metrics = try second.client().get("/metrics").text
            #expect(metrics.contains("\npostern_store_up 1\n"))
            #expect(try await second.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10))) func gateways_startAtOnce_onAnEmptyDatabase() async throws {
            let settings = try Self.settings("http://127.0.0.1:9")
            let nodes = [
                try await Node("west", settings), try await Node("east", settings), try await Node("south", settings),
            ]
            func ready() -> Int { nodes.filter { (try? $0.ready().status) == 200 }.count }
            #expect(eventually { ready() == 3 })
            #expect(eventually { Set(nodes.map { try? $0.owner() }).count == 1 })
            #expect(nodes.filter { (try? $0.owner()) == $0.name }.count == 1)
            for node in nodes { #expect(try node.client().post(eventPath, event(0)).status == 202) }
            for node in nodes { #expect(try await node.stop().exitCode == 0) }
        }

        @Test(.timeLimit(.minutes(10))) func message_isDelivered_whicheverGatewayAcceptsIt() async throws {
            let samsara = try HostedSimulator()
            let settings = try Self.settings(samsara.url)
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let other = try await Node("east", settings)
            let client = try other.client()
            _ = try other.timeUntilReady()
            for index in 0..<20 {
                let answer = try (index % 2 == 0 ? other : owner).client().post(eventPath, event(index))
                #expect(answer.status == 202, "\(answer.text)")
            }
            #expect(eventually { (try? samsara.values(of: "seq").count) == 20 })
            let waited = try client.post(eventPath, event(19), headers: [("Prefer", "wait=10")])
            #expect(waited.status == 200, "\(waited.text)")
            #expect(eventually { (try? client.get("/v1/upstreams/samsara").json["counts"]["delivered"].int) == 21 })
            let id = try #require(try client.post(eventPath, event(20)).json["id"].string)
            // The owner is gone, and the message is not lost.
            owner.process.signal(SIGKILL)
            _ = try await owner.process.end()
            let late = try #require(try client.post(eventPath, event(21)).json["id"].string)
            _ = try other.timeUntilOwner()
            for id in [id, late] {
                let path = "/v1/messages/\(id)"
                #expect(eventually { (try? other.client().get(path).json["state"].string) == "delivered" })
            }
            let audit = try await Binary.run(["outbox", "audit", "--config", other.directory.config])
            #expect(audit.exitCode == 0, "\(audit.output)\(audit.errors)")
            #expect(try await other.stop().exitCode == 0)
        }

        /// It passes what needs the owner to the owner, with the rights of the caller.
        @Test(.timeLimit(.minutes(10))) func request_isAnswered_whicheverGatewayReceivesIt() async throws {
            func digest(_ key: String) -> String { SHA256.hash(data: Array(key.utf8)).hexadecimal }
            var settings = try Self.settings("http://127.0.0.1:9")
            settings.auth = [
                "keys": [
                    ["name": "app", "sha256": digest("app-key"), "scopes": ["write"]],
                    ["name": "ops", "sha256": digest("ops-key"), "scopes": ["read", "write", "admin"]],
                ]
            ]
            settings.upstreams = [
                "samsara": ["url": "http://127.0.0.1:9"],
                "curio": ["serverURL": "http://127.0.0.1:9", "apiKey": "key", "trackingCode": "GW7DEM01"],
            ]
            let (ops, app) = ([("Authorization", "Bearer ops-key")], [("Authorization", "Bearer app-key")])
            let owner = try await Node("west", settings)
            func isOwner(_ node: Node) -> Bool {
                (try? node.client().ask("GET", "/v1/upstreams/samsara", headers: ops).json["owner"].string) == node.name
            }
            #expect(eventually { isOwner(owner) })
            let other = try await Node("east", settings)
            _ = try other.timeUntilReady()
            let client = try other.client()

            // What steers.
            #expect(try client.post("/v1/upstreams/samsara/pause", "", headers: app).status == 403)
            #expect(try client.post("/v1/upstreams/samsara/pause", "", headers: ops).status == 202)
            let upstream = try owner.client().ask("GET", "/v1/upstreams/samsara", headers: ops).json
            #expect(upstream["health"].string == "paused" && upstream["pausedBy"]["key"].string == "ops")

            // Messages that the state of their upstream decides about.
            let visitor = Curio.Visitor(0)
            let started = try client.post("/v1/curio/session_start", visitor.actions[0].members, headers: app)
            #expect(started.status == 202 && started.header("Postern-Node") == "east", "\(started.text)")
            let keyed = app + [("Idempotency-Key", "screen")]
            let screens = try (0..<2).map { _ in
                try client.post("/v1/curio/screen_start", visitor.actions[1].members, headers: keyed)
            }
            #expect(screens.allSatisfy { $0.status == 202 } && screens[0].text == screens[1].text)
            #expect(screens[1].header("Idempotent-Replay") == "true")

            // A bulk request, and its operation.
            for index in 0..<3 {
                #expect(try client.post(eventPath, event(index), headers: app).status == 202)
            }
            let id = try #require(try client.post(eventPath, event(3), headers: app).json["id"].string)
            #expect(try client.ask("DELETE", "/v1/messages/\(id)", headers: ops).status == 200)
            let cancelled = try client.post("/v1/messages/cancel", #"{"upstream":"samsara"}"#, headers: ops)
            #expect(cancelled.status == 200 && cancelled.json["cancelled"].int == 3, "\(cancelled.text)")
            #expect(try client.ask("GET", "/v1/operations", headers: ops).status == 200)
            // What happens at one is told at the other one.
            for (listener, poster) in [(owner, other), (other, owner)] {
                var ids: Set<String> = []
                #expect(
                    eventually {
                        let posted = try? poster.client().post(eventPath, event(4), headers: app).json["id"].string
                        ids.formUnion([posted].compactMap { $0 })
                        let json = [("Accept", "application/json")]
                        let told = try? listener.client().ask("GET", "/v1/stream", headers: ops + json).json["events"]
                        return told?.array.contains {
                            $0["type"].string == "message.queued" && !ids.isDisjoint(with: $0["data"]["ids"].strings)
                        } ?? false
                    })
            }
            #expect(try await owner.stop().exitCode == 0)
            #expect(eventually { isOwner(other) })
            #expect(try client.post("/v1/upstreams/samsara/resume", "", headers: ops).status == 202)
            #expect(try await other.stop().exitCode == 0)
        }

        /// The gateways are configured differently.
        @Test(.timeLimit(.minutes(10))) func request_isRefused_ifTheOwnerDoesNotKnowItsCaller() async throws {
            var settings = try Self.settings("http://127.0.0.1:9")
            let other = settings
            let digest = SHA256.hash(data: Array("ops-key".utf8)).hexadecimal
            settings.auth = ["keys": [["name": "ops", "sha256": digest, "scopes": ["read", "admin"]]]]
            let owner = try await Node("west", settings)
            #expect(eventually { (try? owner.ready().status) == 200 })
            let open = try await Node("east", other)
            _ = try open.timeUntilReady()
            #expect(try open.owner() == "west")
            let refused = try open.client().post("/v1/upstreams/samsara/pause", "")
            #expect(refused.status == 401, "\(refused.text)")
            #expect(try open.client().get("/v1/upstreams/samsara").json["health"].string == "up")
            #expect(try await open.stop().exitCode == 0)
            #expect(try await owner.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10)))
        func keyedRequestsAndEvents_areStoredOnce_atWhicheverGatewaysTheyArrive() async throws {
            let samsara = try HostedSimulator()
            let settings = try Self.settings(samsara.url)
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let other = try await Node("east", settings)
            let members = [other, try await Node("south", settings)]
            for member in members { _ = try member.timeUntilReady() }

            // At all of them at once, and again at another one.
            let nodes = members + [owner]
            let clients = try nodes.map { try $0.client() }
            for index in 0..<30 {
                let headers = [("Idempotency-Key", "k\(index)")]
                for client in clients {
                    client.sendRequest("POST", eventPath, Array(event(index).utf8), headers: headers)
                }
                var answers = try clients.map { try $0.answer() }
                answers.append(try clients[index % 3].post(eventPath, event(index), headers: headers))
                #expect(answers.allSatisfy { $0.status == 202 }, "\(answers.map(\.text))")
                #expect(Set(answers.map(\.text)).count == 1)
                #expect(answers.count { $0.header("Idempotent-Replay") == nil } == 1)
                let different = try clients[index % 3].post(eventPath, event(99), headers: headers)
                #expect(different.json["type"].string == "urn:postern:problem:idempotency-mismatch")
            }
            for index in 30..<40 {
                let attributes = #""specversion":"1.0","id":"\#(index)","source":"/s","type":"samsara.event""#
                let text = "{\(attributes),\"data\":\(event(index))}"
                for client in clients {
                    client.sendRequest(
                        "POST", "/v1/cloudevents", Array(text.utf8),
                        headers: [("Content-Type", "application/cloudevents+json")])
                }
                let answers = try clients.map { try $0.answer() }
                #expect(answers.allSatisfy { $0.status == 202 }, "\(answers.map(\.text))")
                #expect(Set(answers.compactMap(\.json["id"].string)).count == 1)
            }
            // What a gateway answers at last is what another one repeats.
            let key = [("Idempotency-Key", "waits")]
            let waited = try clients[0].post(eventPath, event(40), headers: key + [("Prefer", "wait=60")])
            #expect(waited.status == 200, "\(waited.text)")
            for client in clients {
                let again = try client.post(eventPath, event(40), headers: key)
                #expect(again.status == 200 && again.text == waited.text)
            }

            // Killed after its response: what it has stored is delivered, and its keys are known.
            let last = [("Idempotency-Key", "last")]
            let kept = try clients[0].post(eventPath, event(41), headers: last)
            for node in [other, owner] {
                node.process.signal(SIGKILL)
                _ = try await node.process.end()
            }
            _ = try members[1].timeUntilOwner()
            let again = try members[1].client().post(eventPath, event(41), headers: last)
            #expect(again.text == kept.text && again.header("Idempotent-Replay") == "true")
            #expect(eventually { (try? Set(samsara.values(of: "seq").map(\.value)).count) == 42 })
            let stored = try members[1].client().get("/v1/upstreams/samsara").json["counts"]["accepted"].int
            #expect(stored == 42)
            let audit = try await Binary.run(["outbox", "audit", "--config", members[1].directory.config])
            #expect(audit.exitCode == 0, "\(audit.output)\(audit.errors)")
            #expect(try await members[1].stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10)))
        func databaseThatIsAway_isAnswered503AtOnce_andTheGatewayGoesOnWithoutARestart() async throws {
            let proxy = try Self.server.get().proxy()
            var settings = try Self.settings("http://127.0.0.1:9")
            var postgres = settings.outbox["postgres"] as? [String: Any] ?? [:]
            postgres["url"] = proxy.url
            settings.outbox["postgres"] = postgres
            let gateway = try await Node("west", settings)
            _ = try gateway.timeUntilOwner()
            #expect(try gateway.client().post(eventPath, event(0)).status == 202)
            proxy.isRefusing = true
            proxy.cutAll()
            #expect(eventually { (try? gateway.ready().status) == 503 })
            for _ in 0..<3 {
                let refused = try gateway.client().post(eventPath, event(1))
                #expect(refused.status == 503)
                #expect(refused.json["type"].string == "urn:postern:problem:store-unavailable")
                let pause = try #require(refused.header("Retry-After").flatMap { Int($0) })
                #expect((1...5).contains(pause))
            }
            #expect(try gateway.client().get("/livez").status == 200)
            proxy.heal()
            _ = try gateway.timeUntilReady()
            #expect(try gateway.client().post(eventPath, event(2)).status == 202)
            #expect(try gateway.client().get("/v1/messages").json["messages"].array.count == 2)
            #expect(try await gateway.stop().exitCode == 0)
        }

        /// PostgreSQL stores U+0000 in no text: it would fail a statement, and what is in the same transaction.
        @Test(.timeLimit(.minutes(10))) func textWithU0000_failsNothing_andErasingSaysWhatStays() async throws {
            let gateway = try await Node("west", Self.settings("http://127.0.0.1:9"))
            _ = try gateway.timeUntilOwner()
            let client = try gateway.client()
            let sources = [#"a\u0000b"#, "ab"]
            for source in sources {
                #expect(try client.post(eventPath, event(1, source: source)).status == 202)
            }
            let envelope = #"{"upstream":"samsara","kind":"event","key":"a\u0000b","payload":\#(event(2))}"#
            #expect(try client.post("/v1/messages", envelope).status == 422)
            #expect(try client.get("/v1/messages").json["messages"].array.count == 2)
            let found = try client.get("/v1/messages?key=a%00b")
            #expect(found.status == 200 && found.json["messages"].array.isEmpty, "\(found.text)")
            for value in sources {
                let erased = try client.post("/v1/messages/erase", #"{"pointer":"/sourceId","value":"\#(value)"}"#)
                #expect(erased.status == 200 && erased.json["queued"].int == 1, "\(erased.text)")
                #expect(erased.json["note"].string?.contains("VACUUM") == true)
            }
            #expect(try client.post("/v1/messages/erase", #"{"key":"a\u0000b"}"#).status == 200)
            let command = ["outbox", "erase", "--config", gateway.directory.config, "--key", "k", "--yes"]
            let erased = try await Binary.run(command + ["--url", "http://127.0.0.1:\(gateway.port)"])
            #expect(erased.output.hasPrefix("nothing\nErased.\n") && erased.output.contains("VACUUM"), "\(erased)")
            #expect(try await gateway.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10))) func waitingGateway_endsCleanly_onSIGTERM() async throws {
            let settings = try Self.settings("http://127.0.0.1:9")
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let waiting = try await Node("east", settings)
            let ended = try await waiting.stop()
            #expect(ended.exitCode == 0, "\(ended.errors)")
            #expect(try owner.ready().status == 200)
            #expect(try await owner.stop().exitCode == 0)
        }

        /// For a gateway that reaches the database and nothing else.
        @Test(.timeLimit(.minutes(10))) func evictedOwner_endsWith74_andAnotherOneTakesOver() async throws {
            let settings = try Self.settings("http://127.0.0.1:9")
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let other = try await Node("east", settings)
            _ = try other.timeUntilReady()
            let config = ["--config", other.directory.config]
            let list = try await Binary.run(["nodes"] + config)
            #expect(list.exitCode == 0, "\(list.errors)")
            let lines = list.output.split(separator: "\n")
            #expect(lines.count == 3 && lines[1].hasPrefix("east") && lines[2].hasSuffix("samsara"), "\(list.output)")
            let json = try await Binary.run(["nodes", "list", "--json"] + config)
            #expect(json.output.contains(#""name":"west","version":"#), "\(json.output)")
            let unknown = try await Binary.run(["nodes", "evict", "south"] + config)
            #expect(unknown.exitCode == 1)
            let evicted = try await Binary.run(["nodes", "evict", "west"] + config)
            #expect(evicted.exitCode == 0, "\(evicted.errors)")
            #expect(try other.timeUntilOwner() < .seconds(Self.lease) || Binary.isSanitized)
            #expect(try await owner.process.end().exitCode == 74)
            let file = try GatewayDirectory(Settings())
            #expect(try await Binary.run(["nodes", "--config", file.config]).exitCode == 64)
            #expect(try await other.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10))) func gatewayThatDoesNotOwnTheStore_reloads_andStopsProperly() async throws {
            func digest(_ key: String) -> String { SHA256.hash(data: Array(key.utf8)).hexadecimal }
            var settings = try Self.settings("http://127.0.0.1:9")
            func use(_ key: String) {
                settings.auth = ["keys": [["name": "app", "sha256": digest(key), "scopes": ["write"]]]]
            }
            use("former")
            let owner = try await Node("west", settings)
            #expect(eventually { (try? owner.ready().status) == 200 })
            let other = try await Node("east", settings)
            _ = try other.timeUntilReady()
            let client = try other.client()
            func status(_ key: String) throws -> Int {
                try client.post(eventPath, event(0), headers: [("Authorization", "Bearer \(key)")]).status
            }
            #expect(try status("former") == 202)
            use("present")
            var named = settings
            var postgres = named.outbox["postgres"] as? [String: Any] ?? [:]
            postgres["node"] = "east"
            named.outbox["postgres"] = postgres
            try other.directory.configure(named)
            other.process.signal(SIGHUP)
            #expect(eventually { (try? status("present")) == 202 })
            #expect(try status("former") == 401)
            // What waits is answered before it ends.
            let waiting = try other.client()
            waiting.sendRequest(
                "POST", eventPath, Array(event(1).utf8),
                headers: [("Authorization", "Bearer present"), ("Prefer", "wait=60")])
            #expect(eventually { (try? other.client().get("/metrics").status) != nil })
            usleep(200_000)
            other.process.signal(SIGTERM)
            #expect(try waiting.answer().status == 202)
            let ended = try await other.process.end()
            #expect(ended.exitCode == 0, "\(ended.errors)")
            #expect(try await owner.stop().exitCode == 0)
        }

        /// However long it waits: it is neither a start that hangs nor a process that stalls.
        @Test(.timeLimit(.minutes(10))) func serviceManager_takesAGatewayThatWaits_forOneThatHasStarted() async throws {
            let settings = try Self.settings("http://127.0.0.1:9")
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let name = "@postern-test-\(getpid())-standby"
            let manager = try ServiceManagers.Manager(name)
            let waiting = try await Node(
                "east", settings, environment: ["NOTIFY_SOCKET": name, "WATCHDOG_USEC": "600000"])
            _ = try manager.wait { $0 == "STATUS=Accepting messages; node west owns the store" }
            #expect(manager.received.first == "READY=1")
            _ = try manager.wait { $0 == "WATCHDOG=1" }
            #expect(try await owner.stop().exitCode == 0)
            _ = try manager.wait { $0.hasPrefix("STATUS=Accepting messages; ") && !$0.contains("west") }
            #expect(try await waiting.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10))) func nameOfALiveGateway_isRefused_with75() async throws {
            let settings = try Self.settings("http://127.0.0.1:9")
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let other = try await Node("west", settings)
            let ended = try await other.process.end()
            #expect(ended.exitCode == 75 && ended.errors.contains("outbox.postgres.node"), "\(ended.errors)")
            #expect(try await owner.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10))) func serverThatDoesNotSync_isRefused_with73() async throws {
            let server = try PostgresServer.shared()
            var settings = Settings()
            settings.outbox = ["engine": "postgres", "postgres": ["url": server.url, "schema": server.schema()]]
            let ended = try await GatewayDirectory(settings).fail()
            #expect(ended.exitCode == 73 && ended.errors.contains("fsync"), "\(ended.errors)")
            let directory = try GatewayDirectory(settings)
            let check = try await Binary.run(["check", "--config", directory.config, "--store"])
            #expect(check.exitCode == 78 && check.output.contains("fsync"), "\(check.output)")
        }

        /// Commands that read work without a gateway, and on any machine. Others say what to use.
        @Test(.timeLimit(.minutes(10))) func commands_readTheDatabase_orSayWhatToUse() async throws {
            let settings = try Self.settings("http://127.0.0.1:9")
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let id = try #require(try owner.client().post(eventPath, event(0)).json["id"].string)
            #expect(try await owner.stop().exitCode == 0)
            let config = ["--config", owner.directory.config]
            for (command, word) in [
                (["list"], id), (["show", id], "samsara"), (["stats"], "samsara"), (["audit"], "samsara"),
                (["export"], id),
            ] {
                let ended = try await Binary.run(["outbox"] + command + config)
                #expect(ended.exitCode == 0 && ended.output.contains(word), "\(command): \(ended.errors)")
            }
            for command in [["backup", "copy.sqlite"], ["restore", "copy.sqlite"], ["verify"]] {
                let ended = try await Binary.run(["outbox"] + command + config)
                #expect(ended.exitCode == 64 && ended.errors.contains("pg_dump"), "\(command): \(ended.errors)")
            }
            let rotation = try await Binary.run(["keys", "rotate-encryption"] + config)
            #expect(rotation.exitCode == 64, "\(rotation.errors)")
            let check = try await Binary.run(["check"] + config + ["--store"])
            #expect(check.exitCode == 0 && check.output.contains("PostgreSQL 1"), "\(check.output)")
            let other = try await Binary.run(["check"] + config)
            #expect(other.exitCode == 0 && !other.output.contains("PostgreSQL 1"), "\(other.output)")
        }
    }
}
