import Foundation
import Glibc
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// `postern outbox restore`, killed before every seventh of its file changes. The calls of all kinds are tried one by
    /// one on a simulated disk, also in a second restore, in `InterruptionTests`.
    @Suite struct InterruptedRestore {
        private static let former = 40
        private static let saved = 20

        private let directory: GatewayDirectory
        /// With the store that a kill left: its last commits are only in the log.
        private let original: String
        private var backup: String { directory.folder.file("backup.sqlite") }
        private var store: String { directory.store }
        private var folder: String { directory.folder.file("data") }

        init() async throws {
            directory = try GatewayDirectory(Settings())
            original = directory.folder.file("original")
            let gateway = try await directory.start()
            let client = try gateway.client()
            #expect(try client.post("/v1/upstreams/samsara/pause").status == 202)
            #expect(try client.post(eventPath, events(0..<Self.saved)).status == 202)
            let made = try await Binary.run(["outbox", "backup", backup, "--store", store])
            #expect(made.exitCode == 0, "\(made.errors)")
            #expect(try client.post(eventPath, events(Self.saved..<Self.former)).status == 202)
            try await gateway.kill()
            try FileManager.default.moveItem(atPath: folder, toPath: original)
        }

        private func begin(with files: String) throws {
            try? FileManager.default.removeItem(atPath: folder)
            try FileManager.default.copyItem(atPath: files, toPath: folder)
        }

        /// Whether it came to its end before it was killed.
        private func restore(killedBefore change: Int? = nil) async throws -> Bool {
            let faults = try change.map { try FileFaults.environment("kill=\($0)", below: folder) } ?? [:]
            let ended = try await Binary.run(
                ["outbox", "restore", backup, "--store", store, "--json"], environment: faults)
            #expect(ended.exitCode == 0 || change != nil && ended.signal == SIGKILL, "\(ended)")
            return ended.exitCode == 0
        }

        /// 0 if there is none.
        private func size(_ file: String) -> Int {
            var status = stat()
            return stat(file, &status) == 0 ? Int(status.st_size) : 0
        }

        /// The paths of the stores that were replaced.
        private func kept() throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: folder)
                .filter { $0.wholeMatch(of: #/postern\.sqlite\.replaced-\d+/#) != nil }.map { folder + "/" + $0 }
        }

        /// How many messages a store accepted; nil unless it is whole.
        private func accepted(by path: String) throws -> Int? {
            let found = try StoreVerification.run(path)
            guard found.isSound else { return nil }
            return found.audit.accounts.reduce(0) { $0 + $1.ledger.accepted }
        }

        /// Checks what a kill left: the former store, the backup, or neither, with which no gateway starts.
        ///
        /// - Parameter seen: The combinations of files with which a start was tried.
        private func check(_ comment: Comment, _ seen: inout Set<String>) async throws {
            if size(store) > 0 {
                let found = try accepted(by: store)
                #expect(found == Self.former || found == Self.saved, comment)
            }
            let files = try FileManager.default.contentsOfDirectory(atPath: folder)
                .filter { size(folder + "/" + $0) > 0 }.map { $0.replacing(#/\d+/#, with: "") }
            guard seen.insert(files.sorted().joined(separator: " ")).inserted else { return }
            let left = directory.folder.file("left")
            try? FileManager.default.removeItem(atPath: left)
            try FileManager.default.copyItem(atPath: folder, toPath: left)
            let hasStore = size(store) > 0
            let process = try Binary.start(["serve", "--config", directory.config])
            if hasStore {
                try await GatewayProcess(process, at: directory).stop()
            } else {
                let refused = try? await process.end()
                #expect(refused?.exitCode == 73, "\(comment): \(files)")
                #expect(refused?.errors.contains("a restore was interrupted") == true, "\(comment): \(files)")
            }
            try begin(with: left)
        }

        private func checkRepeated(_ comment: Comment) async throws {
            #expect(try await restore(), comment)
            #expect(try accepted(by: store) == Self.saved, comment)
            let kept = try kept()
            #expect(try kept.contains { try accepted(by: $0) == Self.former }, "\(comment): \(kept)")
        }

        @Test(.timeLimit(.minutes(30)))
        func kill_beforeAFileChange_leavesAWholeStore_orOneThatIsRestoredAgain() async throws {
            var seen: Set<String> = []
            var change = 0
            while true {
                change += 7
                try begin(with: original)
                guard try await !restore(killedBefore: change) else { break }
                let comment: Comment = "change \(change)"
                try await check(comment, &seen)
                try await checkRepeated(comment)
            }
            #expect(change > 20)
        }
    }
}
