import Foundation
import PosternSimulatorKit
import PosternSimulators
import PosternTestKit
import Testing

extension EndToEnd {
    /// What the documents show is typed by newcomers first, so it is run as printed.
    @Suite struct Documents {
        private static let top = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()

        /// The usual ports of the types' simulators.
        private static let ports = Dictionary(
            uniqueKeysWithValues: SimulatorRegistry.all.enumerated().map { index, type in
                (type.name, Int(SimulatorHost.defaultPort) + index)
            })

        /// A gateway with simulated upstreams, and the addresses of the simulators by their usual ports.
        private func start() async throws -> (gateway: GatewayProcess, simulators: [Int: String]) {
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
            return (try await GatewayProcess(process, at: place), urls)
        }

        @Test(.timeLimit(.minutes(10))) func smokeTest_passes() async throws {
            let (gateway, _) = try await start()
            let script = Self.top.appending(path: "deploy/smoke.sh").path(percentEncoded: false)
            let ended = try await Binary.run(command: ["/bin/sh", script, "http://127.0.0.1:\(gateway.port)"])
            #expect(ended.exitCode == 0, "\(ended.output)\(ended.errors)")
            #expect(ended.output.contains("all checks passed"))
            try await gateway.stop()
        }

        /// The commands of every shell block that asks a gateway, each with the comment above it.
        private func commands(of page: String) throws -> [(comment: String, text: String)] {
            let page = try String(contentsOf: Self.top.appending(path: page), encoding: .utf8)
            func calls(in text: String) -> Int { text.components(separatedBy: "curl ").count - 1 }
            let blocks = page.components(separatedBy: "```sh\n").dropFirst()
                .compactMap { $0.components(separatedBy: "```").first }.filter { $0.contains("curl ") }
            var found: [(comment: String, text: String)] = []
            var comment = ""
            var text = ""
            for line in blocks.joined(separator: "\n").components(separatedBy: "\n") where !line.isEmpty {
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
            try #require(!found.isEmpty)
            try #require(calls(in: found.map(\.text).joined()) == calls(in: page), "a command is not understood")
            return found
        }

        @Test(.timeLimit(.minutes(10)), arguments: try ["README.md"] + Slice.all().map(\.page))
        func everyCommandOfThePage_works(page: String) async throws {
            let commands = try commands(of: page)
            let (gateway, simulators) = try await start()
            var session = ""
            for (comment, text) in commands {
                let status = text.contains("curl") ? " --write-out '\\n%{http_code}\\n'" : ""
                var command = text.replacingOccurrences(of: "127.0.0.1:8080", with: "127.0.0.1:\(gateway.port)")
                    .replacingOccurrences(of: "curl ", with: "curl\(status) ")
                    // The page says to use the id from the answer to the login.
                    .replacingOccurrences(of: "Hz1kPspd2Bk1", with: session)
                for (port, url) in simulators {
                    command = command.replacingOccurrences(of: "http://127.0.0.1:\(port)", with: url)
                }
                let ended = try await Binary.run(command: ["/bin/sh", "-c", command])
                #expect(ended.exitCode == 0, "\(text)\(ended.errors)")
                if text.contains("/sessions ") {
                    session = try String(#require(ended.output.firstMatch(of: /"id": ?"([^"]+)"/)).output.1)
                }
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
