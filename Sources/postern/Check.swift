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
            "Check this store instead of the configured one, which is checked without a path, too. Without this option, "
                + "PostgreSQL is not connected to.", valueName: "path"))
    var store: String?

    @Flag(help: "Write one JSON object, for programs.")
    var json = false

    func run() throws {
        var loader = ConfigurationLoader(file: config, store: store == "" ? nil : store)
        loader.connects = store != nil
        let report = CheckReport(on: loader, asJSON: json)
        try writeResult(report.text)
        throw ExitCode(report.exitCode)
    }
}
