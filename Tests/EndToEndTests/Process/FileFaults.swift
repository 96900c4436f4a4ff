import Foundation
import Glibc
import PosternStore
import PosternTestKit
import Testing

/// `Tests/FaultShim`, built once: kills, delays or fails the calls of a process that change files.
enum FileFaults {
    private static let folder = ScratchFolder()
    private static let library = Result { () throws -> String in
        let source = Fixture.top + "/Tests/FaultShim/faults.c"
        let library = folder.file("faults.so")
        let compiler = ["/usr/bin/env", "cc", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl", "-lpthread"]
        let ended = try ChildProcess.run(compiler)
        guard ended.exitCode == 0 else { throw ChildProcess.Failure(description: ended.errors) }
        return library
    }

    /// The environment of a process whose files below `folder` suffer `faults`, e.g. `kill=3`.
    static func environment(_ faults: String, below folder: String) throws -> [String: String] {
        // Behind what a sanitizer has every program load.
        let preloaded = [ProcessInfo.processInfo.environment["LD_PRELOAD"], try library.get()].compactMap(\.self)
        return ["LD_PRELOAD": preloaded.joined(separator: ":"), "FILE_FAULTS": "folder=\(folder),\(faults)"]
    }
}

extension EndToEnd {
    /// A store is whole or not there, whenever its first start ends.
    @Suite struct FirstStart {
        @Test(.timeLimit(.minutes(30)))
        func kill_beforeAFileChange_leavesAStoreThatStarts() async throws {
            // Some of them. The calls of all kinds are tried one by one on a simulated disk, in `InterruptionTests`.
            var change = 0
            while true {
                change += 13
                let directory = try GatewayDirectory(Settings())
                let first = try Binary.start(
                    ["serve", "--config", directory.config],
                    environment: try FileFaults.environment("kill=\(change)", below: directory.folder.file("data")))
                if (try? await GatewayProcess(first, at: directory)) != nil {
                    // The gateway serves, so that was the last change that a start makes.
                    first.signal(SIGKILL)
                    _ = try await first.end()
                    break
                }
                let ended = try await first.end()
                #expect(ended.signal == SIGKILL, "change \(change): \(ended.errors)")
                let gateway = try await directory.start()
                let client = try gateway.client()
                #expect(try client.get("/readyz").status == 200, "change \(change)")
                try await gateway.stop()
                #expect(try directory.audit().isBalanced)
            }
            #expect(change > 20)
        }

        /// Or a power cut could take the whole folder with it.
        @Test(.timeLimit(.minutes(30))) func foldersThatAreMade_areOnDisk_withTheirNames() async throws {
            let directory = try GatewayDirectory(Settings())
            let root = directory.folder.file("data")
            try directory.write(Settings().json(store: root + "/a/b/postern.sqlite"))
            let list = directory.folder.file("synced")
            let process = try Binary.start(
                ["serve", "--config", directory.config],
                environment: try FileFaults.environment("folders=\(list)", below: directory.folder.path))
            try await GatewayProcess(process, at: directory).stop()
            let synced = Set(try String(contentsOfFile: list, encoding: .utf8).split(separator: "\n").map(String.init))
            // The name of each folder is in its parent, and that of the store in the last one.
            #expect(synced.isSuperset(of: [directory.folder.path, root, root + "/a", root + "/a/b"]), "\(synced)")
        }
    }
}

extension EndToEnd {
    /// What clients and operators see of a disk that fails, and of files that are taken away.
    @Suite struct FailingDisk {
        @Test(.timeLimit(.minutes(30)))
        func failedSync_isAnswered503_untilTheStoreWasChecked() async throws {
            let directory = try GatewayDirectory(Settings())
            let isBroken = directory.folder.file("broken")
            let process = try Binary.start(
                ["serve", "--config", directory.config],
                environment: try FileFaults.environment(
                    "sync=10000,while=\(isBroken)", below: directory.folder.file("data")))
            let gateway = try await GatewayProcess(process, at: directory)
            let client = try gateway.client()
            #expect(try client.post("/v1/samsara/event", event(0)).status == 202)
            try Data().write(to: URL(filePath: isBroken))
            for _ in 0..<2 {
                let refusal = try client.post("/v1/samsara/event", event(1))
                #expect(refusal.status == 503)
                #expect(refusal.json["type"].string == "urn:postern:problem:store-failed")
            }
            #expect(try client.get("/readyz").status == 503)
            unlink(isBroken)
            #expect(eventually { (try? client.get("/readyz").status) == 200 })
            #expect(try client.post("/v1/samsara/event", event(2)).status == 202)
            let ended = try await gateway.stop()
            #expect(ended.errors.contains("disk failed; rejecting all requests until the store has been checked"))
            #expect(try directory.audit().accounts.map(\.ledger.accepted) == [2])
        }

        /// A kernel that could not write a page may drop it: what was read back before is gone then.
        @Test(.timeLimit(.minutes(30)), arguments: [10_000, 5000])
        func answeredMessages_survive_whenAFailedSyncTakesBackItsPages(chance: Int) async throws {
            let directory = try GatewayDirectory(Settings())
            let isBroken = directory.folder.file("broken")
            let process = try Binary.start(
                ["serve", "--config", directory.config],
                environment: try FileFaults.environment(
                    "sync=\(chance),lose=1,seed=7,while=\(isBroken)", below: directory.folder.file("data")))
            let gateway = try await GatewayProcess(process, at: directory)
            let client = try gateway.client()
            var accepted: [String] = []
            for round in 0..<3 {
                for number in 0..<20 {
                    let answer = try client.post("/v1/samsara/event", event(100 * round + number))
                    accepted.append(try #require(answer.json["id"].string, "\(answer.text)"))
                }
                try Data().write(to: URL(filePath: isBroken))
                let hasFailed = try eventually {
                    let answer = try client.post("/v1/samsara/event", event(100 * round + 99))
                    if let id = answer.json["id"].string { accepted.append(id) }
                    return answer.status == 503
                }
                #expect(hasFailed)
                unlink(isBroken)
                #expect(eventually { (try? client.get("/readyz").status) == 200 })
            }
            try await gateway.kill()
            let next = try await directory.start()
            for id in accepted { #expect(try next.message(id)["state"].string == "queued", "\(id)") }
            try await next.stop()
            let ledger = try #require(try directory.audit().accounts.first?.ledger)
            // Of those whose outcome was not known, each was told so.
            #expect((accepted.count...accepted.count + 3).contains(ledger.accepted))
            #expect(try directory.audit().isBalanced)
        }

        /// What reads only must not have SQLite drop the commits behind the damage, either.
        @Test(.timeLimit(.minutes(30))) func damagedLog_isReported_byCommandsThatRead() async throws {
            let directory = try GatewayDirectory(Settings())
            let gateway = try await directory.start()
            // Attempts would be commits too, until the log begins again: a frame of it that is in the file is not
            // missed.
            #expect(try gateway.client().post("/v1/upstreams/samsara/pause").status == 202)
            for number in 0..<10 {
                #expect(try gateway.client().post("/v1/samsara/event", event(number)).status == 202)
            }
            // Other processes see no errors.
            #expect(try await Binary.run(["outbox", "stats", "--store", directory.store]).exitCode == 0)
            try await gateway.kill()
            #expect(try await Binary.run(["outbox", "stats", "--store", directory.store]).exitCode == 0)
            var log = try Data(contentsOf: URL(filePath: directory.store + "-wal"))
            // In the checksum of the frame: its page may be the first one, of which every bit matters.
            log[32 + 16] ^= 1
            try log.write(to: URL(filePath: directory.store + "-wal"))
            for command in ["stats", "list", "audit", "export"] {
                let ended = try await Binary.run(["outbox", command, "--store", directory.store])
                #expect(ended.exitCode == 73, "\(command): \(ended)")
                #expect(ended.errors.contains("the write-ahead log is damaged at frame 1;"), "\(ended.errors)")
                #expect(ended.errors.contains("--recover"))
            }
            #expect(try Data(contentsOf: URL(filePath: directory.store + "-wal")) == log)
            let recovered = try await directory.start(["--recover"])
            try await recovered.stop()
            #expect(try directory.audit().accounts.map(\.ledger.accepted) == [10])
        }

        @Test(.timeLimit(.minutes(30)), arguments: ["", "-wal"])
        func deletedFile_isAnswered503_andMakesTheGatewayUnready(tail: String) async throws {
            let directory = try GatewayDirectory(Settings())
            let gateway = try await directory.start()
            let client = try gateway.client()
            #expect(try client.post("/v1/samsara/event", event(0)).status == 202)
            unlink(directory.store + tail)
            #expect(eventually { (try? client.get("/readyz").status) == 503 })
            let refusal = try client.post("/v1/samsara/event", event(1))
            #expect(refusal.status == 503)
            #expect(refusal.json["type"].string == "urn:postern:problem:store-lost")
            #expect(try await gateway.stop().errors.contains("store deleted or replaced; rejecting everything"))
        }
    }
}
