import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// `make scenarios` does the same with 200 kills, and with more messages next to live traffic.
    @Suite struct Replayed {
        @Test(.timeLimit(.minutes(10)))
        func replay_queuesEachMessageOnce_inOrder_whenTheGatewayIsKilledRepeatedly() async throws {
            let samsara = try HostedSimulator()
            var settings = Settings(upstreamURL: samsara.url)
            settings.outbox["deliveredPayloadSeconds"] = 3600
            settings.delivery["batchMaxMessages"] = 20
            let directory = try GatewayDirectory(settings)
            var gateway = try await directory.start()
            var ids: [String] = []
            for first in stride(from: 0, to: 2000, by: 200) {
                ids += try gateway.client().post(eventPath, events(first..<first + 200)).json["ids"].strings
            }
            try gateway.waitUntilDelivered()
            let body = #"{"upstream":"samsara","id":"all"}"#
            #expect(try gateway.client().post("/v1/messages/replay", body).json["matched"].int == 2000)
            func operation() throws -> JSON { try gateway.client().get("/v1/operations/all").json }
            for _ in 0..<12 {
                // Right away, which is before a step or in the middle of one, or some steps later.
                let wanted = try (operation()["done"].int ?? 0) + Int.random(in: 0..<150)
                _ = try eventually(every: .milliseconds(1)) {
                    let found = try operation()
                    return found["finishedAt"].isThere || (found["done"].int ?? 0) >= wanted
                }
                try await gateway.kill()
                gateway = try await directory.start()
                #expect(try gateway.client().post("/v1/messages/replay", body).status == 200)
            }
            let isDone = try eventually { try operation()["finishedAt"].isThere }
            try #require(isDone)
            try gateway.waitUntilDelivered()
            let copies = try copies(gateway)
            #expect(copies.map(\.original) == ids.sorted(), "each once, in the order of the ids")
            #expect(copies.allSatisfy { $0.state == "delivered" })
            try await gateway.stop()
            let audit = try directory.audit()
            #expect(audit.isBalanced, "\(audit)")
            #expect(audit.accounts[0].ledger.delivered == 4000)
            var seen: Set<Int> = []
            let numbers = try samsara.values(of: "seq").compactMap { Int($0.value) }
            let first = numbers.filter { seen.insert($0).inserted }
            #expect(first == Array(0..<2000))
            #expect(try samsara.received["violationCount"].int == 0)
        }

        private func copies(_ gateway: GatewayProcess) throws -> [(original: String, state: String)] {
            var copies: [(original: String, state: String)] = []
            var cursor = ""
            repeat {
                let page = try gateway.client().get("/v1/messages?limit=1000\(cursor)").json
                for message in page["messages"].array {
                    if let original = message["replayOf"].string {
                        copies.append((original, message["state"].string ?? ""))
                    }
                }
                cursor = page["next"].string.map { "&cursor=\($0)" } ?? ""
            } while !cursor.isEmpty
            return copies
        }

        @Test(.timeLimit(.minutes(10)))
        func command_countsAndReplays_whatMatches() async throws {
            let samsara = try HostedSimulator()
            var settings = Settings(upstreamURL: samsara.url)
            settings.outbox["deliveredPayloadSeconds"] = 3600
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            _ = try gateway.client().post(eventPath, events(0..<10))
            try gateway.waitUntilDelivered()
            let url = ["--url", "http://127.0.0.1:\(gateway.port)"]
            let counted = try await Binary.run(["replay", "samsara", "--dry-run"] + url)
            #expect(counted.exitCode == 0 && counted.output.hasPrefix("10 messages with "), "\(counted)")
            let begun = try await Binary.run(["replay", "samsara", "--id", "one"] + url)
            #expect(begun.output.hasPrefix("10 messages are being replayed."), "\(begun)")
            let isDone = try eventually { try samsara.received["events"].int == 20 }
            #expect(isDone)
            let again = try await Binary.run(["replay", "samsara", "--id", "one"] + url)
            #expect(again.output.hasPrefix("The replay one was begun before"), "\(again)")
            let late = try await Binary.run(
                ["replay", "samsara", "--settled-after", "2099-01-01T00:00:00Z", "--dry-run"] + url)
            #expect(late.output.hasPrefix("0 messages"), "\(late)")
            let list = try await Binary.run(["operations"] + url)
            #expect(list.output.contains("replay") && list.output.contains("one"), "\(list)")
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)))
        func payloadsThatOutlastTheirReceipts_areAProblemOfTheConfiguration() async throws {
            var settings = Settings()
            settings.outbox = ["deliveredPayloadSeconds": 100, "deliveredRetentionSeconds": 99]
            let directory = try GatewayDirectory(settings)
            let checked = try await Binary.run(["check", "--config", directory.config])
            #expect(checked.exitCode == 78)
            let problem =
                "outbox.deliveredPayloadSeconds is 100; must not exceed outbox.deliveredRetentionSeconds, which is 99"
            withExtendedLifetime(directory) {
                #expect((checked.output + checked.errors).contains(problem), "\(checked)")
            }
        }
    }
}
