import ArgumentParser
import PosternCommands
import PosternProcess

struct OutboxShow: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Shows one message, and every attempt to deliver it.")

    @OptionGroup var options: StoreOptions

    @Argument(help: "The message.")
    var id: String

    @Flag(help: "Also show its payload.")
    var payload = false

    func run() throws {
        try reporting { () throws(CommandFailure) in
            try writeResult(options.inspection().show(id, payload: payload, asJSON: options.json))
        }
    }
}
