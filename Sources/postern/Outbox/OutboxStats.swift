import ArgumentParser
import PosternCommands
import PosternProcess

struct OutboxStats: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stats",
        abstract: "How much is queued for each upstream, and what the store keeps of the rest.")

    @OptionGroup var options: StoreOptions

    func run() throws {
        try reporting { () throws(CommandFailure) in
            writeLine(try options.inspection().stats(asJSON: options.json))
        }
    }
}
