import ArgumentParser
import PosternApp

struct Healthcheck: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "healthcheck",
        abstract: "Asks a gateway whether it is ready.",
        discussion: "Exits with 0 when it is, else with 1 and one line why; for containers without curl.")

    @Option(help: ArgumentHelp("The gateway's address.", valueName: "url"))
    var url = "http://127.0.0.1:8080"

    func run() async throws {
        try await reportingAsync { () async throws(CommandFailure) in try await PosternApp.Healthcheck.run(url: url) }
    }
}
