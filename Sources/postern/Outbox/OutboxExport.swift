import ArgumentParser
import PosternApp

struct OutboxExport: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes messages with their payloads, one JSON object a line, oldest first.",
        discussion: "Payloads of delivered messages are not kept; theirs are null.")

    @OptionGroup var options: StoreOptions
    @OptionGroup var filter: FilterOptions

    func run() throws {
        try reporting { () throws(CommandFailure) in
            try options.inspection().export(filter.filter) { writeLine($0) }
        }
    }
}
