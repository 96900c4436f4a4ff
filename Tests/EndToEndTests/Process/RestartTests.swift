import Foundation
import Glibc
import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// Nothing is lost or changed by a restart.
    @Suite struct Restart {
        @Test(.timeLimit(.minutes(10)))
        func attemptsTimesAndDeadLetters_surviveARestart() async throws {
            // An answer of 500 counts an attempt, a 400 that names the event refuses it.
            let samsara = try HostedSimulator(faults: "poison=eventName:bad:array,poison=eventName:odd:500")
            var settings = Settings(upstreamURL: samsara.url)
            settings.delivery = ["retryBaseSeconds": 3600, "retryMaxSeconds": 3600, "batchMaxWaitSeconds": 0]
            let directory = try GatewayDirectory(settings)
            var gateway = try await directory.start()
            func accept(_ text: String) throws -> String {
                try #require(try gateway.client().post(eventPath, text).json["id"].string)
            }
            let dead = try accept(event(1, source: "a", name: "bad"))
            try gateway.waitForState("failed", of: dead)
            let waiting = try accept(event(2, source: "b", name: "odd"))
            try #require(try eventually { try gateway.message(waiting)["waitingFor"].string == "retry" })
            let scheduled = try #require(
                try gateway.client().post(
                    "/v1/messages",
                    #"{"upstream":"samsara","kind":"event","key":"k","notBefore":"2099-01-01T00:00:00Z","payload":"#
                        + event(3, source: "c") + "}"
                ).json["id"].string)
            #expect(try gateway.client().post("/v1/upstreams/samsara/pause").status == 202)
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let ids = [dead, waiting, scheduled]
            let before = try ids.map { try gateway.message($0, include: "payload,attempts").description }
            try await gateway.stop()

            gateway = try await directory.start()
            #expect(try gateway.upstream()["health"].string == "paused")
            let after = try ids.map { try gateway.message($0, include: "payload,attempts").description }
            #expect(after == before)
            #expect(try gateway.message(waiting)["attempts"].int == 0, "nothing shows yet that it is the cause")

            // And a dead letter that is sent again after it is delivered.
            try samsara.play("")
            #expect(try gateway.client().post("/v1/messages/\(dead)/retry").json["retried"].int == 1)
            #expect(try gateway.client().post("/v1/upstreams/samsara/resume").status == 202)
            try gateway.waitForState("delivered", of: dead)
            #expect(try gateway.client().post("/v1/upstreams/samsara/flush").status == 202)
            try gateway.waitForState("delivered", of: waiting)
            #expect(try gateway.message(scheduled)["waitingFor"].string == "schedule")
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
        }

        @Test(.timeLimit(.minutes(10)))
        func sendThatTheEndCutShort_isCountedAndRepeated() async throws {
            let samsara = try HostedSimulator(faults: "hang-after")
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            var gateway = try await directory.start()
            let id = try #require(try gateway.client().post(eventPath, event(1)).json["id"].string)
            try #require(try eventually { try samsara.received["events"].int == 1 })
            try await gateway.kill()
            try samsara.play("")
            gateway = try await directory.start()
            try gateway.waitForState("delivered", of: id)
            #expect(try samsara.received["events"].int == 2)
            let attempts = try gateway.message(id, include: "attempts")["attemptLog"].array
            #expect(attempts.map { $0["outcome"].string } == ["unknown", "delivered"])
            try await gateway.stop()
            #expect(try directory.audit().accounts.map(\.ledger.ambiguousSends) == [1])
        }
    }

    /// SIGHUP.
    @Suite struct Reload {
        @Test(.timeLimit(.minutes(10)))
        func newAddressDeliveryAndLogLevel_takeEffect() async throws {
            let (old, new) = (try HostedSimulator(), try HostedSimulator())
            var settings = Settings(upstreamURL: old.url)
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            let client = try gateway.client()
            let first = try client.post(eventPath, event(1), headers: [("Prefer", "wait=60")])
            #expect(first.status == 200, "\(first.text)")
            _ = try await gateway.process.line(of: .errors) { $0.contains("batch attempted") }

            settings.upstreamURL = new.url
            settings.logLevel = "notice"
            settings.delivery["batchMaxMessages"] = 1
            settings.server["maxBodyBytes"] = 5000
            try directory.configure(settings)
            gateway.process.signal(SIGHUP)
            let line = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            for path in ["upstreams.samsara.url", "log.level", "delivery.batchMaxMessages"] {
                #expect(line.contains(path), "\(line)")
            }
            #expect(line.contains("needsRestart=server.maxBodyBytes"), "\(line)")

            let more = try client.post(eventPath, events(2..<7), headers: [("Prefer", "wait=60")])
            #expect(more.status == 200, "\(more.text)")
            #expect(try old.received["events"].int == 1)
            #expect(try new.received["events"].int == 5)
            #expect(try new.received["requests"].int == 5)
            let ended = try await gateway.stop()
            let attempts = ended.errors.split(separator: "\n").filter { $0.contains("batch attempted") }
            #expect(attempts.count == 1)
        }

        /// "Raise the cap" is what operations.md advises while a queue is full.
        @Test(.timeLimit(.minutes(10)))
        func capOfAQueue_changes_whileItIsFull() async throws {
            var settings = Settings()
            let directory = try GatewayDirectory(settings)
            var gateway: GatewayProcess?
            func accepts(_ number: Int) throws -> Bool {
                let answer = try #require(try gateway?.client().post(eventPath, event(number)))
                guard answer.status != 202 else { return true }
                #expect(answer.status == 503, "\(answer.text)")
                #expect(answer.json["type"].string == "urn:postern:problem:outbox-full", "\(answer.text)")
                return false
            }
            var stored = 0
            func fill() throws { while stored < 1000, try accepts(stored) { stored += 1 } }
            func reload(_ queue: [String: Any], changes: String...) async throws {
                settings.upstreams = ["samsara": ["url": "http://127.0.0.1:9", "queue": queue]]
                try directory.configure(settings)
                guard let gateway else { return }
                gateway.process.signal(SIGHUP)
                let line = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
                for name in changes { #expect(line.contains(name), "\(line)") }
                #expect(!line.contains("needsRestart=upstreams") && !line.contains("needsRestart=outbox"), "\(line)")
            }
            try await reload(["maxMessages": 2])
            gateway = try await directory.start()
            try fill()
            #expect(stored == 2)
            try await reload(["maxMessages": 5], changes: "upstreams.samsara.queue.maxMessages")
            try fill()
            #expect(stored == 5)
            // The same by bytes: each message has as many as the first.
            let bytes = event(1).utf8.count
            try await reload(
                ["maxMessages": 0, "maxBytes": 7 * bytes + 3],
                changes: "upstreams.samsara.queue.maxMessages", "upstreams.samsara.queue.maxBytes")
            try fill()
            #expect(stored == 7)
            // And by those of all queues together.
            settings.outbox["maxBytes"] = 8 * bytes + 3
            try await reload(["maxMessages": 0, "maxBytes": 0], changes: "outbox.maxBytes")
            try fill()
            #expect(stored == 8)
            settings.outbox["maxBytes"] = 9 * bytes + 3
            try await reload(["maxMessages": 0, "maxBytes": 0], changes: "outbox.maxBytes")
            try fill()
            #expect(stored == 9)
            // Lowered: what is queued stays.
            settings.outbox["maxBytes"] = nil
            try await reload(["maxMessages": 3], changes: "upstreams.samsara.queue.maxMessages")
            #expect(try !accepts(9))
            #expect(try gateway?.upstream()["queued"].int == 9)
            try await gateway?.stop()
        }

        @Test(.timeLimit(.minutes(10)), arguments: ["{", #"{"delivery": {"maxInFlight": 0}}"#])
        func badFile_changesNothing(text: String) async throws {
            let samsara = try HostedSimulator()
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            let gateway = try await directory.start()
            try directory.write(text)
            gateway.process.signal(SIGHUP)
            let line = try await gateway.process.line(of: .errors) { $0.contains("not reloaded") }
            #expect(line.contains(" error "))
            #expect(try gateway.client().post(eventPath, event(1), headers: [("Prefer", "wait=60")]).status == 200)
            try await gateway.stop()
        }
    }

    /// Behavior on a full disk.
    @Suite struct FullDisk {
        private func settings(_ samsara: HostedSimulator) -> Settings {
            var settings = Settings(upstreamURL: samsara.url)
            settings.outbox["deliveredRetentionSeconds"] = 0
            return settings
        }

        /// Posts events until the disk is full. Returns how many were accepted.
        private func fill(_ gateway: GatewayProcess) throws -> Int {
            let client = try gateway.client()
            _ = try client.post("/v1/upstreams/samsara/pause")
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let filler = String(repeating: "x", count: 20_000)
            for round in 0..<500 {
                let body = (round * 10..<round * 10 + 10).map { number in
                    #"{"timestamp":1,"sourceId":"d","eventName":"e","seq":\#(number),"x":"\#(filler)"}"#
                }
                let answer = try client.post(eventPath, "[\(body.joined(separator: ","))]")
                guard answer.status != 202 else { continue }
                #expect(answer.status == 507, "\(answer.text)")
                #expect(answer.json["type"].string == "urn:postern:problem:disk-full")
                #expect(answer.header("Retry-After") != nil)
                let ready = try client.get("/readyz")
                #expect(ready.status == 503)
                return round * 10
            }
            throw ChildProcess.Failure(description: "100 MB were accepted")
        }

        /// All accepted messages arrive, new messages are accepted again, and the audit balances.
        private func recover(
            _ gateway: GatewayProcess, _ samsara: HostedSimulator, _ directory: GatewayDirectory, accepted: Int
        ) async throws {
            try gateway.waitUntilDelivered()
            let client = try gateway.client()
            #expect(Set(try samsara.values(of: "seq").compactMap { Int($0.value) }) == Set(0..<accepted))
            let isTaken = try eventually(every: .milliseconds(100)) {
                try client.post(eventPath, event(accepted)).status == 202
            }
            #expect(isTaken)
            #expect(try client.get("/readyz").status == 200)
            try gateway.waitUntilDelivered()
            try await gateway.stop()
            let audit = try directory.audit()
            #expect(audit.isBalanced, "\(audit)")
            #expect(audit.accounts[0].ledger.accepted == audit.accounts[0].ledger.delivered)
        }

        /// A limit on the size of files fails the same calls as a disk without room, and can be lifted from outside.
        @Test(.timeLimit(.minutes(10)))
        func limitOnFiles_refusesMessages_untilItIsLifted() async throws {
            let samsara = try HostedSimulator()
            let directory = try GatewayDirectory(settings(samsara))
            // In KiB; the reserve takes 8 MiB.
            let limited = ["/bin/bash", "-c", #"ulimit -S -f 12288; exec "$0" "$@""#]
            let gateway = try await directory.start(program: limited)
            let accepted = try fill(gateway)
            let lifted = try await ChildProcess([
                "/usr/bin/prlimit", "--pid", "\(gateway.process.pid)", "--fsize=unlimited",
            ]).end()
            #expect(lifted.exitCode == 0, "\(lifted.errors)")
            _ = try gateway.client().post("/v1/upstreams/samsara/resume")
            try await recover(gateway, samsara, directory, accepted: accepted)
        }

        /// A disk that is really full, if this machine allows mounting one. Deliveries alone free enough space.
        @Test(.timeLimit(.minutes(10)), .enabled(if: SmallDisk.isAvailable))
        func fullDisk_deliversWhatItHas_andTakesMessagesAgain() async throws {
            let samsara = try HostedSimulator()
            let directory = try GatewayDirectory(settings(samsara))
            let gateway = try await directory.start(
                program: SmallDisk.program(at: directory.folder.file("data"), megabytes: 40))
            let accepted = try fill(gateway)
            _ = try gateway.client().post("/v1/upstreams/samsara/resume")
            try gateway.waitUntilDelivered()
            let client = try gateway.client()
            #expect(Set(try samsara.values(of: "seq").compactMap { Int($0.value) }) == Set(0..<accepted))
            #expect(
                try eventually(every: .milliseconds(100)) {
                    try client.post(eventPath, event(accepted)).status == 202
                })
            try gateway.waitUntilDelivered()
            try await gateway.stop()
        }
    }
}

/// A file system in memory that only the gateway sees. Available where this machine allows mounts.
enum SmallDisk {
    static func program(at folder: String, megabytes: Int) -> [String] {
        let script =
            "mkdir -p \(folder) && mount -t tmpfs -o size=\(megabytes)m none \(folder) && exec \"$0\" \"$@\""
        return ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script]
    }

    static let isAvailable: Bool = {
        let folder = ScratchFolder()
        return ChildProcess.succeeds(program(at: folder.path, megabytes: 1) + ["/bin/true"])
    }()
}
