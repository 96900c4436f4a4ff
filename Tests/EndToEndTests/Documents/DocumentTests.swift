import Foundation
import PosternSimulatorKit
import PosternSimulators
import PosternTestKit
import Testing

extension EndToEnd {
    /// What the pages show is typed by newcomers first, so it is run as printed, and has to print what they show.
    @Suite struct Documents {
        /// The usual ports of the types' simulators.
        private static let ports = Dictionary(
            uniqueKeysWithValues: SimulatorRegistry.all.enumerated().map { index, type in
                (type.name, Int(SimulatorHost.defaultPort) + index)
            })

        /// A gateway with simulated upstreams, and the addresses of the simulators by their usual ports.
        private func start() async throws -> (gateway: GatewayProcess, folder: String, simulators: [Int: String]) {
            var settings = Settings()
            // The pages are written for the defaults.
            (settings.delivery, settings.outbox) = ([:], ["encryptionKey": ""])
            settings.upstreams = Self.ports.mapValues { _ in [:] }
            settings.upstreams?["samsara"] = ["sdk": ["enabled": true, "anonymous": true]]
            settings.upstreams?["seer"] = ["sdk": ["enabled": true]]
            settings.upstreams?["curio"] = ["sdk": ["enabled": true]]
            settings.upstreams?["appservices"] = ["sdk": ["enabled": true]]
            settings.upstreams?["streamone"] = ["sdk": ["enabled": true, "queueActions": ["item/edit"]]]
            let directory = try GatewayDirectory(settings)
            let process = try Binary.start(["serve", "--config", directory.config, "--simulate"])
            var urls: [Int: String] = [:]
            // Lines come in the order of the types' names.
            for (type, port) in Self.ports.sorted(by: { $0.key < $1.key }) {
                let line = try await process.line(of: .errors) {
                    $0.contains("simulator started") && $0.contains("type=\(type) ")
                }
                let url = try #require(line.split(separator: " ").first { $0.hasPrefix("url=") })
                urls[port] = String(url.dropFirst(4))
            }
            return (try await GatewayProcess(process, at: directory), directory.folder.path, urls)
        }

        @Test(.timeLimit(.minutes(10))) func smokeTest_passes() async throws {
            let (gateway, _, _) = try await start()
            let script = Fixture.top + "/deploy/smoke.sh"
            let ended = try await ChildProcess(
                ["/bin/sh", script, "http://127.0.0.1:\(gateway.port)"], environment: ["SMOKE_TRIES": "300"]
            ).end()
            #expect(ended.exitCode == 0, "\(ended.output)\(ended.errors)")
            #expect(ended.output.contains("all checks passed"))
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)), arguments: try ShellPage.all())
        func everyCommandOfThePage_works(page: String) async throws {
            let steps = try ShellPage(page).steps
            let (gateway, folder, simulators) = try await start()
            var variables = ""
            var last: (text: String, command: String, output: String) = ("", "", "")
            for step in steps {
                switch step {
                case .output(let shown, let isJSON):
                    try await expect(shown, isJSON: isJSON, of: last)
                case .command(let text, let comment):
                    if try isForTheTree(text) { continue }
                    var command = text.replacingOccurrences(of: "127.0.0.1:8080", with: "127.0.0.1:\(gateway.port)")
                    for (port, url) in simulators {
                        command = command.replacingOccurrences(of: "http://127.0.0.1:\(port)", with: url)
                    }
                    // The pauses are for people: what the page asks is asked again until the output agrees. How long a
                    // page waits for a delivery is for a machine that does nothing else.
                    command.replace(#/Prefer: wait=[0-9]+/#, with: "Prefer: wait=60")
                    command =
                        "cd '\(folder)'\npostern() { '\(Binary.path)' \"$@\"; }\nsleep() { command sleep 0.2; }\n"
                        + variables + command
                    // Each command has a shell of its own.
                    if let name = text.prefixMatch(of: /(\w+)=\$\(/)?.output.1 {
                        let ended = try await ChildProcess(["/bin/sh", "-c", "\(command)printf %s \"$\(name)\""]).end()
                        #expect(ended.exitCode == 0 && !ended.output.isEmpty, "\(text)\(ended.errors)")
                        variables += "\(name)='\(ended.output)'\n"
                        continue
                    }
                    last = (text, command, try await run(command, text: text, comment: comment))
                }
            }
            try await gateway.stop()
        }

        /// Whether the command works on the source tree, which a test leaves alone; it has to be there.
        private func isForTheTree(_ text: String) throws -> Bool {
            let words = text.split(whereSeparator: \.isWhitespace)
            if words.first == "make" {
                let makefile = String(decoding: try Fixture.bytes(inPackage: "Makefile"), as: UTF8.self)
                for target in words.dropFirst() where !target.contains("=") {
                    #expect(makefile.contains("\n\(target):"), "\(text)")
                }
                return true
            }
            guard let script = words.first, script.hasPrefix("scripts/") else { return false }
            #expect(FileManager.default.isExecutableFile(atPath: "\(Fixture.top)/\(script)"), "\(text)")
            return true
        }

        /// Runs a command of a page, and returns what it printed.
        private func run(_ command: String, text: String, comment: String) async throws -> String {
            let isCall = text.contains("curl ")
            let written =
                isCall
                ? command.replacingOccurrences(of: "curl ", with: "curl --write-out '\\n%{http_code}\\n' ") : command
            let ended = try await ChildProcess(["/bin/sh", "-c", written]).end()
            #expect(ended.exitCode == 0, "\(text)\(ended.errors)")
            guard isCall else { return ended.output }
            let got = ended.output.split(separator: "\n").last.flatMap { Int($0) } ?? 0
            // The comment names a status where it is not a success.
            let named = comment.matches(of: /\b[345]\d\d\b/).compactMap { Int($0.output) }
            #expect(named.first.map { $0 == got } ?? (200..<300).contains(got), "\(comment)\n\(text)\(ended.output)")
            return ended.output
        }

        /// Compares the output on the page with that of the command above it, which is run again until they agree if it
        /// only asks.
        private func expect(
            _ shown: String, isJSON: Bool, of last: (text: String, command: String, output: String)
        ) async throws {
            let end = ContinuousClock.now + longestWait
            var output = last.output
            let isQuestion = !last.text.contains(" -d ") && !last.text.contains("-X") && !last.text.contains("--data")
            while let difference = ShellPage.difference(between: shown, isJSON: isJSON, and: output) {
                guard isQuestion, ContinuousClock.now < end else {
                    Issue.record("\(difference) after\n\(last.text)\(output)")
                    return
                }
                output = try await ChildProcess(["/bin/sh", "-c", last.command]).end().output
            }
        }
    }
}

/// A Markdown page whose shell blocks are run, and what it shows of their output.
struct ShellPage {
    enum Step {
        /// A command with the comment above it.
        case command(String, comment: String)
        /// A block right after a shell block: what the last command printed.
        case output(String, isJSON: Bool)
    }

    struct Failure: Error, CustomStringConvertible { let description: String }

    let steps: [Step]

    /// The paths of the pages with shell blocks.
    static func all() throws -> [String] { try Page.all().filter { $0.text.contains("```sh\n") }.map(\.path) }

    init(_ page: String) throws {
        let text = try Page(page).text
        var steps: [Step] = []
        // Every other part is inside a fence; its first line names the language.
        let parts = text.components(separatedBy: "```")
        for (index, part) in parts.enumerated() where !index.isMultiple(of: 2) {
            let language = part.prefix { $0 != "\n" }
            let body = String(part.dropFirst(language.count + 1))
            if language == "sh" {
                steps += try Self.commands(in: body)
            } else if index >= 3, parts[index - 1] == "\n", parts[index - 2].hasPrefix("sh\n") {
                steps.append(.output(body, isJSON: language == "json"))
            }
        }
        func calls(in text: String) -> Int { text.components(separatedBy: "curl ").count - 1 }
        let commands = steps.map { if case .command(let text, _) = $0 { text } else { "" } }
        guard calls(in: commands.joined()) == calls(in: text) else {
            throw Failure(description: "\(page): a curl is not in a shell block, or a command is not understood")
        }
        self.steps = steps
    }

    private static func commands(in block: String) throws -> [Step] {
        var steps: [Step] = []
        var comment = ""
        var text = ""
        for line in block.components(separatedBy: "\n") where !line.isEmpty {
            if line.hasPrefix("#"), text.isEmpty {
                comment = line
                continue
            }
            text += line + "\n"
            // A command goes on after a backslash or a pipe, and inside a quoted text.
            guard !line.hasSuffix("\\"), !line.hasSuffix("|"), text.count(where: { $0 == "'" }).isMultiple(of: 2)
            else { continue }
            steps.append(.command(text, comment: comment))
            text = ""
        }
        guard text.isEmpty else { throw Failure(description: "a command does not end: \(text)") }
        return steps
    }

    /// Why `shown`, an output on the page, does not match what the command `printed`. Its members, and the values of
    /// those that explain something, have to be there. Of a table the heading is compared.
    static func difference(between shown: String, isJSON: Bool, and printed: String) -> String? {
        func words(_ text: some StringProtocol) -> String { text.split { $0.isWhitespace }.joined(separator: " ") }
        guard isJSON else {
            let heading = words(shown.prefix { $0 != "\n" })
            return words(printed).contains(heading) ? nil : "no heading \(heading)"
        }
        let printed = words(printed).replacing(": ", with: ":")
        let pairs = words(shown).replacing(": ", with: ":").matches(of: #/"(\w+)":("[^"]*"|[\w.]*)/#)
        let telling: Set = ["state", "health", "waitingFor", "class", "status", "outcome", "remaining", "failed"]
        for pair in pairs {
            let wanted = telling.contains(String(pair.1)) ? pair.0 : "\"\(pair.1)\":"
            if !printed.contains(wanted) { return "no \(wanted)" }
        }
        return nil
    }
}
