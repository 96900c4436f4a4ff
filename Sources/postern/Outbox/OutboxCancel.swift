import ArgumentParser
import PosternApp
import PosternCore

struct OutboxCancel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel",
        abstract: "Takes queued messages back, so that they are never sent.",
        discussion: "Exits with 1 if one of them is settled or being sent already.")

    @OptionGroup var options: StoreOptions
    @OptionGroup var gateway: GatewayOptions

    @Argument(help: "The messages.")
    var ids: [MessageID]

    func run() async throws {
        let outcome = try await reportingAsync { () async throws(CommandFailure) in
            try await OutboxSteering(try options.place(gatewayURL: gateway.url)).cancel(ids)
        }
        writeLine(options.json ? outcome.json : outcome.text)
        throw ExitCode(outcome.exitCode)
    }
}
