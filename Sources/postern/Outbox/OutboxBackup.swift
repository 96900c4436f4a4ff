import ArgumentParser
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

struct OutboxBackup: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backup",
        abstract: "Copies the store to a file, also while a gateway is running, and verifies the copy.",
        discussion: """
            The file gets its name when it is complete, sound, and on disk. It is accessible only to its owner, and \
            contains payloads.
            """)

    @OptionGroup var options: StoreOptions

    @Option(help: ArgumentHelp("MiB to copy per second; 0 for no limit.", valueName: "n"))
    var rate = 32

    @Flag(help: "Replace an earlier backup of that name.")
    var replace = false

    @Argument(help: "The file to create.")
    var file: String

    func validate() throws {
        guard (0...1_000_000).contains(rate) else { throw ValidationError("--rate is a number from 0 to 1000000.") }
    }

    func run() throws {
        let report = try reporting { () throws(CommandFailure) in
            let location = try options.location()
            let backup = StoreBackup(bytesPerSecond: rate << 20, replacesFile: replace)
            let progress = Progress("copying pages")
            defer { progress.erase() }
            return try PosternCommands.OutboxBackup.run(
                location, to: file, with: backup, progress: progress.advance(to:of:))
        }
        try writeResult(options.json ? report.json : report.text)
    }
}
