import ArgumentParser
import Glibc
import PosternCommands
import PosternCore
import PosternProcess
import PosternStore

struct OutboxList: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Lists messages without their payloads.")

    @OptionGroup var options: StoreOptions
    @OptionGroup var filter: FilterOptions

    @Option(help: ArgumentHelp("Only queued ones that wait for this.", valueName: "reason"))
    var waitingFor: WaitReason?

    @Option(help: ArgumentHelp("Which messages come first.", valueName: "order"))
    var order = MessageOrder.oldest

    @Option(help: ArgumentHelp("The largest number of messages to list.", valueName: "n"))
    var limit = 100

    @Option(help: ArgumentHelp("Continue after an earlier list in the same order.", valueName: "cursor"))
    var cursor: MessageCursor?

    func validate() throws {
        guard limit > 0 else { throw ValidationError("--limit must be at least 1.") }
        guard cursor == nil || cursor?.order == order else {
            throw ValidationError("The cursor belongs to a list in the other order.")
        }
    }

    func run() throws {
        try reporting { () throws(CommandFailure) in
            let list = try options.inspection().list(
                filter.filter, waitingFor: waitingFor, order: order, after: cursor?.id, limit: limit,
                asJSON: options.json)
            try writeResult(list.text)
            if let next = list.next, !options.json {
                writeLine("To continue: --cursor \(next)", to: STDERR_FILENO)
            }
        }
    }
}
