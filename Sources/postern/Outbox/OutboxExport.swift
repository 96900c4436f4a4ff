import ArgumentParser
import Glibc
import PosternCommands
import PosternProcess

struct OutboxExport: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes messages with their payloads, one JSON object a line, oldest first.",
        discussion: "Payloads of delivered messages are not kept; theirs are null.")

    @OptionGroup var options: StoreOptions
    @OptionGroup var filter: FilterOptions

    @Option(help: ArgumentHelp("Write to this new file instead of standard output.", valueName: "file"))
    var output: String?

    @Flag(help: "Continue a file that an interrupted export has written, after its last message.")
    var resume = false

    func validate() throws {
        guard !resume || output != nil else { throw ValidationError("--resume requires --output FILE.") }
    }

    func run() throws {
        try reporting { () throws(CommandFailure) in
            let inspection = try options.inspection()
            let filter = filter.filter
            let file: ExportFile? =
                if let output { try ExportFile(output, isContinued: resume) } else { nil }
            // On the same terminal, the messages themselves show the progress.
            let shows = file != nil || isatty(STDOUT_FILENO) != 1
            let progress = Progress("exporting messages", on: shows ? Progress.terminal : nil)
            defer { progress.erase() }
            try inspection.export(filter, after: file?.last) { (line) throws(CommandFailure) in
                if let file { try file.write(line) } else { try writeResult(line) }
                progress.advance()
            }
            try file?.finish()
        }
    }
}
