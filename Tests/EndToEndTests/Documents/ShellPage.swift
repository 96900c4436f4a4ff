import Foundation
import PosternTestKit

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

    /// Why `shown`, an output on the page, could not have been `printed` at another time. Its members, and the values of
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
