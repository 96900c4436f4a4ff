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

    func run() throws {
        try reporting { () throws(CommandFailure) in
            let inspection = try options.inspection()
            // On the same terminal, the messages themselves show the progress.
            guard isatty(STDOUT_FILENO) != 1 else { return try inspection.export(filter.filter) { writeLine($0) } }
            try Progress.showing("exporting messages") { (progress) throws(CommandFailure) in
                try inspection.export(filter.filter) { line in
                    writeLine(line)
                    progress.advance()
                }
            }
        }
    }
}
