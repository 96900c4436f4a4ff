import Foundation
import Glibc
import PosternConformance
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// What systemd receives from the gateway.
    @Suite struct ServiceManagers {
        /// The manager's end: a socket for datagrams.
        final class Manager {
            let socket: Int32
            /// The assignments received so far, in order.
            private(set) var received: [String] = []

            /// `@`: in the abstract namespace.
            init(_ name: String) throws {
                socket = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
                var address = sockaddr_un()
                address.sun_family = sa_family_t(AF_UNIX)
                withUnsafeMutableBytes(of: &address.sun_path) { path in
                    path.copyBytes(from: Array(name.utf8))
                    if name.hasPrefix("@") { path[0] = 0 }
                }
                let length = socklen_t(MemoryLayout<sa_family_t>.size + name.utf8.count)
                let result = withUnsafePointer(to: &address) { address in
                    address.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(socket, $0, length) }
                }
                try #require(result == 0)
                var timeout = timeval(tv_sec: 0, tv_usec: 100_000)
                setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
            }

            deinit { close(socket) }

            /// Waits for the next matching assignment.
            func wait(for matches: (String) -> Bool) throws -> String {
                let end = ContinuousClock.now + longestWait
                var buffer = [UInt8](repeating: 0, count: 4096)
                while ContinuousClock.now < end {
                    let count = recv(socket, &buffer, buffer.count, 0)
                    guard count > 0 else { continue }
                    let lines = String(decoding: buffer[..<count], as: UTF8.self).split(separator: "\n").map(
                        String.init)
                    received += lines
                    if let found = lines.first(where: matches) { return found }
                }
                throw Missing(received: received)
            }

            struct Missing: Error { let received: [String] }
        }

        @Test(.timeLimit(.minutes(10)), arguments: [false, true])
        func serviceManager_isNotifiedOfStartStatusReloadAndStop(isAbstract: Bool) async throws {
            let directory = try GatewayDirectory(Settings())
            let name = isAbstract ? "@postern-test-\(getpid())" : directory.folder.file("notify")
            let manager = try Manager(name)
            let process = try Binary.start(
                ["serve", "--config", directory.config],
                environment: ["NOTIFY_SOCKET": name, "WATCHDOG_USEC": "600000"])
            let gateway = try await GatewayProcess(process, at: directory)
            _ = try manager.wait { $0 == "READY=1" }
            #expect(try gateway.client().get("/readyz").status == 200)
            #expect(manager.received.first == "READY=1")
            _ = try manager.wait { $0 == "WATCHDOG=1" }
            #expect(try gateway.client().post(eventPath, events(0..<7)).status == 202)
            _ = try manager.wait { $0.hasPrefix("STATUS=Accepting messages; 7 queued, ") }

            let signalledAt = Self.microseconds
            process.signal(SIGHUP)
            _ = try manager.wait { $0 == "RELOADING=1" }
            let reload = try #require(manager.received.last { $0.hasPrefix("MONOTONIC_USEC=") })
            let reloadedAt = try #require(Int(reload.dropFirst(15)))
            #expect(signalledAt <= reloadedAt && reloadedAt <= Self.microseconds)
            _ = try manager.wait { $0 == "READY=1" }
            process.signal(SIGTERM)
            _ = try manager.wait { $0 == "STOPPING=1" }
            #expect(try await process.end().exitCode == 0)
        }

        private static var microseconds: Int {
            var now = timespec()
            clock_gettime(CLOCK_MONOTONIC, &now)
            return now.tv_sec * 1_000_000 + now.tv_nsec / 1000
        }

        /// A hang of the writer, which only a stopped process shows from outside: nothing is fed.
        @Test(.timeLimit(.minutes(10))) func stoppedProcess_feedsNoWatchdog() async throws {
            let directory = try GatewayDirectory(Settings())
            let manager = try Manager(directory.folder.file("notify"))
            let process = try Binary.start(
                ["serve", "--config", directory.config],
                environment: ["NOTIFY_SOCKET": directory.folder.file("notify"), "WATCHDOG_USEC": "300000"])
            _ = try manager.wait { $0 == "WATCHDOG=1" }
            process.signal(SIGSTOP)
            var buffer = [UInt8](repeating: 0, count: 4096)
            // Discards the notifications that were sent before the stop.
            while recv(manager.socket, &buffer, buffer.count, 0) > 0 {}
            #expect(recv(manager.socket, &buffer, buffer.count, 0) < 0)
            process.signal(SIGCONT)
            _ = try manager.wait { $0 == "WATCHDOG=1" }
            process.signal(SIGTERM)
            #expect(try await process.end().exitCode == 0)
        }

        // MARK: Sockets that are passed

        private func start(in directory: GatewayDirectory, passing socket: Int32) throws -> ChildProcess {
            // The number of the process is known when it has started.
            let shell = ["/bin/sh", "-c", "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"", "sh"]
            return try ChildProcess(
                shell + [Binary.path, "serve", "--config", directory.config], passing: socket)
        }

        @Test(.timeLimit(.minutes(10))) func callers_waitWhileTheGatewayRestarts_ifTheManagerListens() async throws {
            let socket = boundSocket()
            defer { close(socket) }
            try #require(listen(socket, 16) == 0)
            // Another port than the one that is configured.
            var settings = Settings()
            settings.server["port"] = 1
            let directory = try GatewayDirectory(settings)
            for round in 1...2 {
                // It connects, and sends, before there is a gateway.
                let client = try HTTPClient(port: port(of: socket))
                client.sendRequest(
                    "POST", eventPath, Array(event(round).utf8), headers: [("Content-Type", "application/json")])
                let gateway = try await GatewayProcess(start(in: directory, passing: socket), at: directory)
                #expect(gateway.port == port(of: socket))
                #expect(try client.answer().status == 202, "round \(round)")
                // What is passed is no change of the configuration.
                gateway.process.signal(SIGHUP)
                _ = try await gateway.process.line(of: .errors) { $0.contains("reloaded") }
                #expect(try gateway.client().get("/readyz").status == 200)
                let errors = try await gateway.stop().errors
                #expect(!errors.contains("server.port"), "\(errors)")
            }
            #expect(try directory.audit().accounts.map(\.ledger.accepted) == [2])
        }

        /// Where the manager listens decides who may call without a key, not the configuration.
        @Test func socketForEverybody_isRefused_withoutKeys() async throws {
            let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            defer { close(socket) }
            // Not bound, so to any address.
            try #require(socket >= 0 && listen(socket, 16) == 0)
            let directory = try GatewayDirectory(Settings())
            let ended = try await start(in: directory, passing: socket).end()
            #expect(ended.exitCode == 78, "\(ended.errors)")
            #expect(ended.errors.contains("POSTERN_SERVER_HOST"), "\(ended.errors)")
        }

        // MARK: The unit

        private static let hasAnalyzer = ChildProcess.succeeds(["/usr/bin/systemd-analyze", "--version"])

        @Test(.enabled(if: hasAnalyzer)) func unit_isValid_andExposesLittle() async throws {
            let folder = ScratchFolder()
            // The program has to exist where the unit starts it.
            let text = try String(contentsOfFile: Fixture.top + "/deploy/systemd/postern.service", encoding: .utf8)
            try text.replacing("/usr/local/bin/postern", with: Binary.path)
                .write(toFile: folder.file("postern.service"), atomically: true, encoding: .utf8)
            try FileManager.default.copyItem(
                atPath: Fixture.top + "/deploy/systemd/postern.socket", toPath: folder.file("postern.socket"))
            let verified = try await ChildProcess([
                "/usr/bin/systemd-analyze", "verify", "--man=no", "--recursive-errors=one",
                folder.file("postern.service"), folder.file("postern.socket"),
            ]).end()
            #expect(verified.exitCode == 0, "\(verified.errors)")
            #expect(verified.errors.isEmpty, "\(verified.errors)")
            // In tenths: docs/operations.md names the figure.
            let exposure = try await ChildProcess([
                "/usr/bin/systemd-analyze", "security", "--offline=true", "--threshold=15",
                folder.file("postern.service"),
            ]).end()
            #expect(exposure.exitCode == 0, "\(exposure.output)")
        }
    }
}
