import Foundation
import PosternCore
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// Clients that mean no good, or know no better, while others are served.
    @Suite struct Abuse {
        /// Runs `body` beside a client that is served all the time.
        private func beside(
            _ settings: Settings, _ body: (GatewayProcess) throws -> Void
        ) async throws {
            let place = try Place(settings)
            let gateway = try await place.start()
            let other = try gateway.client()
            #expect(try other.post(eventPath, event(1)).status == 202)
            try body(gateway)
            #expect(try other.post(eventPath, event(2)).status == 202)
            #expect(try gateway.client().get("/readyz").status == 200)
            try await gateway.stop()
            #expect(try place.audit().accounts[0].ledger.accepted == 2)
        }

        private var quick: Settings {
            Settings(server: ["port": 0, "headerTimeoutSeconds": 1, "shutdownGraceSeconds": 0])
        }

        @Test(.timeLimit(.minutes(10))) func drippedHeaders_areCutOff() async throws {
            try await beside(quick) { gateway in
                let slow = try gateway.client(patience: .milliseconds(50))
                let text = Array(
                    "POST \(eventPath) HTTP/1.1\r\nHost: t\r\nX-Filler: \(String(repeating: "x", count: 9000))".utf8)
                let start = ContinuousClock.now
                var isOpen = true
                for byte in text where isOpen {
                    isOpen = slow.send([byte])
                    // Takes its time: each look waits for what does not come.
                    do { _ = try slow.answer() } catch HTTPClient.Failure.deadline {} catch { isOpen = false }
                    if ContinuousClock.now - start > .seconds(20) { break }
                }
                #expect(!isOpen)
                #expect(ContinuousClock.now - start < .seconds(15))
            }
        }

        @Test(.timeLimit(.minutes(10))) func drippedBody_isCutOff() async throws {
            try await beside(quick) { gateway in
                let slow = try gateway.client()
                slow.send(
                    "POST \(eventPath) HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
                )
                try slow.waitForEnd()
            }
        }

        @Test(.timeLimit(.minutes(10))) func tenMebibytes_areRefused() async throws {
            try await beside(quick) { gateway in
                let announced = try gateway.client()
                announced.send(
                    "POST \(eventPath) HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
                        + "Content-Length: \(10 << 20)\r\n\r\n")
                #expect(try announced.answer().status == 413)

                let chunked = try gateway.client()
                chunked.send(
                    "POST \(eventPath) HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
                        + "Transfer-Encoding: chunked\r\n\r\n")
                let chunk = "10000\r\n" + String(repeating: " ", count: 0x10000) + "\r\n"
                for _ in 0..<160 where !chunked.send(chunk) { break }
                #expect(try chunked.answer().status == 413)
            }
        }

        @Test(.timeLimit(.minutes(10))) func twoFramings_areRefusedAndClosed() async throws {
            try await beside(quick) { gateway in
                let smuggler = try gateway.client()
                smuggler.send(
                    "POST \(eventPath) HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 4\r\n"
                        + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: t\r\n\r\n")
                #expect(try smuggler.answer().status == 400)
                try smuggler.waitForEnd()
            }
        }
    }

    /// What the documents say can be done, done as they say it.
    @Suite struct Walk {
        private static let top = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()

        /// The usual ports of the types' simulators.
        private static let ports = ["samsara": 9000, "seer": 9001, "curio": 9002, "streamone": 9004]

        /// A gateway with simulated upstreams, and the addresses of the simulators by their usual ports.
        private func start() async throws -> (place: Place, gateway: GatewayProcess, simulators: [Int: String]) {
            var settings = Settings()
            settings.upstreams = Self.ports.mapValues { _ in [:] }
            let place = try Place(settings)
            let process = try Binary(["serve", "--config", place.config, "--simulate"])
            var urls: [Int: String] = [:]
            // Lines come in the order of the types' names.
            for (type, port) in Self.ports.sorted(by: { $0.key < $1.key }) {
                let line = try await process.line(of: .errors) {
                    $0.contains("simulator started") && $0.contains("type=\(type) ")
                }
                let url = try #require(line.split(separator: " ").first { $0.hasPrefix("url=") })
                urls[port] = String(url.dropFirst(4))
            }
            return (place, try await GatewayProcess(process), urls)
        }

        @Test(.timeLimit(.minutes(10))) func smokeTest_passes() async throws {
            let (_, gateway, _) = try await start()
            let script = Self.top.appending(path: "deploy/smoke.sh").path(percentEncoded: false)
            let ended = try await Binary.run(command: ["/bin/sh", script, "http://127.0.0.1:\(gateway.port)"])
            #expect(ended.exitCode == 0, "\(ended.output)\(ended.errors)")
            #expect(ended.output.contains("all checks passed"))
            try await gateway.stop()
        }

        /// The commands between the marks, each with the comment above it.
        private func commands(of page: String) throws -> [(comment: String, text: String)] {
            let page = try String(contentsOf: Self.top.appending(path: page), encoding: .utf8)
            let parts = page.components(separatedBy: "<!-- walk -->").dropFirst()
                .compactMap { $0.components(separatedBy: "<!-- /walk -->").first }
            var found: [(comment: String, text: String)] = []
            var comment = ""
            var text = ""
            for line in parts.joined(separator: "\n").components(separatedBy: "\n") {
                if line.hasPrefix("```") || line.isEmpty { continue }
                if line.hasPrefix("#") {
                    comment = line
                    continue
                }
                text += line + "\n"
                // A command goes on after a backslash or a pipe, and inside a quoted text.
                guard !line.hasSuffix("\\"), !line.hasSuffix("|"), text.count(where: { $0 == "'" }).isMultiple(of: 2)
                else { continue }
                found.append((comment, text))
                text = ""
            }
            return found
        }

        @Test(.timeLimit(.minutes(10)), arguments: ["README.md", "docs/seer.md", "docs/curio.md", "docs/streamone.md"])
        func everyCommandOfThePage_works(page: String) async throws {
            let (_, gateway, simulators) = try await start()
            let commands = try commands(of: page)
            try #require(commands.count >= 7, "the walk is gone")
            for (comment, text) in commands {
                let status = text.contains("curl") ? " --write-out '\\n%{http_code}\\n'" : ""
                var command = text.replacingOccurrences(of: "127.0.0.1:8080", with: "127.0.0.1:\(gateway.port)")
                    .replacingOccurrences(of: "curl ", with: "curl\(status) ")
                for (port, url) in simulators {
                    command = command.replacingOccurrences(of: "http://127.0.0.1:\(port)", with: url)
                }
                let ended = try await Binary.run(command: ["/bin/sh", "-c", command])
                #expect(ended.exitCode == 0, "\(text)\(ended.errors)")
                let got = ended.output.split(separator: "\n").last.flatMap { Int($0) } ?? 0
                // The comment names a status where it is not a success.
                let named = comment.matches(of: /\b[345]\d\d\b/).compactMap { Int($0.output) }
                #expect((200..<300).contains(got) || named.contains(got), "\(comment)\n\(text)\(ended.output)")
                if let one = named.first { #expect(got == one, "\(comment)\n\(text)\(ended.output)") }
            }
            try await gateway.stop()
        }
    }
}
