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
    @Suite struct BackupCommands {
        private func run(_ arguments: [String]) async throws -> ChildProcess.Ended {
            try await Binary.run(["outbox"] + arguments)
        }

        /// Ids of all messages that a store holds, whatever their state.
        private func ids(in store: String) async throws -> Set<String> {
            let export = try await run(["export", "--store", store])
            #expect(export.exitCode == 0, "\(export.errors)")
            return Set(export.output.split(separator: "\n").compactMap { JSON(Array($0.utf8))["id"].string })
        }

        @Test(.timeLimit(.minutes(10)))
        func backupNextToABusyGateway_isRestored_andNoIDIsAssignedAgain() async throws {
            let samsara = try HostedSimulator(faults: "delay=2ms:0.3,status=503:0.05")
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            var gateway = try await directory.start()
            let script = (0..<400).map { PatientWriter.Step(path: eventPath, body: events($0 * 20..<$0 * 20 + 20)) }
            let writer = PatientWriter([script], port: gateway.port)
            let thread = try DedicatedThread(name: "e2e-writer") { writer.run() }
            defer { thread.join() }
            #expect(eventually { writer.posted.load(ordering: .relaxed) > 20 })

            let backups = (1...3).map { directory.folder.file("backup-\($0).sqlite") }
            for file in backups {
                let backup = try await run(["backup", file, "--config", directory.config, "--rate", "4", "--json"])
                #expect(backup.exitCode == 0, "\(backup.errors)")
                #expect(JSON(Array(backup.output.utf8))["sound"].bool == true)
                let verified = try await run(["verify", "--store", file])
                #expect(verified.exitCode == 0, "\(verified.output)\(verified.errors)")
            }
            let early = try await run(["restore", backups[0], "--config", directory.config])
            #expect(early.exitCode == 75)
            thread.join()
            #expect(writer.problems.withLock { $0 } == [])
            #expect(try gateway.client().post(eventPath, events(8000..<8020)).status == 202)
            try await gateway.kill()
            let before = try await ids(in: directory.store)
            #expect(before.count == 8020)
            let saved = try await ids(in: backups[0])
            #expect(!saved.isEmpty && saved.isStrictSubset(of: before))

            let restored = try await run(["restore", backups[0], "--config", directory.config, "--json"])
            #expect(restored.exitCode == 0, "\(restored.errors)")
            let kept = try #require(JSON(Array(restored.output.utf8))["keptAs"].string)
            #expect(try await ids(in: kept) == before)
            #expect(try await ids(in: directory.store) == saved)
            gateway = try await directory.start()
            let new = try gateway.client().post(eventPath, events(0..<500)).json["ids"].strings
            #expect(new.count == 500 && before.isDisjoint(with: new))
            try gateway.waitUntilDelivered()
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
            let audit = try await run(["audit", "--config", directory.config])
            #expect(audit.exitCode == 0, "\(audit.output)")
        }

        @Test(.timeLimit(.minutes(10)))
        func export_isImportedIntoAnotherStore_once_alsoIfTheImportIsInterrupted() async throws {
            // The upstream of this message does not exist.
            let source = try GatewayDirectory(Settings())
            var gateway = try await source.start()
            let client = try gateway.client()
            for first in stride(from: 0, to: 1600, by: 400) {
                #expect(try client.post(eventPath, events(first..<first + 400)).status == 202)
            }
            let later =
                #"{"upstream":"samsara","kind":"event","key":"k","notBefore":"2099-01-01T00:00:00.000Z","payload":"#
            #expect(try client.post("/v1/messages", later + event(1600, source: "other") + "}").status == 202)
            try await gateway.stop()
            let file = source.folder.file("export.ndjson")
            let export = try await run(["export", "--config", source.config, "--output", file])
            #expect(export.exitCode == 0, "\(export.errors)")
            let again = try await run(["export", "--config", source.config, "--output", file, "--resume"])
            #expect(again.exitCode == 0, "\(again.errors)")
            let text = try String(contentsOfFile: file, encoding: .utf8)
            #expect(text.split(separator: "\n").count == 1601, "nothing twice")
            // A message that the other gateway rejects, and one that is not queued.
            try
                (text + #"{"upstream":"samsara","kind":"event","state":"queued","payload":{}}"# + "\n"
                + #"{"upstream":"samsara","kind":"event","state":"failed","payload":{}}"# + "\n")
                .write(toFile: file, atomically: true, encoding: .utf8)

            var settings = Settings()
            // Room for the first two requests only.
            settings.upstreams = ["samsara": ["url": "http://127.0.0.1:9", "queue": ["maxMessages": 1000]]]
            let target = try GatewayDirectory(settings)
            gateway = try await target.start()
            let url = "http://127.0.0.1:\(gateway.port)"
            let process = try Binary.start(["outbox", "import", file, "--url", url])
            let isFull = try eventually { try gateway.upstream()["queued"].int == 1000 }
            #expect(isFull)
            process.signal(SIGKILL)
            _ = try await process.end()
            try await gateway.stop()
            settings.upstreams = nil
            try target.configure(settings)
            gateway = try await target.start()
            let arguments = ["import", file, "--url", "http://127.0.0.1:\(gateway.port)", "--json"]
            let imported = try await run(arguments)
            #expect(imported.exitCode == 1)
            let result = JSON(Array(imported.output.utf8))
            #expect(result["repeated"].int == 1000)
            #expect(result["imported"].int == 601)
            #expect(result["skipped"].int == 1)
            #expect(imported.output.contains(#""rejected":[{"line":1602,"detail":""#), "\(imported.output)")
            #expect(try gateway.upstream()["queued"].int == 1601)
            let known = try gateway.client().get("/v1/messages?key=k&include=payload").json["messages"][0]
            #expect(known["nextAttemptAt"].string == "2099-01-01T00:00:00.000Z")
            let third = try await run(arguments)
            #expect(JSON(Array(third.output.utf8))["imported"].int == 0)
            try await gateway.stop()
            #expect(try target.audit().isBalanced)

            func payloads(_ directory: GatewayDirectory) async throws -> [String] {
                let export = try await run(["export", "--config", directory.config])
                return export.output.split(separator: "\n").compactMap { line in
                    line.range(of: #""payload":"#).map { String(line[$0.upperBound...]) }
                }
            }
            let (sent, got) = (try await payloads(source), try await payloads(target))
            #expect(got == sent, "the same payloads in the same order")
        }

        @Test func mistake_changesNothing() async throws {
            let folder = ScratchFolder()
            let missing = folder.file("none.sqlite")
            for (arguments, exitCode) in [
                (["backup", folder.file("b"), "--store", missing], Int32(73)),
                (["restore", missing, "--store", folder.file("store.sqlite")], 73),
                (["verify", "--store", missing], 73),
                (["backup", folder.file("b"), "--store", missing, "--rate", "-1"], 64),
                (["import", missing, "--url", "http://127.0.0.1:1"], 1),
                (["export", "--store", missing, "--resume"], 64),
            ] {
                let ended = try await run(arguments)
                #expect(ended.exitCode == exitCode, "\(arguments): \(ended.errors)")
            }
            #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).isEmpty)
        }
    }
}
