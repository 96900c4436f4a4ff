import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess

struct OutboxPurge: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Deletes settled messages, including their payloads; the ledger still counts them.",
        discussion: """
            Counts them only, unless --yes is given. Removes them only while no gateway runs on the store; a running one \
            removes them by its retention settings.
            """)

    @OptionGroup var options: StoreOptions

    @Option(help: ArgumentHelp("Those of this upstream.", valueName: "name"))
    var upstream: UpstreamName

    @Option(help: ArgumentHelp("Those in this state; anything but queued.", valueName: "state"))
    var state: MessageState

    @Option(help: ArgumentHelp("Only those settled longer ago than this.", valueName: "seconds"))
    var olderThan: Int?

    @Flag(help: "Remove them; without it they are only counted.")
    var yes = false

    func validate() throws {
        guard state != .queued else { throw ValidationError("Queued messages are not purged; see cancel.") }
        // A century, so that no arithmetic overflows.
        guard (0...3_153_600_000).contains(olderThan ?? 0) else {
            throw ValidationError("--older-than is a number of seconds from 0 to 3153600000.")
        }
    }

    func run() async throws {
        let before = olderThan.map { SystemTime().now - .seconds($0) }
        let isPreview = !yes
        let count = try await reportingAsync { () async throws(CommandFailure) in
            let editor = OutboxEditor(try options.location())
            if isPreview { return try editor.previewOfPurge(state, of: upstream, settledBefore: before) }
            return try await editor.purge(state, of: upstream, settledBefore: before)
        }
        let messages = "\(count) \(state.name) \(count == 1 ? "message" : "messages") of \(upstream)"
        let text =
            isPreview
            ? "\(messages) would be removed; nothing was changed. Add --yes to do it." : "\(messages) removed."
        try writeResult(
            options.json
                ? JSONWriter.object { json in
                    json.number("purged", count)
                    if isPreview { json.flag("preview", true) }
                } : text)
    }
}
