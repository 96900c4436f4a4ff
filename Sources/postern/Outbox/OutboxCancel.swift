import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess

struct OutboxCancel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cancel",
        abstract: "Cancels queued messages, so that they are never sent.",
        discussion: """
            Takes either ids, or --upstream for all that it has queued. The latter only counts the messages unless --yes \
            is given. Exits with 1 if one of the ids is settled or being sent.
            """)

    @OptionGroup var options: StoreOptions
    @OptionGroup var gateway: GatewayOptions
    @OptionGroup var filter: FilterOptions

    @Flag(help: "Cancel them; without it they are only counted.")
    var yes = false

    @Argument(help: "The messages.")
    var ids: [MessageID] = []

    func validate() throws {
        guard ids.isEmpty != (filter.upstream == nil) else {
            throw ValidationError("Specify the messages, either by their ids or with --upstream NAME.")
        }
        guard ids.isEmpty || !filter.isRestricted else {
            throw ValidationError("Options that select messages go with --upstream, not with ids.")
        }
        guard [nil, .queued].contains(filter.state) else {
            throw ValidationError("Only queued messages can be cancelled.")
        }
    }

    func run() async throws {
        let edit = try await reportingAsync { () async throws(CommandFailure) in
            let editor = OutboxEditor(try options.location(gateway.choice))
            guard ids.isEmpty else { return try await editor.cancel(ids) }
            return try await editor.cancel(filter.filter, isPreview: !yes)
        }
        writeLine(options.json ? edit.json : edit.text)
        throw ExitCode(edit.exitCode)
    }
}
