import ArgumentParser
import PosternGateway

struct Config: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Describes the configuration file.", subcommands: [ConfigSchema.self])
}

struct ConfigSchema: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "schema",
        abstract: "Prints the JSON Schema (2020-12) of the configuration file, for editors.",
        discussion: """
            It contains every setting with its kind, range, default, and meaning. `postern check` also knows the rules \
            beyond these, and the combinations.
            """)

    func run() throws { try writeResult(ConfigurationFileSchema().text) }
}
