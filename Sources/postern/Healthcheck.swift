import ArgumentParser
import PosternCommands
import PosternGateway

struct Healthcheck: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "healthcheck",
        abstract: "Asks a gateway whether it is ready.",
        discussion: "Exits with 0 when it is, else with 1 and one line why; for containers without curl.")

    @Option(
        help: ArgumentHelp(
            "The gateway's configuration, which says where it listens and with which certificate.", valueName: "file"))
    var config: String?

    @OptionGroup var gateway: GatewayOptions

    func run() async throws {
        try await reportingAsync { () async throws(CommandFailure) in
            try await PosternCommands.Healthcheck.run(try address())
        }
    }

    private func address() throws(CommandFailure) -> GatewayAddress {
        if let config { return try GatewayAddress(ConfigurationLoader(file: config), gateway.choice) }
        return try GatewayAddress(gateway.choice, orAt: "http://127.0.0.1:8080")
    }
}
