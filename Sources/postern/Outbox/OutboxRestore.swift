import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess

struct OutboxRestore: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "restore",
        abstract: "Puts a backup in the place of the store, while no gateway runs on it.",
        discussion: """
            The backup is verified first, and the store that was there is kept under a new name. Messages that were \
            delivered after the backup are sent again.
            """)

    @OptionGroup var options: StoreOptions

    @Argument(help: "The backup.")
    var file: String

    func run() throws {
        let report = try reporting { () throws(CommandFailure) in
            let location = try options.location()
            let progress = Progress("copying pages")
            defer { progress.erase() }
            return try PosternCommands.OutboxBackup.restore(
                location, from: file, at: SystemTime().now, progress: progress.advance(to:of:))
        }
        try writeResult(options.json ? report.json : report.text)
    }
}
