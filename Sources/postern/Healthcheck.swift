import ArgumentParser
import PosternCommands

struct Healthcheck: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "healthcheck",
        abstract: "Checks whether a gateway is ready.",
        discussion: "Exits with 0 if it is, or else with 1 and the reason in one line; for containers without curl.")

    @Option(
        help: ArgumentHelp(
            "The gateway's configuration, which contains its address and certificate.", valueName: "file"))
    var config: String?

    @OptionGroup var gateway: GatewayOptions

    func run() async throws {
        try await reportingAsync { () async throws(CommandFailure) in
            try await PosternCommands.Healthcheck.run(try gateway.address(config: config))
        }
    }
}
