import Foundation
import Glibc
import PosternConformance
import PosternTestKit
import Testing

extension EndToEnd {
    /// A gateway to which the system does not give threads or descriptors says so.
    @Suite struct Limit {
        private static let isRoot = geteuid() == 0

        /// As user 54321, who has no other process. The limit counts the threads of all processes of a user.
        private static func program(withThreads count: Int, for folder: String) -> [String] {
            let script = """
                mkdir -p "$0" && chown 54321:54321 "$0" && ulimit -u \(count) && \
                exec setpriv --reuid 54321 --regid 54321 --clear-groups "$@"
                """
            return ["/bin/bash", "-c", script, folder]
        }

        /// The arguments of `postern` that get as far as they can with each number of threads, until they succeed.
        @Test(.timeLimit(.minutes(10)), .enabled(if: isRoot && !Binary.isSanitized))
        func start_isRefusedWithTheReason_withTooFewThreads() async throws {
            let directory = try GatewayDirectory(Settings())
            var refusals = 0
            for count in 1... {
                let program = Self.program(withThreads: count, for: directory.folder.file("data"))
                let process = try Binary.start(["serve", "--config", directory.config], through: program)
                let hasStarted = try? await process.line(of: .errors) { $0.contains(" started ") }
                if hasStarted != nil { process.signal(SIGTERM) }
                let ended = try await process.end()
                if hasStarted != nil {
                    #expect(ended.exitCode == 0, "\(ended.errors)")
                    break
                }
                refusals += 1
                #expect(ended.exitCode == 71, "with \(count) threads: \(ended.errors)")
                #expect(ended.errors.contains("cannot start the thread postern-"), "\(ended.errors)")
                #expect(ended.errors.contains("raise the limit of processes and threads"), "\(ended.errors)")
                try #require(count < 100)
            }
            // One for each thread that it is certain to need.
            #expect(refusals >= 10)
        }

        private static let asUser = [
            "/usr/bin/setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", "/usr/bin/prlimit",
        ]

        /// Nothing listens there.
        private static let platform = [
            "type": "streamone", "apiUrl": "http://127.0.0.1:9", "id": "9yC-4pQxT_2a",
            "psk": "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu",
        ]

        /// A name of this machine that leads to loopback. The resolver of libcurl does not look for `localhost`.
        private static let nameOfLoopback: String? = {
            let lines = (try? String(contentsOfFile: "/etc/hosts", encoding: .utf8))?.split(separator: "\n") ?? []
            let names = lines.map { $0.split(whereSeparator: \.isWhitespace) }.filter { $0.first == "127.0.0.1" }
            return names.flatMap { $0.dropFirst() }.first { !$0.contains("localhost") && !$0.hasPrefix("#") }.map(
                String.init)
        }()

        /// The only threads that are started later are those on which libcurl resolves names.
        @Test(.timeLimit(.minutes(10)), .enabled(if: isRoot && !Binary.isSanitized && nameOfLoopback != nil))
        func delivery_saysWhy_andIsTriedAgain_ifNoThreadCanResolveTheName() async throws {
            let hook = try HostedSimulator("webhook")
            let name = try #require(Self.nameOfLoopback)
            var settings = Settings(upstreams: [
                "hook": ["type": "webhook", "url": hook.url.replacing("127.0.0.1", with: name)],
                "one": Self.platform.merging(["apiUrl": "http://\(name):9"]) { $1 },
            ])
            settings.delivery = ["retryBaseSeconds": 0.05, "retryMaxSeconds": 0.1]
            let directory = try GatewayDirectory(settings)
            let program = Self.program(withThreads: 100, for: directory.folder.file("data"))
            let gateway = try await directory.start(program: program)
            let process = "\(gateway.process.pid)"
            try #require(ChildProcess.succeeds(Self.asUser + ["--pid", process, "--nproc=1:"]))
            let reason =
                "cannot start the thread that resolves the name: Resource temporarily unavailable; raise the limit"
            let client = try gateway.client()
            for path in ["/v1/upstreams/one/probe", "/v1/one/proxy/item/view"] {
                let refusal = try client.post(path, "")
                #expect(refusal.status == 503 && refusal.header("Retry-After") == "5", "\(refusal)")
                #expect(refusal.json["detail"].string?.contains(reason) == true)
                _ = try await gateway.process.line(of: .errors) {
                    $0.contains("request of a caller failed") && $0.contains(reason)
                }
            }
            let id = try #require(try client.post("/v1/hook/event", "{}").json["id"].string)
            let line = try await gateway.process.line(of: .errors) { $0.contains("batch attempted") }
            #expect(line.contains(reason), "\(line)")
            // The line precedes the commit.
            let isStored = try eventually {
                try gateway.message(id)["lastError"]["detail"].string?.contains(reason) == true
            }
            #expect(isStored)
            try #require(ChildProcess.succeeds(Self.asUser + ["--pid", process, "--nproc=100:"]))
            try gateway.waitForState("delivered", of: id)
            try await gateway.stop()
        }

        /// Every request is answered by the threads that the start has begun.
        @Test(.timeLimit(.minutes(10)), .enabled(if: isRoot && !Binary.isSanitized))
        func requests_areAnswered_ifNoThreadCanBeAdded() async throws {
            let directory = try GatewayDirectory(
                Settings(upstreams: [
                    "hook": ["type": "webhook"],
                    "one": Self.platform,
                ]))
            let program = Self.program(withThreads: 100, for: directory.folder.file("data"))
            let gateway = try await directory.start(program: program)
            let limit = ["--pid", "\(gateway.process.pid)", "--nproc=1:1"]
            try #require(ChildProcess.succeeds(Self.asUser + limit))
            let client = try gateway.client()
            let dryRun = try client.post("/v1/hook/event?dryRun=true", "{}")
            #expect(dryRun.status == 200, "\(dryRun)")
            #expect(try client.post("/v1/hook/event", "{}").status == 202)
            #expect(try client.get("/v1/messages?upstream=hook").status == 200)
            // Those that wait for a response of an upstream, too.
            #expect(try client.post("/v1/upstreams/one/probe", "").json["outcome"].string == "unreachable")
            #expect(
                try client.post("/v1/one/sessions", #"{"username":"a","password":"b","userip":"1.2.3.4"}"#).status
                    >= 500)
            try await gateway.stop()
        }

        @Test(.enabled(if: isRoot && !Binary.isSanitized))
        func command_isRefusedWithTheReason_withTooFewThreads() async throws {
            let directory = try GatewayDirectory(Settings())
            let program = Self.program(withThreads: 1, for: directory.folder.file("data"))
            let ended = try await Binary.start(["healthcheck", "--config", directory.config], through: program).end()
            #expect(ended.exitCode == 71)
            #expect(ended.errors.contains("cannot start the thread postern-"), "\(ended.errors)")
        }

        /// Some are needed before the first line of the gateway; with those, it says what it lacks.
        @Test(.timeLimit(.minutes(10)), .enabled(if: !Binary.isSanitized), arguments: [12, 16, 20, 24, 32, 48, 63])
        func start_isRefusedWithTheReason_withTooFewDescriptors(count: Int) async throws {
            let directory = try GatewayDirectory(Settings())
            let limit = ["/bin/bash", "-c", #"ulimit -n \#(count); exec "$0" "$@""#]
            let ended = try await Binary.start(["serve", "--config", directory.config], through: limit).end()
            #expect(ended.exitCode == 71, "\(ended.errors)")
            #expect(
                ended.errors.contains("The limit of open files is \(count), and the gateway requires at least 64"),
                "\(ended.errors)")
        }

        /// More threads that serve connections need more descriptors than the least.
        @Test(.timeLimit(.minutes(10)), .enabled(if: !Binary.isSanitized))
        func start_isRefusedWithTheReason_ifItsThreadsNeedMoreDescriptors() async throws {
            let directory = try GatewayDirectory(Settings(server: ["port": 0, "workerThreads": 64]))
            let limit = ["/bin/bash", "-c", #"ulimit -n 100; exec "$0" "$@""#]
            let ended = try await Binary.start(["serve", "--config", directory.config], through: limit).end()
            #expect(ended.exitCode == 71, "\(ended.errors)")
            #expect(ended.errors.contains("no file descriptors are left"), "\(ended.errors)")
        }
    }
}
