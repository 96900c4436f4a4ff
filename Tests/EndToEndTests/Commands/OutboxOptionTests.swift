import PosternConformance
import PosternCore
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// The options that select messages, of every subcommand of `postern outbox` that has them.
    @Suite struct OutboxOptions {
        private static let keys = ["sent", "bad-1", "bad-2", "late-1", "late-2"]

        /// A gateway that is paused: one message was delivered, two failed, and two wait.
        private func withMessages(
            _ body: (_ directory: GatewayDirectory, _ gateway: GatewayProcess, Facts) async throws -> Void
        ) async throws {
            let samsara = try HostedSimulator(faults: "poison=eventName:bad:413")
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            let gateway = try await directory.start()
            let client = try gateway.client()
            func post(_ keys: ArraySlice<String>, name: String) throws -> [String] {
                let envelopes = keys.map {
                    #"{"upstream":"samsara","kind":"event","key":"\#($0)","payload":\#(event(1, name: name))}"#
                }
                let answer = try client.post("/v1/messages", "[\(envelopes.joined(separator: ","))]")
                return try #require(answer.json["ids"].isThere ? answer.json["ids"].strings : nil, "\(answer.text)")
            }
            _ = try post(Self.keys[..<1], name: "good")
            _ = try post(Self.keys[1..<3], name: "bad")
            try gateway.waitUntilDelivered()
            _ = try client.post("/v1/upstreams/samsara/pause")
            try #require(try eventually { try gateway.upstream()["health"].string == "paused" })
            let late = try post(Self.keys[3...], name: "good")
            let failures = try client.get("/v1/upstreams/samsara/failures").json["failures"].array
            try #require(failures.count == 1 && failures[0]["count"].int == 2)
            try await body(
                directory, gateway,
                Facts(
                    group: try #require(failures[0]["id"].string),
                    late: try #require(try client.get("/v1/messages/\(late[0])").json["createdAt"].string)))
        }

        private struct Facts {
            /// The error group of the failed messages.
            let group: String
            /// The time at which the waiting messages were accepted.
            let late: String

            /// Options that select exactly the messages that failed, or if one of them is `wrong`, none.
            func arguments(wrong: String? = nil) -> [String] {
                options.flatMap { [$0.name, $0.name == wrong ? $0.wrong : $0.right] }
            }

            /// Each option with a value that selects exactly the messages that failed, and one that selects none of
            /// them.
            var options: [(name: String, right: String, wrong: String)] {
                [
                    ("--kind", "event", "note"), ("--error-class", "refused", "timeout"),
                    ("--error-text", "http 413", "http 500"), ("--group", group, "0123456789abcdef"),
                    ("--created-before", late, "2001-01-31T12:00:00Z"),
                    ("--created-after", "2001-01-31T12:00:00Z", late),
                ]
            }
        }

        private func lines(_ arguments: [String]) async throws -> [JSON] {
            let ended = try await Binary.run(["outbox"] + arguments)
            #expect(ended.exitCode == 0, "\(arguments): \(ended.errors)")
            return ended.output.split(separator: "\n").map { JSON(Array($0.utf8)) }
        }

        private func keys(_ arguments: [String]) async throws -> [String] {
            try await lines(["list", "--json"] + arguments).flatMap { $0["messages"].array }.compactMap {
                $0["key"].string
            }
        }

        @Test(.timeLimit(.minutes(10))) func listAndExport_takeEveryOption() async throws {
            try await withMessages { directory, gateway, facts in
                let (all, store) = (Self.keys, ["--store", directory.store])
                let failed = Array(all[1...2])
                func check(_ options: [String], _ expected: [String]) async throws {
                    #expect(try await keys(store + options) == expected, "\(options)")
                    let exported = try await lines(["export"] + store + options).map { $0["key"].string ?? "" }
                    #expect(exported == expected, "\(options)")
                }
                try await check([], all)
                try await check(["--upstream", "samsara"], all)
                try await check(["--key", "late-2"], ["late-2"])
                for state in ["delivered", "failed", "queued"] {
                    let expected = ["delivered": Array(all[..<1]), "failed": failed, "queued": Array(all[3...])]
                    try await check(["--state", state], expected[state] ?? [])
                }
                for option in facts.options {
                    try await check(["--state", "failed", option.name, option.right], failed)
                    try await check(["--state", "failed", option.name, option.wrong], [])
                }

                let full = try await Binary.start(
                    ["outbox", "export"] + store, through: ["/bin/sh", "-c", #"exec "$0" "$@" >/dev/full"#]
                ).end()
                #expect(full.exitCode == 1)

                // Only `outbox list` has this option.
                #expect(try await keys(store + ["--waiting-for", "pause"]) == Array(all[3...]))
                #expect(try await keys(store + ["--waiting-for", "pause", "--key", "late-2"]) == ["late-2"])
                #expect(try await keys(store + ["--waiting-for", "retry"]) == [])
                for (order, expected) in [("oldest", all), ("newest", all.reversed())] {
                    var (found, cursor) = ([String](), [String]())
                    repeat {
                        let page = try await lines(
                            ["list", "--json", "--order", order, "--limit", "2"] + store + cursor)
                        found += page[0]["messages"].array.compactMap { $0["key"].string }
                        cursor = page[0]["next"].string.map { ["--cursor", $0] } ?? []
                    } while !cursor.isEmpty && found.count < 10
                    #expect(found == expected, "\(order)")
                }
                var waiting = try await lines(["list", "--json", "--waiting-for", "pause", "--limit", "1"] + store)
                #expect(waiting[0]["messages"].array.compactMap { $0["key"].string } == ["late-1"])
                let cursor = try #require(waiting[0]["next"].string)
                waiting = try await lines(
                    ["list", "--json", "--waiting-for", "pause", "--limit", "1", "--cursor", cursor] + store)
                #expect(waiting[0]["messages"].array.compactMap { $0["key"].string } == ["late-2"])
                try await gateway.stop()
            }
        }

        /// Once through the gateway, and once in the store.
        @Test(.timeLimit(.minutes(10))) func retryAndCancel_takeEveryOption() async throws {
            try await withMessages { directory, gateway, facts in
                let common = ["--upstream", "samsara", "--config", directory.config, "--json"]
                func count(_ command: String, _ options: [String]) async throws -> Int? {
                    let answer = try await lines([command] + common + options)
                    return answer.first?[command == "retry" ? "retried" : "cancelled"].int
                }
                func checkBoth(_ key: String, _ gateway: [String]) async throws {
                    let more = ["--key", key] + gateway
                    let right = facts.arguments() + more
                    for (name, _, _) in facts.options {
                        #expect(try await count("retry", facts.arguments(wrong: name) + more) == 0, "\(name)")
                    }
                    #expect(try await count("retry", facts.arguments() + ["--key", "none"] + gateway) == 0)
                    #expect(try await count("retry", right + ["--state", "dropped"]) == 0)
                    #expect(try await count("retry", right + ["--state", "failed"]) == 1)
                    for (name, _, _) in facts.options {
                        #expect(try await count("cancel", facts.arguments(wrong: name) + more) == 0, "\(name)")
                    }
                    #expect(try await count("cancel", facts.arguments() + ["--key", "none"] + gateway) == 0)
                    // First a preview that counts them, then the cancellation.
                    #expect(try await count("cancel", right + ["--state", "queued"]) == 1)
                    #expect(try await count("cancel", right + ["--yes"]) == 1)
                    #expect(try await count("cancel", right + ["--yes"]) == 0)
                }
                try await checkBoth("bad-1", ["--url", "http://127.0.0.1:\(gateway.port)"])
                try await gateway.stop()
                try await checkBoth("bad-2", [])
                #expect(
                    try await keys(["--store", directory.store, "--state", "cancelled"]) == Array(Self.keys[1...2]))
                #expect(try directory.audit().isBalanced)
            }
        }
    }
}
