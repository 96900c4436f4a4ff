import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

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
        try filter.validate(insteadOf: ids, in: [.queued], "Only queued messages can be cancelled.")
    }

    func run() async throws {
        let edit = try await reportingAsync { () async throws(CommandFailure) in
            let editor = OutboxEditor(try options.location(gateway.choice))
            guard ids.isEmpty else { return try await editor.edit(.cancel, .ids(ids)) }
            var filter = filter.filter
            filter.state = .queued
            return try await editor.edit(.cancel, .all(filter), isPreview: !yes)
        }
        try writeResult(options.json ? edit.json : edit.text)
        throw ExitCode(edit.exitCode)
    }
}
