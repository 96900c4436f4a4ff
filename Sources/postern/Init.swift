import ArgumentParser
import PosternCommands
import PosternGateway

struct Init: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "init",
        abstract: "Writes a minimal configuration with comments, to begin with.",
        discussion: """
            It has one upstream: with --webhook an API of your own, with --type one of the types, and otherwise one of \
            type webhook whose URL has to be filled in. `postern check` accepts it.
            """)

    @Option(help: ArgumentHelp("The URL of an HTTP API that takes JSON.", valueName: "url"))
    var webhook: String?

    @Option(help: ArgumentHelp("The type of the upstream, e.g. seer.", valueName: "type"))
    var type: String?

    @Option(
        help: ArgumentHelp(
            "Create this file, accessible only to its owner, instead of writing to standard output. A file that exists is "
                + "left alone.", valueName: "file"))
    var output: String?

    func validate() throws {
        guard webhook == nil || type == nil else { throw ValidationError("--webhook and --type exclude each other.") }
        _ = try template()
    }

    func run() throws {
        let text = try template().text
        guard let output else { return try writeResult(text) }
        try reporting { () throws(CommandFailure) in try NewConfiguration.write(text, to: output) }
    }

    private func template() throws -> ConfigurationTemplate {
        do throws(ConfigurationTemplate.Refusal) {
            return try ConfigurationTemplate(ofType: type ?? "webhook", at: webhook)
        } catch {
            throw ValidationError(error.description)
        }
    }
}
