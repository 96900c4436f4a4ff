import ArgumentParser
import PosternCommands
import PosternGateway

struct Check: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Reports every problem of a configuration.",
        discussion:
            "Checks the file, the environment, and the secret files. Exits with 0, or 78 if there is a problem.")

    @Option(help: ArgumentHelp("The JSON file.", valueName: "file"))
    var config: String

    /// Empty for the configured one.
    @Option(
        defaultAsFlag: "",
        help: ArgumentHelp(
            "Check this store instead of the configured one, which is checked without a path, too.", valueName: "path"))
    var store: String?

    @Flag(help: "Write one JSON object, for programs.")
    var json = false

    func run() throws {
        let report = CheckReport(on: ConfigurationLoader(file: config, store: store == "" ? nil : store), asJSON: json)
        try writeResult(report.text)
        throw ExitCode(report.exitCode)
    }
}
