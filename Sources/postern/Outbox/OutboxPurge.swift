import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

struct OutboxPurge: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Deletes settled messages, including their payloads; the ledger still counts them.",
        discussion: """
            Takes an upstream and a state, anything but queued, and optionally other filters. Counts the messages only, \
            unless --yes is given.
            """)

    @OptionGroup var options: StoreOptions
    @OptionGroup var gateway: GatewayOptions
    @OptionGroup var filter: FilterOptions

    @Option(help: ArgumentHelp("Only those settled longer ago than this.", valueName: "seconds"))
    var olderThan: Int?

    @Flag(help: "Remove them; without it they are only counted.")
    var yes = false

    func validate() throws {
        guard filter.upstream != nil, let state = filter.state else {
            throw ValidationError("Specify which messages to remove with --upstream NAME and --state STATE.")
        }
        guard state != .queued else { throw ValidationError("Queued messages are not purged; see cancel.") }
        // A century, so that no arithmetic overflows.
        guard (0...3_153_600_000).contains(olderThan ?? 0) else {
            throw ValidationError("--older-than is a number of seconds from 0 to 3153600000.")
        }
    }

    func run() async throws {
        let edit = try await reportingAsync { () async throws(CommandFailure) in
            var filter = filter.filter
            filter.settledBefore = olderThan.map { SystemTime().now - .seconds($0) }
            let editor = OutboxEditor(try options.location(gateway.choice))
            return try await editor.edit(.purge, .all(filter), isPreview: !yes)
        }
        try writeResult(options.json ? edit.json : edit.text)
        throw ExitCode(edit.exitCode)
    }
}
