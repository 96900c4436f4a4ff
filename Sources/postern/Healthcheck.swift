import ArgumentParser
import PosternCommands
import PosternGateway

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
            try await PosternCommands.Healthcheck.run(try address())
        }
    }

    private func address() throws(CommandFailure) -> GatewayAddress {
        if let config { return try GatewayAddress(ConfigurationLoader(file: config), gateway.choice) }
        return try GatewayAddress(gateway.choice, orAt: "http://127.0.0.1:8080")
    }
}
