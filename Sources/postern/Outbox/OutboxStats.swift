import ArgumentParser
import PosternCommands
import PosternProcess

struct OutboxStats: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stats",
        abstract: "Shows how many messages the store contains for each upstream, by state.")

    @OptionGroup var options: StoreOptions

    func run() throws {
        try reporting { () throws(CommandFailure) in
            try writeResult(options.inspection().stats(asJSON: options.json))
        }
    }
}
