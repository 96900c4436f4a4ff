import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

struct OutboxRetry: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "retry",
        abstract: "Queues failed or dropped messages again, at their old position.",
        discussion:
            "Takes either ids, or --upstream for all of its dead letters. Exits with 1 if one of the ids cannot be queued again."
    )

    @OptionGroup var options: StoreOptions
    @OptionGroup var gateway: GatewayOptions
    @OptionGroup var filter: FilterOptions

    @Argument(help: "The messages.")
    var ids: [MessageID] = []

    func validate() throws {
        try filter.validate(
            insteadOf: ids, in: [.failed, .dropped], "Only failed or dropped messages can be sent again.")
    }

    func run() async throws {
        let edit = try await reportingAsync { () async throws(CommandFailure) in
            let editor = OutboxEditor(try options.location(gateway.choice))
            guard ids.isEmpty else { return try await editor.edit(.retry, .ids(ids)) }
            var filter = filter.filter
            filter.state = filter.state ?? .failed
            return try await editor.edit(.retry, .all(filter))
        }
        try writeResult(options.json ? edit.json : edit.text)
        throw ExitCode(edit.exitCode)
    }
}
