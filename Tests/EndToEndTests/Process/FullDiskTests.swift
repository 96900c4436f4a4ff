import Foundation
import Glibc
import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternStore
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// Starts on a real file system without room, after a kill. Available where this machine allows mounts.
    @Suite(.serialized) struct FullDiskStarts {
        private func directory(on disk: LoopDisk, _ samsara: HostedSimulator) throws -> GatewayDirectory {
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            try directory.write(Settings(upstreamURL: samsara.url).json(store: disk.folder + "/data/postern.sqlite"))
            return directory
        }

        /// Sends events of 20 sources until the first refusal. Returns how many were accepted, and the refusal's status.
        private func fill(_ gateway: GatewayProcess, random: inout SplitMix64) throws -> (accepted: Int, status: Int) {
            let client = try gateway.client()
            var accepted = 0
            while true {
                let pad = String(repeating: "x", count: [400, 700].randomElement(using: &random)!)
                let body = (accepted..<accepted + 100).map { event($0, source: "s\($0 % 20)", name: pad) }
                let status = try client.post(eventPath, "[" + body.joined(separator: ",") + "]").status
                guard status == 202 else { return (accepted, status) }
                accepted += 100
            }
        }

        /// Killed eight times while deliveries free rows, and while other programs take what becomes free.
        @Test(.timeLimit(.minutes(10)), .enabled(if: LoopDisk.isAllowed), arguments: 0..<6)
        func everyStart_serves_whenKilledWhileDraining(seed: Int) async throws {
            var random = SplitMix64(state: UInt64(seed))
            let samsara = try HostedSimulator()
            let disk = try LoopDisk(
                megabytes: 48, blockSize: seed.isMultiple(of: 2) ? 4096 : 1024, type: seed < 4 ? "ext4" : "ext2")
            let directory = try directory(on: disk, samsara)
            var gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/upstreams/samsara/pause").status == 202)
            let (accepted, status) = try fill(gateway, random: &random)
            #expect(status == 507)
            disk.takeTheRest()
            #expect(try gateway.client().post("/v1/upstreams/samsara/resume").status == 202)
            for _ in 0..<8 {
                // Until some more were delivered, so that batches are in flight.
                let before = try samsara.values(of: "seq").count
                _ = eventually(within: .seconds(5), every: .milliseconds(5)) {
                    ((try? samsara.values(of: "seq").count) ?? 0) > before
                }
                try await gateway.kill()
                if Bool.random(using: &random) { disk.takeTheRest() }
                gateway = try await directory.start()
            }
            try gateway.waitUntilDelivered()
            #expect(Set(try samsara.values(of: "seq").compactMap { Int($0.value) }) == Set(0..<accepted))
            try await gateway.stop()
        }

        /// SQLite maps the index of the log; an access to a page without a block is SIGBUS. The kill may come before the pause
        /// is stored, so that the message is delivered.
        @Test(
            .timeLimit(.minutes(10)), .enabled(if: LoopDisk.isAllowed), arguments: ["ext4", "ext2"],
            [0, 8, 12, 20, 28, 64, 200])
        func start_isRefusedOrServes_butIsNotEndedByASignal(type: String, freeKiB: Int) async throws {
            let samsara = try HostedSimulator()
            let disk = try LoopDisk(megabytes: 24, blockSize: 1024, type: type)
            let directory = try directory(on: disk, samsara)
            let gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/upstreams/samsara/pause").status == 202)
            #expect(try gateway.client().post(eventPath, event(0)).status == 202)
            try await gateway.kill()
            let store = disk.folder + "/data/postern.sqlite"
            unlink(store + ".reserve")
            unlink(store + "-shm")
            disk.takeTheRest()
            disk.leave(freeKiB << 10)
            let process = try Binary.start(["serve", "--config", directory.config])
            if let next = try? await GatewayProcess(process, at: directory) {
                let upstream = try next.client().get("/v1/upstreams/samsara")
                #expect(
                    try upstream.json["queued"].int == 1 || samsara.values(of: "seq").count == 1, "\(upstream.text)")
                try await next.stop()
                return
            }
            let ended = try await process.end()
            #expect(ended.signal == nil && ended.exitCode == 73, "\(ended)")
            #expect(ended.errors.contains("the disk is full"), "\(ended.errors)")
            disk.giveBack()
            let last = try await directory.start()
            let upstream = try last.client().get("/v1/upstreams/samsara")
            #expect(try upstream.json["queued"].int == 1 || samsara.values(of: "seq").count == 1, "\(upstream.text)")
            try await last.stop()
        }

        @Test(.timeLimit(.minutes(10))) func firstRefusal_is507_ifTheLogHasNoRoom() async throws {
            let directory = try GatewayDirectory(Settings())
            let isFull = directory.folder.file("full")
            let process = try Binary.start(
                ["serve", "--config", directory.config],
                environment: try FileFaults.environment(
                    "enospc=10000,while=\(isFull)", below: directory.folder.file("data")))
            let gateway = try await GatewayProcess(process, at: directory)
            let client = try gateway.client()
            try Data().write(to: URL(filePath: isFull))
            for _ in 0..<2 {
                let refusal = try client.post(eventPath, event(1))
                #expect(refusal.status == 507 && refusal.json["type"].string == "urn:postern:problem:disk-full")
            }
            unlink(isFull)
            #expect(eventually { (try? client.post(eventPath, event(2)).status) == 202 })
            try await gateway.stop()
            #expect(try directory.audit().accounts.map(\.ledger.accepted) == [1])
        }
    }
}
