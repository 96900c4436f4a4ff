import ArgumentParser
import Glibc
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

struct OutboxList: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Lists messages, oldest first, without their payloads.")

    @OptionGroup var options: StoreOptions
    @OptionGroup var filter: FilterOptions

    @Option(help: ArgumentHelp("Only those with this key.", valueName: "key"))
    var key: String?

    @Option(help: ArgumentHelp("The largest number of messages to list.", valueName: "n"))
    var limit = 100

    @Option(help: ArgumentHelp("Continue after this message.", valueName: "id"))
    var cursor: MessageID?

    func validate() throws {
        guard limit > 0 else { throw ValidationError("The limit is a number from 1.") }
    }

    func run() throws {
        try reporting { () throws(CommandFailure) in
            var filter = filter.filter
            filter.key = key
            let list = try options.inspection().list(filter, after: cursor, limit: limit, asJSON: options.json)
            writeLine(list.text)
            if let next = list.next, !options.json {
                writeLine("To continue: --cursor \(next)", to: STDERR_FILENO)
            }
        }
    }
}
