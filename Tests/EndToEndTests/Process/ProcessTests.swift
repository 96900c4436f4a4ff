import Crypto
import Foundation
import PosternCore
import PosternTestKit
import Testing

extension EndToEnd {
    /// What an operator sees of the process from outside it.
    @Suite struct ProcessTests {
        @Test func startTime_isThatOfTheProcess_notOfTheFirstScrape() async throws {
            let before = Date().timeIntervalSince1970
            let gateway = try await GatewayDirectory(Settings()).start()
            let started = Date().timeIntervalSince1970
            // The kernel counts in ticks of 10 ms.
            let time = try #require(try gateway.sample("process_start_time_seconds"))
            #expect(before - 0.1 <= time && time <= started)
            try await gateway.stop()
        }

        /// Also after requests that are answered by other threads than those of their connections.
        @Test func everyThread_hasANameOfItsOwn_butTheMainOne() async throws {
            let gateway = try await GatewayDirectory(Settings(server: ["port": 0, "workerThreads": 2])).start()
            let client = try gateway.client()
            #expect(try client.get("/v1/messages").status == 200)
            let answer = try client.post("/v1/samsara/event", event(1), headers: [("Prefer", "wait=1")])
            #expect([200, 202, 502].contains(answer.status))
            let pid = "\(gateway.process.pid)"
            let tasks = "/proc/\(pid)/task"
            func names() -> Set<String> {
                let threads = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
                return Set(
                    threads.filter { $0 != pid }.compactMap {
                        try? String(contentsOfFile: "\(tasks)/\($0)/comm", encoding: .utf8)
                            .trimmingCharacters(in: .newlines)
                    })
            }
            let ours: Set = [
                "postern-accept", "postern-reaper", "postern-http-0", "postern-http-1", "postern-curl",
                "postern-writer", "postern-timer", "postern-reads-0", "to-samsara",
            ]
            // A thread names itself first of all, and so perhaps a moment after the gateway says that it listens.
            let areNamed = eventually {
                let names = names()
                return names.isSuperset(of: ours)
                    && names.allSatisfy { name in
                        name.hasPrefix("postern-") || name.hasPrefix("to-")
                            || Binary.hasThreadSanitizer && name == "postern"
                    }
            }
            #expect(areNamed, "\(names())")
            try await gateway.stop()
        }

        private static func allowingCoreDumps(in folder: String) -> [String] {
            ["/bin/sh", "-c", #"ulimit -c unlimited && cd "$1" && shift && exec "$@""#, "sh", folder]
        }

        /// Not every machine does, and some sandboxes forbid it.
        private static func machineWritesCoreDumps() async throws -> Bool {
            let folder = ScratchFolder()
            let crash = allowingCoreDumps(in: folder.path) + ["/bin/sh", "-c", "kill -ABRT $$"]
            defer { withExtendedLifetime(folder) {} }
            return try await ChildProcess(crash).end().dumpedCore
        }

        /// A core dump would contain payloads and secrets.
        @Test(.enabled("this machine writes no core dumps") { try await machineWritesCoreDumps() })
        func crash_writesNoCoreDump() async throws {
            let directory = try GatewayDirectory(Settings())
            // Swift's own handler of crashes would look at every thread first.
            let process = try Binary.start(
                ["serve", "--config", directory.config], environment: ["SWIFT_BACKTRACE": "enable=no"],
                through: Self.allowingCoreDumps(in: directory.folder.path))
            _ = try await GatewayProcess(process, at: directory)
            process.signal(SIGABRT)
            let ended = try await process.end()
            #expect(ended.signal == SIGABRT)
            #expect(!ended.dumpedCore)
        }

        /// Whatever the environment allows: files are for their owner alone.
        @Test func files_areForTheirOwner_underAnyMask() async throws {
            let directory = try GatewayDirectory(Settings())
            let gateway = try await directory.start(program: ["/bin/sh", "-c", #"umask 0; exec "$@""#, "sh"])
            #expect(try gateway.client().post("/v1/samsara/event", events(0..<100)).status == 202)
            let folder = directory.folder.file("data")
            func modes() throws -> [String: Int] {
                let names = try FileManager.default.contentsOfDirectory(atPath: folder)
                return Dictionary(uniqueKeysWithValues: try names.map { ($0, try mode("\(folder)/\($0)")) })
            }
            func mode(_ path: String) throws -> Int {
                try #require(FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int)
            }
            let running = try modes()
            #expect(running.keys.contains("postern.sqlite-wal") && running.keys.contains("postern.sqlite.reserve"))
            #expect(running.values.allSatisfy { $0 == 0o600 }, "\(running)")
            #expect(try mode(folder) == 0o700)
            try await gateway.stop()
            let stopped = try modes()
            #expect(!stopped.isEmpty && stopped.values.allSatisfy { $0 == 0o600 }, "\(stopped)")
        }

        private static let twoEvents = #"[{"sourceId":"a","eventName":"e"},{"sourceId":"b","eventName":"e"}]"#

        /// One log line for each request, with the id that its response carries.
        @Test func requests_areLogged_byTheirIDs() async throws {
            let directory = try GatewayDirectory(Settings(logLevel: "debug"))
            let gateway = try await directory.start()
            let client = try gateway.client()
            _ = try client.ask("GET", "/livez", headers: [("X-Request-Id", "first-1")])
            _ = try client.ask("GET", "/nothing", headers: [("X-Request-Id", "second-2")])
            let response = try client.ask(
                "POST", "/v1/samsara/event", Array(Self.twoEvents.utf8),
                headers: [("Content-Type", "application/json"), ("X-Request-Id", "third-3")])
            let ids = response.json["ids"].strings
            let ended = try await gateway.stop()
            let lines = ended.errors.split(separator: "\n")
            let answered = try #require(lines.first { $0.contains("request.id=first-1") })
            #expect(answered.contains(" debug request answered ") && answered.contains("route=/livez"))
            #expect(answered.contains("http.status=200") && answered.contains("durationMs="))
            let stored = try #require(lines.first { $0.contains("request.id=third-3") })
            #expect(stored.contains(" messages=2 ") && stored.contains(" bytes=\(Self.twoEvents.utf8.count) "))
            #expect(stored.contains(" message.id=\(ids[0]) "))
            let rejected = try #require(lines.first { $0.contains("request.id=second-2") })
            #expect(rejected.contains(" info request rejected ") && rejected.contains("problem=not-found"))
        }

        private func milliseconds(of line: Substring) -> Double? {
            line.split(separator: " ").first { $0.hasPrefix("durationMs=") }.flatMap { Double($0.dropFirst(11)) }
        }

        /// From the headers to the response: a request that is refused from its headers takes less than a millisecond,
        /// and a wrong key delays its response.
        @Test func requests_areLogged_withTheTimeTheyTook() async throws {
            var settings = Settings()
            settings.auth["keys"] = [
                ["name": "app", "sha256": SHA256.hash(data: Array("right".utf8)).hexadecimal, "scopes": ["read"]]
            ]
            let gateway = try await GatewayDirectory(settings).start()
            let client = try gateway.client()
            func timeToAnswer(_ key: String, _ status: Int) throws -> Double {
                let start = ContinuousClock.now
                let answer = try client.ask("GET", "/nothing", headers: [("Authorization", "Bearer \(key)")])
                #expect(answer.status == status)
                return (ContinuousClock.now - start).inMilliseconds
            }
            // The first ones are not delayed.
            for _ in 0..<12 { _ = try timeToAnswer("wrong", 401) }
            let took = [try timeToAnswer("wrong", 401), try timeToAnswer("right", 404)]
            let ended = try await gateway.stop()
            let lines = ended.errors.split(separator: "\n").filter { $0.contains(" request rejected ") }
            let logged = Array(lines.compactMap(milliseconds).suffix(2))
            try #require(logged.count == 2, "\(lines)")
            #expect(50 <= logged[0] && logged[0] <= took[0], "\(lines)")
            #expect(0 < logged[1] && logged[1] <= took[1], "\(lines)")
        }

        /// A client that is rejected in a loop must not fill the disk with the log.
        @Test func rejectedRequests_areLogged_50TimesASecondAtMost() async throws {
            let gateway = try await GatewayDirectory(Settings()).start()
            let client = try gateway.client()
            let start = ContinuousClock.now
            for _ in 0..<1000 { #expect(try client.get("/nothing").status == 404) }
            let seconds = Int((ContinuousClock.now - start).components.seconds) + 2
            let ended = try await gateway.stop()
            let lines = ended.errors.split(separator: "\n").count { $0.contains(" request rejected ") }
            #expect((50...50 * seconds).contains(lines))
        }
    }
}
