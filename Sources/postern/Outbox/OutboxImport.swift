import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess

struct OutboxImport: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Queues the messages of an export in a running gateway, in their order.",
        discussion: """
            The gateway validates them and gives them new ids. Run an import that was interrupted again, with the same \
            file: what is stored is not stored twice. Exits with 1 if a message was rejected.
            """)

    @Option(help: ArgumentHelp("The gateway's configuration, which contains its address.", valueName: "file"))
    var config: String?

    @OptionGroup var gateway: GatewayOptions

    @Option(help: ArgumentHelp("Import the messages that were in this state.", valueName: "state"))
    var state = MessageState.queued

    @Flag(help: "Write JSON, for programs.")
    var json = false

    @Argument(help: "The export; - for standard input.")
    var file: String

    func validate() throws {
        guard state != .delivered else { throw ValidationError("The payloads of delivered messages are not kept.") }
    }

    func run() async throws {
        let report = try await reportingAsync { () async throws(CommandFailure) in
            let work = PosternCommands.OutboxImport(file, to: try gateway.address(config: config), state: state)
            let progress = Progress("importing messages")
            defer { progress.erase() }
            return try await work.run(progress)
        }
        try writeResult(json ? report.json : report.text)
        throw ExitCode(report.exitCode)
    }
}
