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
    /// Requests to gateways that share a store in PostgreSQL: the answer is the same at each of them.
    @Suite struct SharedStoreRequests {
        /// What the server itself refuses, what only the owner can ask, and what comes before the store is open.
        @Test(.timeLimit(.minutes(10))) func everyGateway_answersSDKsAsTheirPlatformDoes() async throws {
            let platform = try HostedSimulator("appservices")
            var settings = try SharedStore.settings("http://127.0.0.1:9")
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

        @Test(.timeLimit(.minutes(10))) func message_isDelivered_whicheverGatewayAcceptsIt() async throws {
            let samsara = try HostedSimulator()
            let settings = try SharedStore.settings(samsara.url)
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
            var settings = try SharedStore.settings("http://127.0.0.1:9")
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
            /// The queue may move between the gateways, as it does once after the second one has joined.
            func answer(_ ask: () throws -> HTTPClient.Answer) throws -> HTTPClient.Answer {
                var response = try ask()
                _ = try eventually {
                    if response.status == 503 { response = try ask() }
                    return response.status != 503
                }
                return response
            }
            #expect(eventually { isOwner(owner) })
            let other = try await Node("east", settings)
            _ = try other.timeUntilReady()
            let client = try other.client()

            // What steers.
            #expect(try client.post("/v1/upstreams/samsara/pause", "", headers: app).status == 403)
            #expect(try client.post("/v1/upstreams/samsara/pause", "", headers: ops).status == 202)
            #expect(
                try eventually {
                    let upstream = try owner.client().ask("GET", "/v1/upstreams/samsara", headers: ops).json
                    return upstream["health"].string == "paused" && upstream["pausedBy"]["key"].string == "ops"
                })

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
            let one = try answer { try client.ask("DELETE", "/v1/messages/\(id)", headers: ops) }
            #expect(one.status == 200, "\(one.text)")
            let cancelled = try answer {
                try client.post("/v1/messages/cancel", #"{"upstream":"samsara"}"#, headers: ops)
            }
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
            var settings = try SharedStore.settings("http://127.0.0.1:9")
            let other = settings
            let digest = SHA256.hash(data: Array("ops-key".utf8)).hexadecimal
            settings.auth = ["keys": [["name": "ops", "sha256": digest, "scopes": ["read", "admin"]]]]
            let owner = try await Node("west", settings)
            #expect(eventually { (try? owner.ready().status) == 200 })
            let open = try await Node("east", other)
            _ = try open.timeUntilReady()
            #expect(eventually { (try? open.owner()) == "west" })
            let refused = try open.client().post("/v1/upstreams/samsara/pause", "")
            #expect(refused.status == 401, "\(refused.text)")
            #expect(try open.client().get("/v1/upstreams/samsara").json["health"].string == "up")
            #expect(try await open.stop().exitCode == 0)
            #expect(try await owner.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10)))
        func keyedRequestsAndEvents_areStoredOnce_atWhicheverGatewaysTheyArrive() async throws {
            let samsara = try HostedSimulator()
            let settings = try SharedStore.settings(samsara.url)
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

        /// PostgreSQL stores U+0000 in no text: it would fail a statement, and what is in the same transaction.
        @Test(.timeLimit(.minutes(10))) func textWithU0000_failsNothing_andErasingSaysWhatStays() async throws {
            let gateway = try await Node("west", SharedStore.settings("http://127.0.0.1:9"))
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
    }
}
