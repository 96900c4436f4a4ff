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
    /// Gateways that share a store in PostgreSQL: which of them owns it, and what becomes of the others.
    @Suite struct Standby {
        @Test(.timeLimit(.minutes(10)))
        func standby_acceptsWithinTheLeaseAndTwoSeconds_afterAKill_andNothingIsLost() async throws {
            let samsara = try HostedSimulator(faults: "delay=5ms:0.2,status=503:0.05")
            let settings = try SharedStore.settings(samsara.url)
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
            #expect(Binary.isSanitized || away < .seconds(SharedStore.lease + 2), "nothing was accepted for \(away)")
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
            let settings = try SharedStore.settings(samsara.url)
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

        @Test(.timeLimit(.minutes(10))) func standby_takesOverAtOnce_whenTheOwnerStops() async throws {
            let settings = try SharedStore.settings("http://127.0.0.1:9")
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
            #expect(try second.timeUntilOwner() < .seconds(SharedStore.lease) || Binary.isSanitized)
            #expect(try second.client().get("/v1/messages").json["messages"].array.count == 1)
            let metrics = try second.client().get("/metrics").text
            #expect(metrics.contains("\npostern_store_up 1\n"))
            #expect(try await second.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10))) func gateways_startAtOnce_onAnEmptyDatabase() async throws {
            let settings = try SharedStore.settings("http://127.0.0.1:9")
            let nodes = [
                try await Node("west", settings), try await Node("east", settings), try await Node("south", settings),
            ]
            func ready() -> Int { nodes.filter { (try? $0.ready().status) == 200 }.count }
            #expect(eventually { ready() == 3 })
            // A gateway is ready before the queue has an owner.
            #expect(
                try eventually {
                    let owners = try nodes.map { try $0.owner() }
                    return nodes.contains { node in owners.allSatisfy { $0 == node.name } }
                })
            for node in nodes { #expect(try node.client().post(eventPath, event(0)).status == 202) }
            for node in nodes { #expect(try await node.stop().exitCode == 0) }
        }

        @Test(.timeLimit(.minutes(10)))
        func databaseThatIsAway_isAnswered503AtOnce_andTheGatewayGoesOnWithoutARestart() async throws {
            let proxy = try SharedStore.server.get().proxy()
            var settings = try SharedStore.settings("http://127.0.0.1:9")
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

        @Test(.timeLimit(.minutes(10))) func waitingGateway_endsCleanly_onSIGTERM() async throws {
            let settings = try SharedStore.settings("http://127.0.0.1:9")
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
            let settings = try SharedStore.settings("http://127.0.0.1:9")
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
            #expect(try other.timeUntilOwner() < .seconds(SharedStore.lease) || Binary.isSanitized)
            #expect(try await owner.process.end().exitCode == 74)
            let file = try GatewayDirectory(Settings())
            #expect(try await Binary.run(["nodes", "--config", file.config]).exitCode == 64)
            #expect(try await other.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10))) func gatewayThatDoesNotOwnTheStore_reloads_andStopsProperly() async throws {
            func digest(_ key: String) -> String { SHA256.hash(data: Array(key.utf8)).hexadecimal }
            var settings = try SharedStore.settings("http://127.0.0.1:9")
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

        /// However long another one has all queues: it is neither a start that hangs nor a process that stalls.
        @Test(.timeLimit(.minutes(10))) func serviceManager_takesAGatewayWithoutQueues_forOneThatHasStarted()
            async throws
        {
            let settings = try SharedStore.settings("http://127.0.0.1:9")
            let owner = try await Node("west", settings)
            _ = try owner.timeUntilOwner()
            let name = "@postern-test-\(getpid())-standby"
            let manager = try ServiceManagers.Manager(name)
            let waiting = try await Node(
                "east", settings, environment: ["NOTIFY_SOCKET": name, "WATCHDOG_USEC": "600000"])
            _ = try manager.wait { $0.hasPrefix("STATUS=Accepting messages; ") }
            #expect(manager.received.first == "READY=1")
            _ = try manager.wait { $0 == "WATCHDOG=1" }
            #expect(try await owner.stop().exitCode == 0)
            #expect(try await waiting.stop().exitCode == 0)
        }

        @Test(.timeLimit(.minutes(10))) func nameOfALiveGateway_isRefused_with75() async throws {
            let settings = try SharedStore.settings("http://127.0.0.1:9")
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
            let settings = try SharedStore.settings("http://127.0.0.1:9")
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
